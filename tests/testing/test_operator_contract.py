"""The suite for operators finds operators whose output depends on where a batch ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from dagflow import InputPort, KeyedOperator, Operator, OperatorContext, OutputPort, RecordBatch
from dagflow.api.context import RunPreparation
from dagflow.testing.operator_contract import Inputs, OperatorContract
from dagflow.testing.operators import OperatorHarness

PLACE = "out/report"


class LastBatch(Operator):
    """Emits, when the window ends, what came last."""

    input = InputPort()
    output = OutputPort()

    def begin_window(self, window_id: int) -> None:
        """Nothing has come."""
        self.batch: RecordBatch | None = None

    @input.batch
    def take(self, batch: RecordBatch) -> None:
        """Keep it."""
        self.batch = batch

    def end_window(self) -> None:
        """Emit it."""
        if self.batch is not None:
            self.output.emit(self.batch)


class WithoutFirst(LastBatch):
    """Takes the first record of each batch for a header."""

    @LastBatch.input.batch
    def take(self, batch: RecordBatch) -> None:
        """Pass on the others."""
        self.output.emit(batch.slice(1, len(batch)))


class EmitsNothing(LastBatch):
    """Emits nothing."""

    def end_window(self) -> None:
        """Nothing is emitted."""


def suite_of(kind: type[Operator]) -> OperatorContract:
    """The contract of a class."""

    class Suite(OperatorContract):
        """Two windows."""

        def operator(self) -> Operator:
            """A new instance."""
            return kind()

        def windows(self) -> Sequence[Inputs]:
            """Several records in each."""
            return [{"input": [b"a", b"b", b"c"]}, {"input": [b"d", b"e"]}]

    return Suite()


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        (LastBatch, "other records when each of them arrives by itself"),
        (WithoutFirst, "other records when each of them arrives by itself"),
        (EmitsNothing, "emits nothing, writes nothing and counts nothing"),
    ],
)
def test_an_operator_that_depends_on_batches_is_found(kind: type[Operator], problem: str) -> None:
    """Also one that no other law finds, because it does nothing."""
    with pytest.raises(AssertionError, match=problem):
        suite_of(kind).test_the_cut_into_batches_changes_nothing()


class UndeclaredWriter(LastBatch):
    """Writes a file, and says of no location that it does."""

    def setup(self, context: OperatorContext) -> None:
        """Keep where files are opened."""
        self.outputs = context.outputs

    def end_window(self) -> None:
        """Write what came last."""
        assert self.outputs is not None
        if self.batch is not None:
            file = self.outputs.open(f"{PLACE}/{self.batch.to_pylist()[0].decode()}")
            file.close(records=0)


class ClaimsLocation(UndeclaredWriter):
    """Says of a location that it does."""

    place = f"{PLACE}/"

    def prepare(self, run: RunPreparation) -> None:
        """Claim it."""
        run.claim(self.place)


class ClaimsAnotherLocation(ClaimsLocation):
    """Says so of another location, whose name begins with the same letters."""

    place = "out/re"


@pytest.mark.parametrize("kind", [UndeclaredWriter, ClaimsAnotherLocation])
def test_an_operator_that_publishes_where_it_does_not_claim_is_found(kind: type[Operator]) -> None:
    """One that claims nothing, or another place; one that claims where it publishes keeps the law."""
    with pytest.raises(AssertionError, match=r"not below a location that prepare\(\) claims"):
        suite_of(kind).test_files_are_written_where_the_operator_claims()
    suite_of(ClaimsLocation).test_files_are_written_where_the_operator_claims()


class Latest(KeyedOperator):
    """Emits, at the end of each window, the newest record of each key that has one.

    Args:
        key: The column of the key.
    """

    value_type = dict[str, Any]

    key: str

    input = InputPort()
    output = OutputPort()

    @input.each
    def take(self, record: dict[str, Any]) -> None:
        """Keep it."""
        self.state[record[self.key]] = record

    def end_window(self) -> None:
        """Emit what has changed."""
        for key in self.state.changed:
            self.output.emit(self.state[key])


class TestLatest(OperatorContract):
    """An operator with state by key, as the docs have it, keeps all laws."""

    def operator(self) -> Operator:
        """An operator that keeps state by user."""
        return Latest(key="user")

    def windows(self) -> Sequence[Inputs]:
        """A user comes again, behind another one."""
        return [{"input": [{"user": user, "n": number}]} for number, user in enumerate(["a", "b", "a"])]


def test_what_a_window_has_changed_is_not_changed_in_the_next_one() -> None:
    """The snapshot of each window comes before the next, as in a run."""
    harness = OperatorHarness(Latest(key="user"))
    for records in ([{"user": "a", "n": 1}], [{"user": "b", "n": 2}], []):
        harness.window({"input": records} if records else {})
    assert harness.emitted == {"output": [{"user": "a", "n": 1}, {"user": "b", "n": 2}]}
    other = harness.restart()
    other.window({})
    other.window({"input": [{"user": "a", "n": 3}]})
    assert other.emitted == {"output": [{"user": "a", "n": 3}]}


class LosesStateAtSnapshot(LastBatch):
    """Gives its state away with the snapshot, which a run takes once for each window."""

    state_type = int

    def setup(self, context: OperatorContext) -> None:
        """Nothing has come."""
        self.counted = 0

    def restore(self, state: int) -> None:
        """Count on."""
        self.counted = state

    def end_window(self) -> None:
        """Count."""
        self.counted += 1

    def snapshot(self) -> int:
        """The count, which is begun anew."""
        counted, self.counted = self.counted, 0
        return counted


def test_the_snapshot_of_a_window_is_taken_once() -> None:
    """However often a test asks for it."""
    harness = OperatorHarness(LosesStateAtSnapshot())
    harness.window({})
    assert [state.data for _ in range(2) if (state := harness.saved_state())] == [1, 1]
