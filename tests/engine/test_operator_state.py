"""State between windows: with real journals, through changes of the number of partitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagflow import Operator
from dagflow.api.keyed_state import Rescalable
from dagflow.api.partitioning import ByName
from dagflow.engine import operator_state as segment_store
from dagflow.engine import operator_state as states
from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions, RuntimeFactory
from dagflow.errors import DagflowError, JournalError, OperatorError, PlanError
from dagflow.execution.messages import WindowJob
from dagflow.journal.frames import encode, to_json
from dagflow.journal.log import load
from dagflow.journal.reader import read_state
from dagflow.journal.saved_state import SavedState
from dagflow.plan.logical import LogicalPlan, OperatorNode
from dagflow.plan.placement import PlacedApp
from dagflow.runtime.local import InlineRuntime
from dagflow.spec.app_spec import Attributes, KeyedPartition, Partition
from dagflow.storage.context import StorageContext
from operators.sink.record_writer import RecordWriter
from operators.stateful import Deduplicator, KeyCounter
from tests.engine.sample_app import TextSource, app_of, edge, published
from tests.execution.sample_operators import SampleWords, Total
from tests.nightly import examples

STORAGE = StorageContext.default()

WORDS = [b"%d" % (n * n % 23) for n in range(60)]
TEXTS = [b" ".join(WORDS[n : n + 5]) for n in range(0, 60, 5)]


def keyed_app(
    root: Path, operator: Operator, partition: Partition, *, readers: int = 2, name: str = "keyed"
) -> LogicalPlan:
    """Words, two texts a window, through an operator with partitions of its own into files."""
    nodes = [
        OperatorNode("source", TextSource(texts=TEXTS)),
        OperatorNode("lines", SampleWords(), readers),
        OperatorNode(name, operator, partition),
        OperatorNode("writer", RecordWriter(path=str(root / "out")), "parallel"),
    ]
    edges = (
        edge("source.out", "lines.samples"),
        edge("lines.records", f"{name}.input"),
        edge(f"{name}.output", "writer.input"),
    )
    return LogicalPlan("app", Attributes(checkpoint=str(root / "journal")), {n.name: n for n in nodes}, edges)


def by_record(count: int) -> KeyedPartition:
    """All records that are equal in one of so many partitions."""
    return KeyedPartition(ByName("record"), count)


def until(last: int) -> RuntimeFactory:
    """A runtime that fails behind a window."""

    def before(window: WindowJob) -> None:
        if window.window_id > last:
            raise DagflowError("the lights went out")

    return lambda program: InlineRuntime(program, before=before)


def counted_app(root: Path, operator: Operator, count: int) -> LogicalPlan:
    """Words, by themselves in so many partitions."""
    return keyed_app(root, operator, by_record(count))


def run_through(
    root: Path,
    operator: Callable[[], Operator],
    counts: list[int],
    make: Callable[[Path, Operator, int], LogicalPlan] = counted_app,
) -> None:
    """Run the app to its end, with another number of partitions after every second window."""
    for number, count in enumerate(counts, start=1):
        app = make(root, operator(), count)
        if number == len(counts):
            run(app, runtime=InlineRuntime)
            return
        with pytest.raises(DagflowError, match="the lights went out"):
            run(app, runtime=until(2 * number - 1))


COUNTS = st.lists(st.integers(1, 5), min_size=1, max_size=4)


@settings(max_examples=examples(20))
@given(COUNTS)
def test_no_key_passes_twice_whatever_the_number_of_partitions(counts: list[int]) -> None:
    """What was seen is remembered where the key's records arrive next."""
    with TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        run_through(Path(folder), Deduplicator, counts)
        assert published(Path(folder)) == sorted(set(WORDS))


@settings(max_examples=examples(20))
@given(COUNTS)
def test_counts_go_on_whatever_the_number_of_partitions(counts: list[int]) -> None:
    """Each count of each key is emitted at most once, the last is right, and no count is emitted that never was."""
    with TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        run_through(Path(folder), _counter, counts)
        emitted = Counter(published(Path(folder)))
        assert set(emitted.values()) == {1}
        pairs = [tuple(map(int, text.split(b"="))) for text in emitted]
        newest = {key: max(count for other, count in pairs if other == key) for key, _ in pairs}
        assert newest == Counter(map(int, WORDS))


def _counter() -> KeyCounter:
    return KeyCounter(separator="=")


