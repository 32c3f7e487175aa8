"""Finds the columns of text without delimiters: of records of one length, and of logs that many programs write."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from dagflow.cli.scaffold.column_types import ColumnGuess, guess_column

_LEAST_LINES = 3


def line_length(text: str, encoding: str) -> int:
    """The bytes of each line with its end; 0 where lines differ, or characters may have several bytes."""
    lines = text.splitlines(keepends=True)
    whole = [line for line in lines if line.endswith("\n")]
    lengths = {len(line) for line in whole}
    is_plain = text.isascii() if encoding == "utf-8" else True
    return lengths.pop() if len(whole) >= _LEAST_LINES and len(lengths) == 1 and is_plain else 0


def fixed_columns(lines: Sequence[str]) -> list[ColumnGuess]:
    """The fields of lines of one length, of which each byte is in one; none where they are not padded to it.

    A field begins behind a blank that all lines have, and where letters in all lines follow digits in all lines. Blanks
    that all lines have belong to the field before them, or to that behind them if that has numbers at the right.
    """
    kinds = [_kind(characters) for characters in zip(*lines, strict=True)]
    starts = list(_starts(kinds))
    ends = [*starts[1:], len(kinds)]
    is_padded = "  " in "".join(kinds).strip() or any(
        len({len(line[start:end].strip()) for line in lines}) > 1 for start, end in zip(starts, ends, strict=True)
    )
    if len(starts) < 2 or not is_padded:
        return []
    columns = []
    for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
        values = [line[start:end] for line in lines]
        if number + 1 < len(starts) and all(value.endswith(" ") for value in values):
            # Numbers stand at the right: blanks before them are theirs.
            behind = [line[end : ends[number + 1]].rstrip() for line in lines]
            if len({len(value) for value in behind}) == 1 and any(value.startswith(" ") for value in behind):
                end -= min(len(value) - len(value.rstrip()) for value in values)
        columns.append((start, end, values))
    guesses = []
    for number, (start, end, values) in enumerate(columns):
        start = columns[number - 1][1] if number else 0
        found = guess_column(f"column_{number + 1}", [value.strip() for value in values])
        guesses.append(replace(found, place=(start, end)))
    return guesses


def _kind(characters: Sequence[str]) -> str:
    """What a place has in all lines: blanks, digits, letters, or different characters."""
    if set(characters) == {" "}:
        return " "
    if all(character.isdigit() for character in characters):
        return "0"
    return "a" if all(character.isalpha() for character in characters) else "?"


def _starts(kinds: Sequence[str]) -> Iterator[int]:
    yield 0
    for place, (before, kind) in enumerate(itertools.pairwise(kinds), 1):
        if (before == " " and kind != " " and any(each != " " for each in kinds[:place])) or (before, kind) == (
            "0",
            "a",
        ):
            yield place


_QUOTED = r'(?:[^"\\]|\\.)*'
_REST = r"(?P<message>(?s:.*))"
_PYTHON = r"(?P<at>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),(?P<millis>\d{3})"
_LOGS: dict[str, tuple[str, Any]] = {
    "an access log of Apache or nginx": (
        r"(?P<host>\S+) \S+ (?P<user>\S+) \[(?P<at>[^\]]+)\] "
        rf'"(?P<request>{_QUOTED})" (?P<status>\d+) (?:-|(?P<bytes>\d+))'
        rf'(?: "(?P<referer>{_QUOTED})" "(?P<agent>{_QUOTED})")?',
        {"type": "timestamp[us, UTC]", "format": "%d/%b/%Y:%H:%M:%S %z"},
    ),
    "syslog": (
        r"(?:<\d+>)?(?P<at>[A-Z][a-z]{2} [ \d]\d [\d:]{8}) (?P<host>\S+) "
        rf"(?P<program>[^\s:\[]+)(?:\[(?P<pid>\d+)\])?: {_REST}",
        "string",  # it has no year
    ),
    "a log of Python's logging": (rf"{_PYTHON} (?P<level>[A-Z]+):? {_REST}", "timestamp[us]"),
    "a log of Python's logging with names": (
        rf"{_PYTHON} - (?P<name>[\w.]+) - (?P<level>[A-Z]+) - {_REST}",
        "timestamp[us]",
    ),
}
"""An expression for whole records of each kind of log, and the type of their time."""

_NUMBERS = dict.fromkeys(("status", "bytes", "pid", "millis"), "int64")
"""Columns of numbers; the others are text, whatever the first values are."""


def log_columns(records: Sequence[str]) -> tuple[str, str, tuple[ColumnGuess, ...]] | None:
    """The kind of a log, an expression for its records, and its columns; None where some record is of none."""
    for kind, (expression, time) in _LOGS.items():
        found = [re.fullmatch(expression, record) for record in records]
        if all(found):
            groups = [match.groupdict("") for match in found if match]
            columns = (guess_column(name, [values[name] for values in groups]) for name in groups[0])
            types = {**_NUMBERS, "at": time}
            return kind, expression, tuple(replace(each, type=types.get(each.name, "string")) for each in columns)
    return None
