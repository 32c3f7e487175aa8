"""What a task has found out comes back from the state as it was, and is data there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dagflow.api.context import MovedRange, Skipped, WaitingEnd
from dagflow.errors import JournalError
from dagflow.execution.messages import TaskResult
from dagflow.metrics.counters import Counters
from dagflow.spark.stream_windows import note_of, result_of
from operators.files.metadata import Fate, FileFingerprints, ReadPart

EVENTS = (
    ReadPart("dir/b", 10, 1, 5, -(2**63)),
    FileFingerprints.of("dir/", ["a\udcff", "b"], [1, 2], [2**62, 4], [-1, 2**63 - 1], [0, 7]),
    FileFingerprints.left_out("dir/c", 3, 4, Fate.REWRITTEN, 2),
)
RESULT = TaskResult(
    stage=0,
    partition=3,
    counters=Counters.of_counts({"read": {"blocks": 2}}),
    files=(),
    reports=(),
    states={},
    accounting={"read": {"dir/a": -4}},
    busy_s=0.25,
    operator_busy_s={"read": 0.125},
    started_ms=17,
    skipped=(Skipped("dir/a", 0, 5, "gone", "deleted"),),
    moved=(MovedRange("dir/a", 1, 2),),
    waiting=(WaitingEnd("dir/a", 3),),
    read_in_part=frozenset({("dir/a", 1, 2, "tag")}),
    refused={"read": b"\x00\xff"},
)


def test_a_result_comes_back_as_it_was() -> None:
    """Also names that are no text, and numbers of 64 bits; columns of numbers stay columns."""
    read = result_of(note_of(replace(RESULT, source_events=EVENTS)), "state", "files")
    assert replace(read, source_events=()) == RESULT
    assert repr(read.source_events) == repr(EVENTS)


def test_a_damaged_note_is_named() -> None:
    """Its bytes are checked."""
    note = note_of(RESULT)
    with pytest.raises(JournalError, match="state"):
        result_of(note[:-1] + b"\x00", "state", "files")