def test_state_in_segments_is_read_back_and_cleared_away(tmp_path: Path) -> None:
    """With every segment an object of its own: a restart finds them, and of dagflow's those that nothing names go."""
    inline, segment_store.INLINE_BYTES = segment_store.INLINE_BYTES, 0
    try:
        with pytest.raises(DagflowError, match="the lights went out"):
            run(keyed_app(tmp_path, Deduplicator(), by_record(3)), runtime=until(3))
        segments = tmp_path / "journal" / "segments"
        (segments / "00000001-9-keyed-0-stale").write_bytes(b"left by a death")
        strangers = [segments / name for name in (".nfs01", "notes")]
        for path in strangers:
            path.write_bytes(b"left by another program")
        run(keyed_app(tmp_path, Deduplicator(), by_record(2)), runtime=InlineRuntime)
        assert published(tmp_path) == sorted(set(WORDS))
        assert run(keyed_app(tmp_path, Deduplicator(), by_record(2)), runtime=InlineRuntime).windows == 0
        assert all(path.exists() for path in strangers)
        # Two partitions, each with a few segments.
        assert 2 <= len(set(segments.iterdir()) - {*strangers}) <= 8
    finally:
        segment_store.INLINE_BYTES = inline


def test_segments_that_nothing_names_go_while_a_run_goes_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A run that follows its input has no next one that would clear them away."""
    monkeypatch.setattr(segment_store, "INLINE_BYTES", 0)
    app = keyed_app(tmp_path, Deduplicator(), by_record(2))
    source = app.operators["source"].operator
    assert isinstance(source, TextSource)
    source.texts = [b"%d %d" % (number, number + 1) for number in range(60)]
    last_named: dict[str, int] = {}
    ages: list[int] = []

    def look(window: WindowJob) -> None:
        journal = tmp_path / "journal"
        named = str(to_json(load(STORAGE.objects(str(journal))).state.committed_state))
        present = {path.name for path in (journal / "segments").glob("*")}
        last_named.update({name: window.window_id for name in present if name in named})
        ages.extend(window.window_id - last_named[name] for name in present & last_named.keys())

    run(app, runtime=lambda program: InlineRuntime(program, before=look))
    assert max(last_named.values()) > 3 * segment_store.KEPT_WINDOWS
    assert 0 < max(ages) <= segment_store.KEPT_WINDOWS + 2


def test_segments_of_an_operator_in_a_module_lie_beside_all_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None leaves a directory of its own behind, however long its name, and a restart finds them."""
    monkeypatch.setattr(segment_store, "INLINE_BYTES", 0)
    module = "m" * 200
    for last in (3, 1000):
        app = keyed_app(tmp_path, Deduplicator(), by_record(3), name=f"{module}/{module}/keyed")
        if last < 1000:
            with pytest.raises(DagflowError, match="the lights went out"):
                run(app, runtime=until(last))
        else:
            run(app, runtime=InlineRuntime)
    assert published(tmp_path) == sorted(set(WORDS))
    segments = list((tmp_path / "journal" / "segments").iterdir())
    assert segments
    assert all(path.is_file() and path.name.count("mmm.keyed-") == 1 for path in segments)


def test_a_window_commits_what_it_changed_and_names_the_rest(tmp_path: Path) -> None:
    """However much is remembered, an intent stays small, and each segment is written once."""
    app = keyed_app(tmp_path, Deduplicator(), by_record(1))
    source = app.operators["source"].operator
    assert isinstance(source, TextSource)
    source.texts = [b" ".join(b"%06d" % n for n in range(m, m + 500)) for m in range(0, 20_000, 500)]
    run(app, runtime=InlineRuntime)
    assert len(published(tmp_path)) == 20_000
    journal = tmp_path / "journal"
    assert sum(path.stat().st_size for path in (journal / "segments").iterdir()) > 150_000
    assert len(encode(to_json(load(STORAGE.objects(str(journal))).state.committed_state))) < 5_000


def test_state_that_is_gone_is_not_taken_for_no_state(tmp_path: Path) -> None:
    """A segment that was removed ends the run before anything happens."""
    inline, segment_store.INLINE_BYTES = segment_store.INLINE_BYTES, 0
    try:
        with pytest.raises(DagflowError, match="the lights went out"):
            run(keyed_app(tmp_path, Deduplicator(), by_record(1)), runtime=until(3))
        for path in (tmp_path / "journal" / "segments").iterdir():
            path.unlink()
        with pytest.raises(JournalError, match="the state of an operator is gone"):
            run(keyed_app(tmp_path, Deduplicator(), by_record(1)), runtime=InlineRuntime)
    finally:
        segment_store.INLINE_BYTES = inline


def test_state_that_cannot_move_is_not_misplaced(tmp_path: Path) -> None:
    """Another number of partitions is refused, with what to do; the old one goes on."""
    with pytest.raises(DagflowError, match="the lights went out"):
        run(keyed_app(tmp_path, Total(), 2), runtime=until(3))
    with pytest.raises(DagflowError, match="operator 'keyed' keeps state for 2 partitions and cannot be given 3"):
        run(keyed_app(tmp_path, Total(), 3), runtime=InlineRuntime)
    run(keyed_app(tmp_path, Total(), None), runtime=lambda program: InlineRuntime(program, parallelism=7))
    totals = [int(total) for total in published(tmp_path)]
    assert sum(sorted(totals)[-2:]) == len(WORDS)


