"""What is reported about files that have grown."""

from __future__ import annotations

import logging

import pytest

from dagflow.api.operator import OPERATOR_LOGGER
from operators.splitter.changes.detection_rules import GrowthNotes
from tests.manual_clock import ManualClock


def test_ordinary_growth_is_a_line_with_some_names_and_the_sum(caplog: pytest.LogCaptureFixture) -> None:
    """A log that grows all day is reported every few seconds, with what has come meanwhile."""
    clock = ManualClock()
    notes = GrowthNotes(clock)
    with caplog.at_level(logging.INFO, OPERATOR_LOGGER):
        notes.report()
        notes.grown("/in/a.txt", 7)
        notes.report()
        for url, size in (
            ("/in/a.txt", 1),
            ("/in/b", 2),
            ("/in/a.txt", 1000),
            ("/in/c", 3),
            ("/in/d", 4),
            ("/in/e", 5),
        ):
            notes.grown(url, size)
            notes.report()
        clock.advance(6000)
        notes.report()
        notes.report()
    assert caplog.messages == ["a.txt +7 B", "a.txt +1,001 B, b +2 B, c +3 B, 2 more files +9 B"]
    assert {record.levelname for record in caplog.records} == {"INFO"}


def test_growth_of_unknown_size_is_reported_without_one(caplog: pytest.LogCaptureFixture) -> None:
    """What was added to a log before it was compressed is known when it is read."""
    clock = ManualClock()
    notes = GrowthNotes(clock)
    with caplog.at_level(logging.INFO, OPERATOR_LOGGER):
        notes.grown("/in/a.log.1.gz", None)
        notes.report()
        clock.advance(6000)
        for url, size in (("/in/a", None), ("/in/b", 2), ("/in/b", None), ("/in/c", 3), ("/in/d", None), ("/in/e", 5)):
            notes.grown(url, size)
        notes.report()
    assert caplog.messages == ["a.log.1.gz grown", "a grown, b +2 B, c +3 B, 2 more files +5 B"]
