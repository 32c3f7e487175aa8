"""The query parameters of a request, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dagflow.errors import DagflowError
from dagflow.frozen import frozen

MOST_ROWS = 1000
_MOST_DIGITS = 18
_MOST_CHARACTERS = 4096
"""A path may have as many."""


class RequestError(DagflowError):
    """Raised when a request asks for something that does not exist, or that is invalid.

    Attributes:
        status: The status code of HTTP that answers it.
    """

    def __init__(self, message: str, hint: str = "", status: int = 400) -> None:
        super().__init__(message, hint=hint)
        self.status = status


def is_number(text: str) -> bool:
    """Whether a text is a whole number that a row may have: Python refuses to convert numbers of very many digits."""
    return text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS


@dataclass(frozen=True)
class Query:
    """The parameters of a request."""

    values: Mapping[str, str]

    def text(self, name: str) -> str:
        """The text of a parameter; "" where it is not given.

        Raises:
            RequestError: The parameter is longer than any name, or holds a character that is in none.
        """
        text = self.values.get(name, "")
        if len(text) > _MOST_CHARACTERS:
            raise RequestError(f"{name} has {len(text)} characters, and may have {_MOST_CHARACTERS}")
        if "\0" in text:
            raise RequestError(f"{name} holds the character 0, which no name has")
        return text

    def number(self, name: str, default: int = 0, most: int | None = None, *, least: int = 0) -> int:
        """The number that a parameter is.

        Args:
            default: The value of a parameter that is not given.
            most: The largest value; a larger number counts as this one.

        Raises:
            RequestError: The parameter is not a whole number of at least `least`.
        """
        text = self.text(name)
        if not text:
            return default
        if not (is_number(text) and int(text) >= least):
            raise RequestError(f"{name} must be a whole number of at least {least}, not {text[:40]!r}")
        return int(text) if most is None else min(int(text), most)

    def limit(self, default: int) -> int:
        return self.number("limit", default, MOST_ROWS) or default


@frozen
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