class GathersState(Total, Rescalable):
    """Keeps all of its state in the first partition, unless it has a mistake."""

    mistake: str = ""

    def merge_states(self, states: Sequence[Any]) -> Any:
        """The sum."""
        if self.mistake == "merge":
            raise KeyError("boo")
        return sum(state or 0 for state in states)

    def split_state(self, state: Any, partitions: int) -> Any:
        """The first partition has all of the state."""
        if self.mistake == "split":
            raise ValueError("boo")
        shares = {"none": None, "few": [state], "many": [*[None] * partitions, state]}
        return shares.get(self.mistake, [state, *[None] * (partitions - 1)])


NOT_MOVED = {
    "merge": r"operator 'keyed': merge_states\(\) raised KeyError\('boo'\)",
    "split": r"operator 'keyed': split_state\(\) raised ValueError\(boo\)\n    at .*test_operator_state.py",
    "none": r"operator 'keyed': split_state\(\) returned NoneType, and not a state or None for each partition",
    "few": r"operator 'keyed': split_state\(\) returned 1 states for 3 partitions",
    "many": r"operator 'keyed': split_state\(\) returned 4 states for 3 partitions",
}


@pytest.mark.parametrize("mistake", NOT_MOVED)
def test_an_operator_that_fails_to_move_its_state_is_named(tmp_path: Path, mistake: str) -> None:
    """Nothing of the state is dropped, and the run goes on when the operator is mended."""
    with pytest.raises(DagflowError, match="the lights went out"):
        run(keyed_app(tmp_path, GathersState(), by_record(2)), runtime=until(1))
    with pytest.raises(OperatorError, match=NOT_MOVED[mistake]):
        run(keyed_app(tmp_path, GathersState(mistake=mistake), by_record(3)), runtime=InlineRuntime)
    run(keyed_app(tmp_path, GathersState(), by_record(3)), runtime=InlineRuntime)
    last = [path.read_bytes() for path in (tmp_path / "out").glob("part-00000006-*")]
    assert sum(map(int, b"".join(last).split())) == len(b" ".join(TEXTS).split())


def test_state_that_cannot_move_stays_in_its_first_partitions(tmp_path: Path) -> None:
    """Also where no policy decides their number, and the run that planned them committed no window."""
    with pytest.raises(DagflowError, match="the lights went out"):
        run(keyed_app(tmp_path, Total(), None), RunOptions(master="local[2]"), runtime=until(0))
    run(keyed_app(tmp_path, Total(), None), RunOptions(master="local[3]"), runtime=InlineRuntime)
    totals = [int(total) for total in published(tmp_path)]
    assert sum(sorted(totals)[-2:]) == len(WORDS)


def test_a_count_that_left_no_state_may_change(tmp_path: Path) -> None:
    """Windows that were planned with it, and not committed, are planned with the new one; then that is kept."""
    with pytest.raises(DagflowError, match="the lights went out"):
        run(keyed_app(tmp_path, Total(), 2), runtime=until(0))
    with pytest.raises(DagflowError, match="the lights went out"):
        run(keyed_app(tmp_path, Total(), 3), runtime=until(1))
    for _ in range(2):
        with pytest.raises(DagflowError, match="'keyed' keeps state for 3 partitions and cannot be given 2"):
            run(keyed_app(tmp_path, Total(), 2), runtime=InlineRuntime)
    assert run(keyed_app(tmp_path, Total(), 3), runtime=InlineRuntime).state == "completed"


@pytest.mark.parametrize("partition", [2, "parallel", None])
def test_state_by_key_needs_the_records_of_a_key_in_one_partition(tmp_path: Path, partition: Partition) -> None:
    """Anything else would silently let duplicates pass."""
    refusal = "'keyed' keeps state by key, and records of one key reach several partitions"
    with pytest.raises(PlanError, match=refusal) as caught:
        run(keyed_app(tmp_path, Deduplicator(), partition), runtime=InlineRuntime)
    assert (caught.value.hint or "").startswith("give operator 'keyed' partition: {by: …}, with the key")


def test_one_partition_holds_all_keys(tmp_path: Path) -> None:
    """So it needs no exchange by key."""
    run(keyed_app(tmp_path, Deduplicator(), 1), runtime=InlineRuntime)
    assert published(tmp_path) == sorted(set(WORDS))


