"""Results over several windows: each record is in exactly one of them, whatever ends runs in between."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagflow import Operator
from dagflow.engine import held_results, operator_state
from dagflow.engine.held_results import HeldResults, parts_to_merge
from dagflow.engine.live_run import StopRequest
from dagflow.engine.operator_state import SegmentStore
from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.engine.window_replay import replay_windows
from dagflow.errors import DagflowError, JournalError, OperatorError, PlanError
from dagflow.execution.messages import TaskResult
from dagflow.journal.reader import read_state
from dagflow.journal.saved_state import AppFacts, OperatorFacts, SavedPart
from dagflow.journal.windows import WindowPlan
from dagflow.metrics.counters import Counters
from dagflow.plan.load import load_app
from dagflow.plan.logical import LogicalPlan, OperatorNode, unified
from dagflow.report.reading import status
from dagflow.report.snapshot import RunSnapshot
from dagflow.runtime.local import InlineRuntime
from dagflow.storage.context import StorageContext
from operators.aggregate.count_by import CountBy
from operators.aggregate.top_n import TopN
from operators.transform.select import Select
from tests.engine.sample_app import TextSource, edge
from tests.engine.test_operator_state import TEXTS, WORDS, keyed_app, until
from tests.nightly import examples

STORAGE = StorageContext.default()

COUNTING = """\
name: counting
attributes: {checkpoint: ROOT/journal}
operators:
  splitter: {class: FileSplitterInput, properties: {files: [ROOT/in], blocks_threshold: 3}}
  reader: {class: BlockReader, properties: {max_readers: 2}}
  count: {class: CountBy, properties: {by: record, over: run}, partition: parallel}
  writer: {class: RecordWriter, properties: {path: ROOT/out}, partition: parallel}
streams:
  blocks: {from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}
  records: {from: reader.messages, to: count.input}
  counts: {from: count.output, to: writer.input}
