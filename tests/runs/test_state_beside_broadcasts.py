"""State by key beside broadcasts, which reach all partitions: with real journals, whatever the number of partitions."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings

from dagflow import InputPort, KeyedOperator, Operator, OutputPort
from dagflow.engine.run import run
from dagflow.errors import OperatorError, PlanError
from dagflow.plan.logical import LogicalPlan, OperatorNode
from dagflow.runtime.local import InlineRuntime
from operators.stateful import Deduplicator
from tests.engine.sample_app import edge, published
from tests.engine.test_operator_state import COUNTS, WORDS, by_record, keyed_app, run_through
from tests.nightly import examples


class CountsDeliveries(KeyedOperator):
    """Counts for each key of its records how often the input `broadcast` had it."""

    value_type = int

    is_careful: bool = True

    input = InputPort()
    broadcast = InputPort()
    output = OutputPort()

    def begin_window(self, window_id: int) -> None:
        """Forget the broadcasts of the window before."""
        self.noted: list[bytes] = []

    @input.each
    def take(self, record: bytes) -> None:
        """Let it be counted."""
        self.state[record] = self.state.get(record, 0)

    @broadcast.each
    def note(self, record: bytes) -> None:
        """Note it."""
        self.noted.append(record)

    def end_window(self) -> None:
        """Count what is known here, or all of it, and emit what was counted."""
        for record in self.noted:
            if record in self.state or not self.is_careful:
                self.state[record] = self.state.get(record, 0) + 1
        for key in self.state.changed:
            assert isinstance(key, bytes)
            self.output.emit(b"%s=%d" % (key, self.state[key]))


class PassesBroadcasts(Operator):
    """Passes on its records, and perhaps those of its broadcast input."""

    is_careful: bool = True

    input = InputPort()
    broadcast = InputPort()
    output = OutputPort()

    @input.each
    def take(self, record: bytes) -> None:
        """Pass it on."""
        self.output.emit(record)

    @broadcast.each
    def note(self, record: bytes) -> None:
        """Perhaps pass it on."""
        if not self.is_careful:
            self.output.emit(record)


def broadcast_app(root: Path, operator: Operator, count: int, behind: Operator | None = None) -> LogicalPlan:
    """Each word goes to one partition of an operator by its key, and to each of its partitions by broadcast."""
    app = keyed_app(root, operator, by_record(count))
    broadcast = replace(edge("lines.records", "keyed.broadcast"), is_broadcast=True)
    if behind is None:
        return replace(app, edges=(*app.edges, broadcast))
    writer = app.operators["writer"]
    operators = {**app.operators, "behind": OperatorNode("behind", behind, "parallel"), "writer": writer}
    edges = (*app.edges[:-1], edge("keyed.output", "behind.input"), edge("behind.output", "writer.input"), broadcast)
    return replace(app, operators=operators, edges=edges)


@settings(max_examples=examples(10))
@given(COUNTS)
def test_state_by_key_may_be_beside_a_broadcast(counts: list[int]) -> None:
    """Each partition counts the broadcasts of its own keys, whatever the number of partitions."""
    with TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        run_through(Path(folder), CountsDeliveries, counts, broadcast_app)
        pairs = [text.split(b"=") for text in published(Path(folder))]
        assert {word: max(int(n) for other, n in pairs if other == word) for word, _ in pairs} == Counter(WORDS)


@settings(max_examples=examples(10))
@given(COUNTS)
def test_state_by_key_may_be_behind_an_operator_with_a_broadcast(counts: list[int]) -> None:
    """It gets the records that went by key, in the same partition."""

    def app(root: Path, operator: Operator, count: int) -> LogicalPlan:
        return broadcast_app(root, operator, count, Deduplicator())

    with TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        run_through(Path(folder), PassesBroadcasts, counts, app)
        assert published(Path(folder)) == sorted(set(WORDS))


@pytest.mark.parametrize(
    ("operator", "behind", "name"),
    [
        (CountsDeliveries(is_careful=False), None, "keyed"),
        (PassesBroadcasts(is_careful=False), Deduplicator(), "behind"),
    ],
)
def test_a_broadcast_sets_no_state_of_the_keys_of_other_partitions(
    tmp_path: Path, operator: Operator, behind: Operator | None, name: str
) -> None:
    """No window is committed in which it does, also where it was passed on; in one partition it may."""
    message = rf"operator '{name}' .*belongs to partition .*of records that are not broadcast, or partition: 1"
    with pytest.raises(OperatorError, match=message):
        run(broadcast_app(tmp_path, operator, 2, behind), runtime=InlineRuntime)
    assert not published(tmp_path)
    run(broadcast_app(tmp_path, operator, 1, behind), runtime=InlineRuntime)
    assert {text.split(b"=")[0] for text in published(tmp_path)} == set(WORDS)


def test_state_by_key_needs_more_than_a_broadcast(tmp_path: Path) -> None:
    """Each partition would remember all keys; one partition may."""

    def app_of(count: int) -> LogicalPlan:
        app = keyed_app(tmp_path, Deduplicator(), by_record(count))
        broadcast = replace(edge("lines.records", "keyed.input"), is_broadcast=True)
        return replace(app, edges=(app.edges[0], broadcast, app.edges[2]))

    with pytest.raises(PlanError, match=r"of one key reach several partitions\n.* and records that are not broadcast"):
        run(app_of(2), runtime=InlineRuntime)
    run(app_of(1), runtime=InlineRuntime)
    assert published(tmp_path) == sorted(set(WORDS))
