"""What is told of files that have grown."""

from __future__ import annotations

import logging

import pytest

from dagflow.api.operator_log import OPERATOR_LOGGER
from dagflow.testing.manual_clock import ManualClock
from operators.splitter.growth_notes import GrowthNotes


def test_ordinary_growth_is_a_line_with_some_names_and_the_sum(caplog: pytest.LogCaptureFixture) -> None:
    """A log that grows all day is told of every few seconds, with what has come meanwhile."""
    clock = ManualClock()
    notes = GrowthNotes(clock)
    with caplog.at_level(logging.INFO, OPERATOR_LOGGER):
        notes.tell()
        notes.grown("/in/a.txt", 7)
        notes.tell()
        for url, size in (
            ("/in/a.txt", 1),
            ("/in/b", 2),
            ("/in/a.txt", 1000),
            ("/in/c", 3),
            ("/in/d", 4),
            ("/in/e", 5),
        ):
            notes.grown(url, size)
            notes.tell()
        clock.advance(6000)
        notes.tell()
        notes.tell()
    assert caplog.messages == ["a.txt +7 B", "a.txt +1,001 B, b +2 B, c +3 B, 2 more files +9 B"]
    assert {record.levelname for record in caplog.records} == {"INFO"}