"""


def counting(root: Path, over: Any = None, *, by: str = "record", texts: Sequence[bytes] = TEXTS) -> LogicalPlan:
    """Words, two texts a window, counted."""
    return aggregating(root, CountBy(by=by, over=over), texts)


def aggregating(root: Path, operator: Operator, texts: Sequence[bytes] = TEXTS) -> LogicalPlan:
    """Words, two texts a window, aggregated."""
    app = keyed_app(root, operator, "parallel", name="counts")
    source = app.operators["source"].operator
    assert isinstance(source, TextSource)
    source.texts = list(texts)
    return unified(app)


def passing(root: Path) -> LogicalPlan:
    """Words, two texts a window, as they are."""
    app = keyed_app(root, CountBy(by="record"), "parallel", name="counts")
    nodes = {name: node for name, node in app.operators.items() if name != "counts"}
    return replace(app, operators=nodes, edges=(app.edges[0], edge("lines.records", "writer.input")))


def results(root: Path) -> list[Counter[str]]:
    """The counts in each published file."""
    files = sorted(path for path in (root / "out").glob("*") if path.is_file())
    rows = [[json.loads(line) for line in path.read_bytes().splitlines()] for path in files]
    return [Counter({row["record"]: row["count"] for row in file}) for file in rows]


def counted(texts: Sequence[bytes]) -> Counter[str]:
    """What the counts of texts must be."""
    return Counter(b" ".join(texts).decode().split())


@settings(max_examples=examples(25))
@given(
    st.lists(st.lists(st.sampled_from([b"a", b"b", b"cc"]), max_size=4), min_size=1, max_size=24),
    st.lists(st.integers(1, 14), max_size=3),
)
def test_a_run_gives_one_result_however_often_it_fails(texts: list[list[bytes]], ends: list[int]) -> None:
    """A run that goes on after a failure is the same run, also where parts were merged on the way."""
    joined = [b" ".join(words) for words in texts]
    with (
        TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(held_results, "FAN_IN", 2)
        patch.setattr(operator_state, "INLINE_BYTES", 0)
        root = Path(folder)
        for end in sorted(ends):
            try:
                run(counting(root, texts=joined), runtime=until(end))
            except DagflowError as error:
                assert "the lights went out" in str(error)
        run(counting(root, texts=joined), runtime=InlineRuntime)
        assert results(root) == ([counted(joined)] if counted(joined) else [])
        assert status(str(root / "journal"), STORAGE).state == "completed"


def test_a_later_run_counts_what_is_new(tmp_path: Path) -> None:
    """A result is of what no result before it has; a run without anything new has none."""
    for end in (4, 4, 12):
        run(counting(tmp_path, texts=TEXTS[:end]), runtime=InlineRuntime)
    assert results(tmp_path) == [counted(TEXTS[:4]), counted(TEXTS[4:])]


def test_a_window_that_publishes_a_result_leaves_what_is_known_of_files(tmp_path: Path) -> None:
    """What readers have reported of small files is kept beyond it: the next run finds nothing to note."""
    (tmp_path / "in").mkdir()
    for number in range(20):
        (tmp_path / "in" / f"{number:02}").write_bytes(b"a\nb\n")
    (tmp_path / "app.yaml").write_text(COUNTING.replace("ROOT", str(tmp_path)))
    app = load_app(str(tmp_path / "app.yaml"))
    assert run(app, runtime=InlineRuntime).files == 20
    assert run(app, runtime=InlineRuntime).windows == 0


def test_a_result_that_waits_is_shown_by_status(tmp_path: Path) -> None:
    """A checkpoint is not complete while it holds something back."""
    with pytest.raises(DagflowError, match="the lights went out"):
        run(counting(tmp_path), runtime=until(6))  # all windows, and not the one that publishes
    found = status(str(tmp_path / "journal"), STORAGE)
    assert (found.state, found.last_committed, results(tmp_path)) == ("failed", 6, [])


@pytest.mark.parametrize("over", [{"millis": 1}, {"millis": 3_600_000}])
def test_a_result_over_a_time_is_published_at_the_end_at_last(tmp_path: Path, over: dict[str, int]) -> None:
    """Each word is in one result, however many there are."""
    run(counting(tmp_path, over), runtime=InlineRuntime)
    found = results(tmp_path)
    assert sum(found, Counter()) == counted(TEXTS)
    assert over["millis"] == 1 or len(found) == 1


def test_what_one_result_is_of_may_change_between_runs(tmp_path: Path) -> None:
    """What an earlier run holds back is published before anything else."""
    with pytest.raises(DagflowError, match="the lights went out"):
        run(counting(tmp_path), runtime=until(2))
    run(counting(tmp_path, "window"), runtime=InlineRuntime)
    found = results(tmp_path)
    # Windows that the first run had planned are held back as planned.
    assert (sum(found, Counter()), found[-1]) == (counted(TEXTS), counted(TEXTS[10:]))


def test_results_of_results_are_whole(tmp_path: Path) -> None:
    """The most frequent words of a run are chosen among the counts of the run."""
    app = keyed_app(tmp_path, CountBy(by="record"), "parallel", name="counts")
    nodes, edges = dict(app.operators), [*app.edges[:-1]]
    nodes["top"] = OperatorNode("top", TopN(by="count", n=3))
    edges += [edge("counts.output", "top.input"), edge("top.output", "writer.input")]
    run(unified(replace(app, operators=nodes, edges=tuple(edges))), runtime=InlineRuntime)
    (found,) = results(tmp_path)
    best = sorted(counted(TEXTS).items(), key=lambda item: (-item[1], item[0]))[:3]
    assert sorted(found.items()) == sorted(best)


def test_other_properties_do_not_go_on_with_a_held_result(tmp_path: Path) -> None:
    """It would be half of one and half of the other; set back, it is published whole, and may be changed then."""
    with pytest.raises(DagflowError, match="the lights went out"):
        run(aggregating(tmp_path, TopN(by="record", n=3)), runtime=until(3))
    others = [
        (TopN(by="record", n=4), r"counts\.n: 3 -> 4\n.*set them back"),
        (CountBy(by="record"), r"counts\.class: operators\S*TopN -> operators\S*CountBy.*\n.*set them back"),
    ]
    for other, message in others:
        before = read_state(STORAGE.objects(str(tmp_path / "journal")))
        with pytest.raises(JournalError, match=message):
            run(aggregating(tmp_path, other), runtime=InlineRuntime)
        after = read_state(STORAGE.objects(str(tmp_path / "journal")))
        assert (after.last_planned, after.last_committed) == (before.last_planned, before.last_committed)
    run(aggregating(tmp_path, TopN(by="record", n=3)), runtime=InlineRuntime)
    (path,) = (path for path in (tmp_path / "out").glob("*") if path.is_file())
    assert path.read_bytes().split() == sorted(WORDS, reverse=True)[:3]
    run(aggregating(tmp_path, TopN(by="record", n=4)), runtime=InlineRuntime)


def test_a_result_whose_operator_is_gone_is_not_forgotten(tmp_path: Path) -> None:
    """Renamed, without its unifier, replaced or taken out: the run is refused until it is there again."""
    with pytest.raises(DagflowError, match="the lights went out"):
        run(counting(tmp_path), runtime=until(4))
    others = [
        unified(keyed_app(tmp_path, CountBy(by="record"), "parallel", name="other")),
        unified(keyed_app(tmp_path, CountBy(by="record"), 1, name="counts")),
        keyed_app(tmp_path, Select(where="true"), "parallel", name="counts"),
        passing(tmp_path),
    ]
    message = "to be in a result of operator 'counts', and the app has no operator that publishes it"
    for app in [*others, *others]:
        with pytest.raises(JournalError, match=rf"{message}.*\n.*give the app operator 'counts' again, as it was"):
            run(app, runtime=InlineRuntime)
    run(counting(tmp_path), runtime=InlineRuntime)
    assert results(tmp_path) == [counted(TEXTS)]
    run(passing(tmp_path), runtime=InlineRuntime)


class StopsWhenComplete:
    """Ends a run when its results are those of all texts, and keeps its notices."""

    def __init__(self, root: Path) -> None:
        self.stop = StopRequest()
        self.notices: list[str] = []
        self._root = root

    def progress(self, snapshot: RunSnapshot) -> None:
        """Ask for the end."""
        if sum(results(self._root), Counter()) == counted(TEXTS):
            self.stop.request()

    def notice(self, text: str) -> None:
        """Keep it."""
        self.notices.append(text)


def test_while_following_a_result_is_of_a_window(tmp_path: Path) -> None:
    """A run that follows has no end, and says what it does instead; one that must have an end does not begin."""
    watch = StopsWhenComplete(tmp_path)
    run(counting(tmp_path), RunOptions(follow=True), watch, watch.stop, InlineRuntime)
    assert results(tmp_path) == [counted(TEXTS[n : n + 2]) for n in range(0, 12, 2)]
    assert any("'counts' gives a result for each window while following" in text for text in watch.notices)
    with pytest.raises(PlanError, match=r"follows has none; say over: window, or over: \{millis: 60000\}"):
        run(counting(tmp_path, "run"), RunOptions(follow=True), runtime=InlineRuntime)


def test_while_following_a_time_ends_without_new_input(tmp_path: Path) -> None:
    """The last result comes when its time is over, though nothing arrives any more."""
    watch = StopsWhenComplete(tmp_path)
    run(counting(tmp_path, {"millis": 100}), RunOptions(follow=True), watch, watch.stop, InlineRuntime)
    assert sum(results(tmp_path), Counter()) == counted(TEXTS)


def test_a_time_begins_with_the_first_window_that_it_holds(tmp_path: Path) -> None:
    """Nothing is due before, and nothing when nothing is held."""
    now = [5000]
    operators = {"counts": CountBy(by="k", over={"millis": 100})}
    store = SegmentStore(STORAGE.objects(str(tmp_path)), 1)
    facts = AppFacts({"counts": OperatorFacts("CountBy")})
    held = HeldResults(operators, facts, store, follows=True, clock=lambda: now[0])
    assert held.due() == held.due(is_end=True) == []
    for window, at in ((1, 5000), (2, 5060)):
        now[0] = at
        held.for_window(WindowPlan(window, holds=held.holds))
        held.after(window, [TaskResult(0, 0, Counters(), (), (), {}, {}, 0.0, parts={"counts": b"part"})])
    now[0] = 5099
    assert (held.due(), held.due(is_end=True)) == ([], ["counts"])
    now[0] = 5100
    assert held.due() == ["counts"]
    assert held.for_window(WindowPlan(3, closes=["counts"])) == {"counts": [b"part", b"part"]}
    assert held.after(3, []) == {}
    assert held.due(is_end=True) == []


@given(st.lists(st.integers(1, 1 << 24), max_size=200))
def test_few_parts_stay_however_many_windows_leave_one(sizes: list[int]) -> None:
    """Parts of about one size are merged, so that their number grows with the logarithm of what they hold."""
    parts: list[SavedPart] = []
    for window, size in enumerate(sizes):
        merged = parts_to_merge(parts)
        assert max((part.size_bytes for part in merged), default=0) <= 16 * max(
            4096, min((part.size_bytes for part in merged), default=0)
        )
        parts = [part for part in parts if part not in merged]
        parts.append(SavedPart(window, size + sum(part.size_bytes for part in merged)))
    assert len(parts) <= held_results.FAN_IN * 9


def test_parts_go_when_they_are_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the journal nor its segments keep what no result needs."""
    monkeypatch.setattr(operator_state, "INLINE_BYTES", 0)
    run(counting(tmp_path), runtime=InlineRuntime)
    run(counting(tmp_path), runtime=InlineRuntime)
    assert read_state(STORAGE.objects(str(tmp_path / "journal"))).committed_state.held_results == {}
    assert list((tmp_path / "journal" / "segments").iterdir()) == []