def test_an_operator_does_not_begin_without_its_state_under_a_new_name(tmp_path: Path) -> None:
    """Partitioned or in the driver, a new name is refused with the old one; the old one goes on where it was."""
    with pytest.raises(DagflowError, match="the lights went out"):
        run(keyed_app(tmp_path, Deduplicator(), by_record(2)), runtime=until(3))
    refusal = "operator '{}' is new and would begin from nothing, and operator '{}', which has left state, is no longer"
    with pytest.raises(JournalError, match=refusal.format("m/keyed", "keyed")):
        run(keyed_app(tmp_path, Deduplicator(), by_record(2), name="m/keyed"), runtime=InlineRuntime)
    app = keyed_app(tmp_path, Deduplicator(), by_record(2))
    operators = {name.replace("source", "origin"): node for name, node in app.operators.items()}
    edges = (edge("origin.out", "lines.samples"), *app.edges[1:])
    with pytest.raises(JournalError, match=refusal.format("origin", "source")):
        run(replace(app, operators=operators, edges=edges), runtime=InlineRuntime)
    run(app, runtime=InlineRuntime)
    assert published(tmp_path) == sorted(set(WORDS))


@pytest.mark.parametrize("kind", [Deduplicator, KeyCounter])
def test_state_of_another_key_is_refused_until_the_key_is_set_back(tmp_path: Path, kind: type[Operator]) -> None:
    """What was seen of one column says nothing about another; limits and forms may change."""
    with pytest.raises(DagflowError, match="the lights went out"):
        run(keyed_app(tmp_path, kind(), by_record(2)), runtime=until(3))
    before = read_state(STORAGE.objects(str(tmp_path / "journal")))
    with pytest.raises(JournalError, match=r"other keys: keyed\.key: record -> user\n.*set it back; or start over"):
        run(keyed_app(tmp_path, kind(key="user"), KeyedPartition(ByName("user"), 2)), runtime=InlineRuntime)
    after = read_state(STORAGE.objects(str(tmp_path / "journal")))
    assert (after.last_planned, after.last_committed) == (before.last_planned, before.last_committed)
    other = Deduplicator(max_keys=10_000, horizon_windows=100) if kind is Deduplicator else KeyCounter(separator=":")
    run(keyed_app(tmp_path, other, by_record(3)), runtime=InlineRuntime)
    texts = [text.partition(b":")[0].partition(b"\t")[0] for text in published(tmp_path)]
    assert set(texts) == set(WORDS)


def test_state_that_does_not_say_its_keys_is_taken(tmp_path: Path) -> None:
    """An operator has left it that is no KeyedOperator: what its keys were, nothing says."""
    with pytest.raises(DagflowError, match="the lights went out"):
        run(keyed_app(tmp_path, Deduplicator(), by_record(2)), runtime=until(3))
    state = read_state(STORAGE.objects(str(tmp_path / "journal")))
    kept = state.committed_state.partitions["keyed"]
    assert [each.keyed_by for each in kept if each is not None] == [{"key": "record"}] * 2
    app = keyed_app(tmp_path, Deduplicator(key="user"), by_record(2))
    placed = PlacedApp.of(app, STORAGE)
    unsaid = [each and replace(each, keyed_by=None) for each in kept]
    store = segment_store.SegmentStore(STORAGE.objects(str(tmp_path / "journal")), 9)
    found = states.OperatorStates(placed.plan, placed.operators, store)
    found.restore({"keyed": unsaid}, ["keyed"])
    with pytest.raises(JournalError, match="now has other keys"):
        found.restore({"keyed": kept}, ["keyed"])


def test_an_operator_with_state_may_be_taken_out(tmp_path: Path) -> None:
    """Where none begins, none can be the one that is gone."""
    texts = [b"a b", b"a", b"c"]
    assert run(app_of(tmp_path, texts[:2], middle=Total()), runtime=InlineRuntime).windows == 1
    assert run(app_of(tmp_path, texts), runtime=InlineRuntime).windows == 1


def test_state_that_says_nothing_is_not_missed() -> None:
    """An empty collection is what an operator begins with anyway, ."""

    def saved(state: object) -> SavedState:
        return SavedState(data=state)

    nothing = {"gone": SavedState(data={"files": []}), "past": SavedState(segments=[])}
    last_run = ["gone", "past", "new"]
    states.require_owners(nothing, ["new", "other"], ["other"], last_run)
    states.require_owners(
        {"gone": saved([]), "past": saved({}), "new": saved(1)}, ["new", "other"], ["other"], last_run
    )
    with pytest.raises(JournalError, match=r"operator 'other' is new .* operator 'past'"):
        states.require_owners({"gone": saved([]), "past": saved(0)}, ["new", "other"], ["other"], last_run)
    states.require_owners({"gone": saved([]), "past": saved(0)}, ["new", "other"], ["other"], ["gone", "new"])
