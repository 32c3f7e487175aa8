"""Tuples of an author's class in the journal: what would not come back as it was emitted is refused before."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from dagflow.engine.run import run
from dagflow.errors import JournalError, OperatorError
from dagflow.journal.windows import TupleError, decode_tuples, encode_tuples
from dagflow.runtime.local import InlineRuntime
from operators.files.metadata import BlockMetadata
from tests.engine.sample_app import app_of, published
from tests.execution.sample_operators import TextSample


@dataclass(frozen=True)
class PlannedRow:
    """A tuple with fields of several types."""

    name: str
    share: float = 0.0
    more: Any = None


@dataclass(frozen=True)
class LongPlannedRow(PlannedRow):
    """A row with one field more."""

    note: str = ""


@dataclass(frozen=True)
class Numbered:
    """A row that must have a number."""

    name: str
    number: int


@dataclass(frozen=True)
class Stamped:
    """A tuple that is changed when it is made."""

    number: int
    is_made: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "number", self.number + 1000)


class NotADataclass:
    """No dataclass."""


def test_tuples_come_back_as_they_were() -> None:
    """Also numbers that are not equal to themselves."""
    rows = [PlannedRow("a", 0.5, [1, "x"]), PlannedRow("b", math.nan)]
    assert repr(decode_tuples(PlannedRow, encode_tuples(PlannedRow, rows))) == repr(rows)


@pytest.mark.parametrize(
    ("kind", "value", "problem"),
    [
        (PlannedRow, PlannedRow(1), "a PlannedRow cannot be kept in the journal"),  # type: ignore[arg-type]  # what is tried
        (PlannedRow, LongPlannedRow("a", note="b"), "would come back from the journal as PlannedRow"),
        (PlannedRow, PlannedRow("a", more=(1, 2)), "would come back from the journal as"),
        (PlannedRow, PlannedRow("a", more=threading.Lock()), "a PlannedRow cannot be kept in the journal"),
        (Stamped, Stamped(1), r"Stamped\(number=1001, .* would come back from the journal as Stamped\(number=2001"),
        (NotADataclass, NotADataclass(), "a NotADataclass cannot be kept in the journal"),
    ],
    ids=["another type", "a subclass", "a tuple as any", "a lock", "made twice", "no dataclass"],
)
def test_what_would_come_back_otherwise_is_refused(kind: type, value: object, problem: str) -> None:
    """With the tuple as it is, and as it would be."""
    with pytest.raises(TupleError, match=problem):
        encode_tuples(kind, [value])


def test_tuples_whose_class_has_other_fields_by_now_are_refused() -> None:
    """A field that was added has its default in them; without one, the error names the field."""
    planned = encode_tuples(PlannedRow, [PlannedRow("a")])
    assert decode_tuples(LongPlannedRow, planned) == [LongPlannedRow("a")]
    with pytest.raises(JournalError, match="Numbered of another form than its class has now: number: Field required"):
        decode_tuples(Numbered, planned)


def test_a_batch_whose_class_no_longer_exists_is_refused() -> None:
    """With its name, and a way out."""
    group = {"batch": "operators.files.small_file_batch:OtherBatch", "version": 1, "value": {}}
    with pytest.raises(
        JournalError, match=r"holds batches of tuples of .*:OtherBatch, which no longer exists\n.*run the"
    ):
        decode_tuples(BlockMetadata, {"groups": [group]})


def test_a_run_goes_on_when_the_operator_is_mended(tmp_path: Path) -> None:
    """Nothing of the wrong window is in the journal; the error names who has emitted it."""
    wrong = app_of(tmp_path, [b"a b"])
    source: Any = wrong.operators["source"].operator
    source.emit_tuples = lambda: source.out.emit(TextSample(source, b"a b"))
    with pytest.raises(
        OperatorError, match="operator 'source': has emitted tuples that the plan of a window cannot hold"
    ):
        run(wrong, runtime=InlineRuntime)
    assert run(app_of(tmp_path, [b"a b"]), runtime=InlineRuntime).state == "completed"
    assert published(tmp_path) == [b"a", b"b"]