@pytest.mark.parametrize("window", [2, 7])
def test_a_part_of_a_result_is_not_processed_again_alone(tmp_path: Path, window: int) -> None:
    """Neither a window that added to it nor the one that published it; starting over makes it anew."""
    run(counting(tmp_path), runtime=InlineRuntime)
    with pytest.raises(JournalError, match="part of a result of operator 'counts' over several windows") as caught:
        replay_windows(counting(tmp_path, "window"), RunOptions(), [window], runtime=InlineRuntime)
    assert "start over with --fresh" in caught.value.hint
    run(counting(tmp_path), RunOptions(fresh=True), runtime=InlineRuntime)
    assert results(tmp_path) == [counted(TEXTS)]


@pytest.mark.parametrize("over", [None, "run", {"millis": 60_000}])
def test_a_new_result_over_windows_is_not_made_of_single_ones(tmp_path: Path, over: Any) -> None:
    """A replay would give one for each window, and gives it where the app says that it is to."""
    run(passing(tmp_path), runtime=InlineRuntime)
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    with pytest.raises(JournalError, match=r"'counts' gives results over several .*\n.*say over: window"):
        replay_windows(counting(tmp_path, over), RunOptions(), [2, 3], runtime=InlineRuntime)
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before
    replay_windows(counting(tmp_path, "window"), RunOptions(), range(1, 7), runtime=InlineRuntime)
    assert results(tmp_path) == [counted(TEXTS[n : n + 2]) for n in range(0, 12, 2)]


