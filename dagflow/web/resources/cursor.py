"""The cursor of a list over windows: `next` gives it, and `after` takes it."""

from __future__ import annotations

from dataclasses import dataclass

from dagflow.web.query import RequestError, is_number


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place in a list, the newest windows first.

    Attributes:
        before: Windows below this id are still to be listed; 0 for all.
        position: How many rows of the first of these windows were listed.
    """

    before: int = 0
    position: int = 0

    @classmethod
    def of(cls, text: str) -> Cursor:
        """Parse a cursor; "" is the beginning of the list.

        Raises:
            RequestError: The text is no cursor.
        """
        if not text:
            return cls()
        parts = text.split(".")
        if len(parts) != 2 or not all(map(is_number, parts)):
            raise RequestError(f"after must be the value of next in an earlier answer, not {text[:40]!r}")
        return cls(*map(int, parts))

    def __str__(self) -> str:
        return f"{self.before}.{self.position}"
