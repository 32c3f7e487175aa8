"""Where a list over windows goes on: the cursor that `next` gives, and `after` takes."""

from __future__ import annotations

from dataclasses import dataclass

from dagflow.web.query import RequestError, is_number


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place in a list, the newest windows first.

    Attributes:
        before: The windows below this id are still to be told; 0 for all.
        position: How many rows of the first of them were told.
    """

    before: int = 0
    position: int = 0

    @classmethod
    def of(cls, text: str) -> Cursor:
        """The cursor that a text is; the beginning of the list for "".

        Raises:
            RequestError: No answer has given it.
        """
        if not text:
            return cls()
        parts = text.split(".")
        if len(parts) != 2 or not all(map(is_number, parts)):
            raise RequestError(f"after must be what an earlier answer calls next, not {text[:40]!r}")
        return cls(*map(int, parts))

    def __str__(self) -> str:
        return f"{self.before}.{self.position}"
