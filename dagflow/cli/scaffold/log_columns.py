"""Finds the columns of logs that many programs write."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from dagflow.cli.scaffold.column_types import ColumnGuess, guess_column

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