def test_starting_over_forgets_what_was_held_back(tmp_path: Path) -> None:
    """No record of the run before is in the new result."""
    with pytest.raises(DagflowError, match="the lights went out"):
        run(counting(tmp_path), runtime=until(6))
    run(counting(tmp_path), RunOptions(fresh=True), runtime=InlineRuntime)
    assert results(tmp_path) == [counted(TEXTS)]


TWO_RESULTS = """\
name: two
attributes: {checkpoint: journal}
operators:
  splitter: {class: FileSplitterInput, properties: {files: [in], blocks_threshold: 1, batch_bytes: 0}}
  reader: {class: BlockReader}
  often: {class: CountBy, properties: {by: record, over: {millis: 1}}, partition: parallel}
  once: {class: CountBy, properties: {by: record, over: run}, partition: parallel}
  often_out: {class: RecordWriter, properties: {path: often, format: json_lines}, partition: parallel}
  once_out: {class: RecordWriter, properties: {path: once, format: json_lines}, partition: parallel}
streams:
  blocks: {from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}
  words: {from: reader.messages, to: [often.input, once.input]}
  some: {from: often.output, to: often_out.input}
  all: {from: once.output, to: once_out.input}
"""


def test_a_result_that_is_published_leaves_the_parts_of_others_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where they are enough to be merged: the stage that would merge them does not run in such a window."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "app.yaml").write_text(TWO_RESULTS)
    (tmp_path / "in").mkdir()
    for number in range(3 * held_results.FAN_IN):
        (tmp_path / "in" / f"{number:02}").write_text("a\nb\n")
    run(load_app("app.yaml"), runtime=InlineRuntime)
    for place in ("often", "once"):
        counts: Counter[str] = Counter()
        for path in (tmp_path / place).glob("part-*"):
            for line in path.read_text().splitlines():
                counts[json.loads(line)["record"]] += json.loads(line)["count"]
        assert counts == {"a": 3 * held_results.FAN_IN, "b": 3 * held_results.FAN_IN}


