"""What per-record methods emit, piece by piece: any mixture gives the batch that all at once would give."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagflow import InputPort, Operator, OutputPort
from dagflow.api.context import Counts
from dagflow.api.records import Delimiters, Origin, RecordBatch
from dagflow.errors import OperatorError
from dagflow.execution.chain import Chain
from dagflow.execution.emitted_records import (
    BATCH_BYTES,
    END_OF_CALL,
    PIECE_RECORDS,
    EmittedRecords,
    PieceOutput,
    RecordPiece,
)
from dagflow.plan.physical import PortRef
from dagflow.testing.operators import OperatorHarness
from tests.execution.sample_operators import TextSample

LINES, CRLF = Delimiters((b"\n",)), b"\r\n"
BLOCK = TextSample("a.txt", b"x" * 50, 100)


def batch_of(records: list[bytes], *, is_mixed: bool) -> RecordBatch:
    """Records of one block, with one delimiter or with two kinds in turn."""
    codes = np.arange(len(records), dtype=np.uint8) % 2 if is_mixed else None
    delimiters = Delimiters((b"\n", CRLF), codes) if is_mixed else LINES
    return RecordBatch.from_records(records, delimiters, Origin((BLOCK,), np.arange(len(records)), 100))


ACTIONS: dict[str, Callable[[bytes], list[Any]]] = {
    "keep": lambda record: [record],
    "drop": lambda _: [],
    "copy": lambda record: [record + b"!"],
    "twice": lambda record: [record, record],
}


@given(
    st.lists(st.tuples(st.binary(max_size=3), st.sampled_from(sorted(ACTIONS))), max_size=12),
    st.integers(1, 5),
    st.booleans(),
)
def test_pieces_of_any_size_give_the_same_records(plan: list[tuple[bytes, str]], piece: int, is_mixed: bool) -> None:
    """Records, delimiters and offsets are those of the record that was at hand, however the batch is divided."""
    batch = batch_of([record for record, _ in plan], is_mixed=is_mixed)
    gathered = EmittedRecords(batch)
    records = batch.to_pylist()
    identities = np.array([*map(id, records)], np.intp)
    made = [ACTIONS[action](record) for record, (_, action) in zip(records, plan, strict=True)]
    for start in range(0, len(batch), piece):
        end = start + piece
        marked = itertools.chain.from_iterable([*each, END_OF_CALL] for each in made[start:end])
        gathered.add(PieceOutput([*marked]), RecordPiece(start, records[start:end], identities=identities[start:end]))
    (out,) = gathered.batches()
    framed = batch.framed().to_pylist()
    ending = [whole[len(record) :] for whole, record in zip(framed, records, strict=True)]
    assert out.to_pylist() == [*itertools.chain.from_iterable(made)]
    assert out.framed().to_pylist() == [record + ending[at] for at, each in enumerate(made) for record in each]
    assert out.offsets().tolist() == [100 + at for at, each in enumerate(made) for _ in each]


def test_records_that_are_passed_on_are_not_built_anew() -> None:
    """A filter of single records selects from the buffer that was read, and holds no object for them."""
    batch = batch_of([b"a", b"b", b"c"], is_mixed=False)
    records = batch.to_pylist()
    gathered = EmittedRecords(batch)
    marked = [*itertools.chain.from_iterable((record, END_OF_CALL) for record in records)]
    identities = np.array([*map(id, records)], np.intp)
    gathered.add(PieceOutput(marked), RecordPiece(0, records, identities=identities))
    assert next(gathered.batches()) is batch
    assert gathered.count == 3


class EmitsChosenKinds(Operator):
    """Emits each record as the kind that `kinds` names for it, and fails at the kind fail."""

    kinds: dict[int, str]

    input = InputPort()
    output = OutputPort()
    errors = OutputPort()

    @input.each
    def take(self, record: bytes) -> None:
        """Called once per record."""
        kind = self.kinds.get(int(record), "same")
        if kind == "fail":
            raise ValueError(kind)
        made: dict[str, Any] = {
            "same": record,
            "row": {"n": int(record)},
            "array": bytearray(record),
            "batch": RecordBatch.from_records([b"whole"]),
        }
        self.output.emit(made[kind])
        self.errors.emit(b"E" + record)


NUMBERS = [b"%d" % number for number in range(2 * PIECE_RECORDS + 3)]


def test_the_record_that_fails_in_a_later_piece_is_named() -> None:
    """Offset and record are its own, whichever piece it is in."""
    at = PIECE_RECORDS + 5
    with pytest.raises(OperatorError, match=f"on the record at offset {100 + at}") as raised:
        OperatorHarness(EmitsChosenKinds(kinds={at: "fail"})).window({"input": batch_of(NUMBERS, is_mixed=False)})
    assert raised.value.record == repr(NUMBERS[at])


@pytest.mark.parametrize("kind", ["row", "array"])
def test_kinds_that_differ_between_pieces_are_refused(kind: str) -> None:
    """A batch has one kind of records, also where it is handled piece by piece."""
    with pytest.raises(OperatorError, match="must all be bytes, or all dicts"):
        OperatorHarness(EmitsChosenKinds(kinds={PIECE_RECORDS + 1: kind})).window(
            {"input": batch_of(NUMBERS, is_mixed=False)}
        )


@pytest.mark.parametrize("at", [0, 7, PIECE_RECORDS + 1, 2 * PIECE_RECORDS])
@pytest.mark.parametrize("made", [None, "text", 5, bytearray(b"x"), {"n": 1}], ids=str)
def test_what_is_no_record_is_reported_with_its_port_and_its_record(at: int, made: Any) -> None:
    """The line that emitted it is not known; the first such record is named, also in a later piece."""

    class Makes(Operator):
        """Emits something else as well for two records."""

        input = InputPort()
        output = OutputPort()

        @input.each
        def take(self, record: bytes) -> None:
            """Called once per record."""
            self.output.emit(record)
            if int(record) in (at, at + 5):
                self.output.emit(made)

    text = (
        f"take() emitted {made!r} at port output (records must all be bytes, or all dicts of column to value; got "
        f"{', '.join(sorted(['bytes', type(made).__name__]))}) on the record at offset {100 + at}"
    )
    with pytest.raises(OperatorError, match=re.escape(text)) as raised:
        OperatorHarness(Makes()).window({"input": batch_of(NUMBERS, is_mixed=False)})
    assert raised.value.record == repr(NUMBERS[at])


def test_values_that_make_no_column_are_reported_with_their_record() -> None:
    """As records that a method itself refuses."""

    class Values(Operator):
        """Emits a text among numbers."""

        input = InputPort()
        output = OutputPort()

        @input.each
        def take(self, record: bytes) -> None:
            """Called once per record."""
            self.output.emit({"n": int(record) if record != b"9" else "nine"})

    with pytest.raises(OperatorError, match=r"has str where .* has int.* on the record at offset 109") as raised:
        OperatorHarness(Values()).window({"input": batch_of(NUMBERS, is_mixed=False)})
    assert raised.value.record == "b'9'"


def test_what_is_no_record_of_a_batch_is_reported_with_its_port() -> None:
    """A method that takes whole batches has no single record at hand."""

    class Whole(Operator):
        """Emits a text for a batch."""

        input = InputPort()
        output = OutputPort()

        @input.batch
        def take(self, batch: RecordBatch) -> None:
            """Called once per batch."""
            self.output.emit(b"good")
            self.output.emit("bad")

    with pytest.raises(OperatorError, match=r"take\(\) emitted 'bad' at port output \(records must all") as raised:
        OperatorHarness(Whole()).window({"input": batch_of(NUMBERS, is_mixed=False)})
    assert raised.value.record == ""


def test_a_whole_batch_among_single_records_keeps_its_place() -> None:
    """Each of two ports gets all of its records in the order of emission."""
    harness = OperatorHarness(EmitsChosenKinds(kinds={PIECE_RECORDS + 1: "batch"}))
    harness.window({"input": batch_of(NUMBERS, is_mixed=False)})
    before, after = NUMBERS[: PIECE_RECORDS + 1], NUMBERS[PIECE_RECORDS + 2 :]
    assert harness.emitted["output"] == [*before, b"whole", *after]
    assert harness.emitted["errors"] == [b"E" + number for number in NUMBERS]


def test_what_is_known_of_a_piece_that_is_done_counts_as_emitted() -> None:
    """A watch that looks from another thread sees progress, also while nothing is passed on."""
    seen: list[tuple[int, int]] = []

    class Looks(EmitsChosenKinds):
        """Looks at its own chain as a watch does."""

        @EmitsChosenKinds.input.each
        def take(self, record: bytes) -> None:
            """Called once per record."""
            (call,) = chain.calls
            seen.append((call.taken, chain.emitted_by("op")))
            self.output.emit(record)

    operator = Looks(kinds={})
    chain = Chain({"op": operator}, [], {"op": Counts()})
    chain.connect(PortRef("op", "output"), lambda _: None)
    chain.begin_window(1)
    for _ in chain.feed(PortRef("op", "input"), batch_of(NUMBERS, is_mixed=False)):
        pass
    assert seen == [(number + 1, number) for number in range(len(NUMBERS))]


def test_many_bytes_of_several_pieces_go_on_in_bounded_batches() -> None:
    """No batch is larger than the bound, and none is lost or moved."""

    class Grow(Operator):
        """Makes long records."""

        input = InputPort()
        output = OutputPort()

        @input.each
        def take(self, record: bytes) -> None:
            """Called once per record."""
            self.output.emit(record.zfill(5000))

    harness = OperatorHarness(Grow())
    harness.window({"input": batch_of(NUMBERS, is_mixed=True)})
    batches = harness.batches["output"]
    assert max(sum(map(len, batch.to_pylist())) for batch in batches) <= BATCH_BYTES
    assert [record for batch in batches for record in batch.to_pylist()] == [each.zfill(5000) for each in NUMBERS]
    offsets = np.concatenate([batch.offsets() for batch in batches])
    assert offsets.tolist() == [100 + number for number in range(len(NUMBERS))]


def test_what_a_failed_method_has_emitted_goes_nowhere() -> None:
    """A chain that goes on after the failure passes on nothing of that batch."""
    chain = Chain({"op": EmitsChosenKinds(kinds={2: "fail"})}, [], {"op": Counts()})
    taken: list[RecordBatch] = []
    chain.connect(PortRef("op", "output"), taken.append)
    chain.begin_window(1)
    with pytest.raises(OperatorError, match=r"take\(\) raised ValueError"):
        for _ in chain.feed(PortRef("op", "input"), batch_of(NUMBERS[:4], is_mixed=False)):
            pass
    chain.flush("op")
    assert not taken
