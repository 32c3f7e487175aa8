"""Logs of programs that everybody runs have columns from the start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dagflow.cli.scaffold.format_guess import guess_format
from tests.strangers.test_high_ratios import steps_of

COMBINED = (
    '10.0.0.1 - ann [10/Oct/2026:13:55:36 -0700] "GET /a\\"b HTTP/1.1" 200 23 "-" "curl (x)"\n'
    '10.0.0.2 - - [10/Oct/2026:13:55:37 -0700] "-" 400 - "-" "-"\n'
)
LOGS: list[tuple[str, dict[str, list[Any]]]] = [
    (COMBINED, {"status": [200, 400], "bytes": [23, None], "agent": ["curl (x)", "-"]}),
    (
        COMBINED.replace(' "-" "curl (x)"', "").replace(' "-" "-"\n', "\n"),
        {"bytes": [23, None], "host": ["10.0.0.1", "10.0.0.2"]},
    ),
    (
        "Oct 11 22:14:15 web su[12]: failed\nOct  1 02:14:15 web sshd: ok: x\n",
        {"at": ["Oct 11 22:14:15", "Oct  1 02:14:15"], "pid": [12, None], "message": ["failed", "ok: x"]},
    ),
    (
        "2026-05-01 10:00:00,123 INFO started\n2026-05-01 10:00:01,007 ERROR failed\nTraceback:\n  x\n",
        {"millis": [123, 7], "level": ["INFO", "ERROR"], "message": ["started", "failed\nTraceback:\n  x"]},
    ),
    (
        "2026-05-01 10:00:00,123 - app.db - INFO - started\n2026-05-01 10:00:01,007 - app - ERROR - a - b\n",
        {"name": ["app.db", "app"], "message": ["started", "a - b"]},
    ),
]


@pytest.mark.parametrize(("text", "columns"), LOGS, ids=["combined", "common", "syslog", "logging", "names"])
def test_a_log_is_read_with_the_columns_that_are_proposed(
    text: str, columns: dict[str, list[Any]], tmp_path: Path
) -> None:
    """Each record gives a row, also one of several lines."""
    guess = guess_format(text.encode(), is_whole=True)
    (tmp_path / "a.log").write_text(text)
    options = {"type": guess.name, **guess.options, "columns": {each.name: each.type for each in guess.columns}}
    rows = [
        row for step in steps_of(tmp_path / "a.log", options) for batch in step.batches for row in batch.to_pylist()
    ]
    assert {name: [row[name] for row in rows] for name in columns} == columns


def test_a_log_with_a_line_of_another_form_is_read_as_lines() -> None:
    """No line is refused for an expression that does not fit."""
    guess = guess_format((COMBINED + "10.0.0.3 - - [10/Oct/2026:13:55:38 -0700] broken\n").encode(), is_whole=True)
    assert (guess.name, guess.columns) == ("lines", ())
