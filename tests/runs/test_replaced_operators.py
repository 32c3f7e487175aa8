"""State that an operator finds of another class, which had its name before."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from dagflow import Operator
from dagflow.api.keyed_state import KeyedOperator, KeyedSnapshot, KeyedState
from dagflow.engine.run import run
from dagflow.errors import DagflowError, JournalError, OperatorError
from dagflow.runtime.local import InlineRuntime
from operators.stateful import Deduplicator, KeyCounter
from tests.engine.sample_app import published
from tests.engine.test_operator_state import WORDS, keyed_app, until
from tests.execution.sample_operators import Total


@dataclass(frozen=True)
class KeysAndMore:
    """State by key within a state."""

    keys: KeyedSnapshot | None
    more: str


class KeepsMoreThanKeys(Deduplicator):
    """Keeps more than its state by key."""

    state_type = KeysAndMore

    def snapshot(self) -> Any:
        """The state by key, and more."""
        return KeysAndMore(super().snapshot(), "more")

    def restore(self, state: Any) -> None:
        """Take both back."""
        super().restore(state.keys)


@pytest.mark.parametrize(
    ("before", "now", "message"),
    [
        (Total, KeyCounter, r"left state that is not by key, and is a KeyedOperator now\n    restore its class"),
        (KeepsMoreThanKeys, Deduplicator, r"left state that is not by key, and is a KeyedOperator now"),
    ],
)
def test_state_of_another_kind_is_refused_until_the_class_is_what_it_was(
    tmp_path: Path, before: type[Operator], now: type[Operator], message: str
) -> None:
    """Before a window is planned, and not by the first record; with the class as it was, the run goes on."""
    with pytest.raises(DagflowError, match="the lights went out"):
        run(keyed_app(tmp_path, before(), 1), runtime=until(3))
    for _ in range(2):
        with pytest.raises(JournalError, match=f"operator 'keyed' has {message}"):
            run(keyed_app(tmp_path, now(), 1), runtime=InlineRuntime)
    run(keyed_app(tmp_path, before(), 1), runtime=InlineRuntime)
    assert published(tmp_path)[-1] == (b"60" if before is Total else max(WORDS))
    assert before is Total or published(tmp_path) == sorted(set(WORDS))


class TotalByKey(KeyedOperator):
    """Counts as Total does, by key; nothing decides its keys."""

    value_type = int
    input = Total.input
    output = Total.output

    @input.each
    def add(self, record: bytes) -> None:
        """Count."""
        self.state[record] = self.state.get(record, 0) + 1

    def end_window(self) -> None:
        """Say the total."""
        self.output.emit(b"%d" % sum(count for _, count in self.state.items()))


class ReadsByKey(Total):
    """Goes on from the counts by key as well."""

    def restore(self, state: Any) -> None:
        """Go on from a total, or from the counts by key."""
        self.count = sum(state.values(int).values()) if isinstance(state, KeyedSnapshot) else state


TOTALS = [b"%d" % total for total in range(10, 70, 10)]


@pytest.mark.parametrize("mended", [TotalByKey, ReadsByKey])
def test_state_by_key_is_taken_by_a_keyed_operator_or_one_that_reads_it(tmp_path: Path, mended: type[Operator]) -> None:
    """Another one that only keeps it fails by a later call, whose error names the cause and the ways out."""
    with pytest.raises(DagflowError, match="the lights went out"):
        run(keyed_app(tmp_path, TotalByKey(), 1), runtime=until(3))
    for _ in range(2):
        with pytest.raises(
            OperatorError, match=r"raised TypeError(?s:.*)\n    let its class be a KeyedOperator again, or"
        ):
            run(keyed_app(tmp_path, Total(), 1), runtime=InlineRuntime)
    run(keyed_app(tmp_path, mended(), 1), runtime=InlineRuntime)
    assert published(tmp_path) == TOTALS


class GivesByKey(Total):
    """Gives state by key, and is no KeyedOperator."""

    state_type: ClassVar[Any] = KeyedSnapshot

    def snapshot(self) -> Any:
        """The total, by one key."""
        state: KeyedState[int] = KeyedState(int)
        state["total"] = self.count
        return state.snapshot()

    def restore(self, state: Any) -> None:
        """Go on from it."""
        self.count = state.values(int)["total"]


class FailsToRestore(GivesByKey):
    """Takes nothing back."""

    def restore(self, state: Any) -> None:
        """Fail."""
        raise ValueError("nothing")


def test_a_plain_operator_goes_on_with_state_by_key_of_its_own(tmp_path: Path) -> None:
    """Where it fails, nothing is said of a class that it never was."""
    with pytest.raises(DagflowError, match="the lights went out"):
        run(keyed_app(tmp_path, GivesByKey(), 1), runtime=until(3))
    with pytest.raises(OperatorError, match="raised ValueError") as failed:
        run(keyed_app(tmp_path, FailsToRestore(), 1), runtime=InlineRuntime)
    assert "KeyedOperator" not in str(failed.value)
    run(keyed_app(tmp_path, GivesByKey(), 1), runtime=InlineRuntime)
    assert published(tmp_path) == TOTALS
