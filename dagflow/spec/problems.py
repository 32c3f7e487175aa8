"""Mistakes in an app: their places, how they are gathered, and the values that they quote."""

from __future__ import annotations

import os
from collections.abc import Collection

from dagflow.errors import Problem
from dagflow.frozen import frozen

_SHOWN_CHARACTERS = 60
"""How much of a value a message quotes: a scalar may be megabytes long."""

_REASON_CHARACTERS = 600
"""Number of characters that a message quotes of an exception of other code, which may hold a whole value."""


@frozen
class Place:
    """Where something was written.

    Attributes:
        file: The app file as the user named it, a file of Python code, or the option of the command line.
    """

    file: str
    line: int = 0
    column: int = 0

    def problem(self, message: str) -> Problem:
        return Problem(self.file, self.line, self.column, message)


def place_in_code(file: str, line: int) -> Place:
    """The place of a line of Python code; a file below the working directory is named relative to it."""
    relative = os.path.relpath(file) if os.path.isabs(file) else file
    return Place(file if relative.startswith("..") else relative, line)


class Problems:
    """Gathers every mistake, so that all of them are reported at once."""

    def __init__(self) -> None:
        self._found: dict[Problem, None] = {}

    def add(self, place: Place, message: str) -> None:
        """Note one mistake; the same one at the same place counts once."""
        self._found[place.problem(message)] = None

    def __bool__(self) -> bool:
        return bool(self._found)

    @property
    def found(self) -> list[Problem]:
        """The mistakes in the order in which they stand in the file; those of the command line first."""
        return in_file_order(self._found)


def in_file_order(problems: Collection[Problem]) -> list[Problem]:
    """The problems by file, line and column; those that stand in no line come first."""
    files = list(dict.fromkeys(problem.file for problem in problems if problem.line))

    def position(problem: Problem) -> tuple[int, int, int]:
        return files.index(problem.file) if problem.line else -1, problem.line, problem.column

    return sorted(problems, key=position)


def quoted(text: str) -> str:
    """A value as messages show it: in quotes, on one line, and not longer than a line."""
    shown = text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"
    return "'" + "".join(char if char.isprintable() else repr(char)[1:-1] for char in shown) + "'"


def shortened(text: str) -> str:
    """A text of other code, cut in the middle where it is longer than a few lines."""
    return text if len(text) <= _REASON_CHARACTERS else f"{text[: _REASON_CHARACTERS - 150]} … {text[-150:]}"


def listed(names: Collection[str]) -> str:
    words = [f"'{name}'" for name in names]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else "nothing"