def test_what_a_splitter_knows_survives_the_window_that_publishes(tmp_path: Path) -> None:
    """The window in which a result is published has no state of its own: the next run finds nothing new."""
    (tmp_path / "in").mkdir()
    for name in "abc":
        (tmp_path / "in" / name).write_text("x\ny\n")
    (tmp_path / "app.yaml").write_text(f"""\
name: counts
attributes: {{checkpoint: {tmp_path}/journal}}
operators:
  splitter: {{class: FileSplitterInput, properties: {{files: {tmp_path}/in, blocks_threshold: 2}}}}
  reader: {{class: BlockReader}}
  count: {{class: CountBy, properties: {{by: record, over: run}}, partition: parallel}}
  out: {{class: RecordWriter, properties: {{path: {tmp_path}/out}}, partition: parallel}}
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  lines: {{from: reader.messages, to: count.input}}
  counts: {{from: count.output, to: out.input}}
""")
    assert run(load_app(tmp_path / "app.yaml"), runtime=InlineRuntime).windows == 3
    assert run(load_app(tmp_path / "app.yaml"), runtime=InlineRuntime).windows == 0


def test_a_key_of_two_types_has_one_after_a_cast(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The window that puts the groups together says which column, and what to do; all records are counted then."""
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()
    for name, line in {"a": '{"k": "x"}', "b": '{"k": 1}'}.items():
        Path("in", name).write_text(f"{line}\n{line}\n")
    counting_by = COUNTING.replace("ROOT/", "").replace(
        "blocks_threshold: 3", "max_files_per_window: 1, batch_bytes: 0"
    )
    counting_by = counting_by.replace("max_readers: 2", "format: {type: json_lines, columns: as_found}")
    counting_by = counting_by.replace(
        "CountBy, properties: {by: record", "Aggregate, properties: {by: BY, columns: {n: count(*)}"
    )
    Path("app.yaml").write_text(counting_by.replace("BY", "k"))
    with pytest.raises(
        OperatorError, match=r"Field k has .* give the column one type, .*, and start over with --fresh"
    ):
        run(load_app("app.yaml"), runtime=InlineRuntime)
    Path("app.yaml").write_text(counting_by.replace("BY", "{k: cast(k as text)}"))
    run(load_app("app.yaml"), RunOptions(fresh=True), runtime=InlineRuntime)
    (path,) = Path("out").glob("part-*")
    assert [json.loads(line) for line in path.read_text().splitlines()] == [{"k": "1", "n": 2}, {"k": "x", "n": 2}]
