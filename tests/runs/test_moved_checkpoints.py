"""Checkpoints and trees that are moved between two runs."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from dagflow.engine import publishers, run_setup
from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.engine.window_replay import replay_windows
from dagflow.errors import DagflowError, JournalError, StorageError
from dagflow.journal.frames import decode_all
from dagflow.journal.reader import JournalRetention
from dagflow.plan.load import load_app
from dagflow.plan.logical import LogicalPlan
from dagflow.report.manifest import tracked_files
from dagflow.runtime.local import InlineRuntime
from dagflow.storage.context import StorageContext
from operators.splitter.index import file_index
from tests.engine.test_driver import crashing
from tests.nightly import by_day

APP = """\
name: sample
attributes:
  checkpoint: {journal}
  roots: {{data: {data}, more: {more}, results: {out}}}
operators:
  splitter:
    class: FileSplitterInput
    properties: {{files: [{data}/logs, {more}], block_size: 8, blocks_threshold: 5}}
  reader: {{class: BlockReader, properties: {{max_readers: 2}}}}
  writer: {{class: RecordWriter, properties: {{path: {out}/records}}, partition: parallel}}
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  records: {{from: reader.messages, to: writer.input}}
"""


def app_at(tmp_path: Path, **folders: str) -> LogicalPlan:
    """The app with its journal, input and output in these places below a directory."""
    (tmp_path / "app.yaml").write_text(APP.format(**{name: tmp_path / place for name, place in folders.items()}))
    return load_app(str(tmp_path / "app.yaml"))


BEFORE = {"journal": "z/journal", "data": "z/data", "more": "a/more", "out": "z/out"}
# The order of the two inputs changes with their places.
AFTER = {"journal": "new/journal", "data": "b/data", "more": "y/more", "out": "new/out"}


def fill(tmp_path: Path) -> None:
    """Write the input."""
    for number in range(12):
        for place in ("z/data/logs", "a/more/deep"):
            path = tmp_path / place / f"{number:02d}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{place[0]}{number}\n" * (number + 1))


def move(tmp_path: Path) -> None:
    """Move everything."""
    for name, before in BEFORE.items():
        target = tmp_path / AFTER[name]
        target.parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / before).rename(target)


def records(tmp_path: Path, out: str) -> list[str]:
    """What was published, sorted."""
    return sorted(line for path in (tmp_path / out / "records").glob("part*") for line in path.read_text().split())


@pytest.fixture(params=[0, 500], ids=["index on disk", "index in memory"])
def inline_entries(request: pytest.FixtureRequest) -> object:
    """Where the index keeps its entries."""
    before, file_index.INLINE_ENTRIES = file_index.INLINE_ENTRIES, request.param
    yield
    file_index.INLINE_ENTRIES = before


@pytest.mark.parametrize("after", by_day(1, [2, 4, 1000]))
def test_a_moved_tree_is_continued_without_reading_anything_again(
    tmp_path: Path, after: int, inline_entries: object
) -> None:
    """Input, output and checkpoint lie elsewhere, in the middle of a file even: what was left is done, nothing else."""
    fill(tmp_path)
    expected = sorted(f"{place}{number}" for number in range(12) for place in "za" for _ in range(number + 1))
    if after < 1000:
        with pytest.raises(DagflowError, match="the lights went out"):
            run(app_at(tmp_path, **BEFORE), runtime=crashing(after))
    else:
        run(app_at(tmp_path, **BEFORE), runtime=InlineRuntime)
    move(tmp_path)
    summary = run(app_at(tmp_path, **AFTER), runtime=InlineRuntime)
    assert records(tmp_path, "new/out") == expected
    assert (summary.windows == 0) == (after == 1000)
    assert run(app_at(tmp_path, **AFTER), runtime=InlineRuntime).windows == 0
    files = tracked_files(str(tmp_path / "new/journal"), str(tmp_path / "b/*"), StorageContext.default())
    assert sorted(Path(file.part.url).name for file in files) == [f"{number:02d}" for number in range(12)]
    assert {Path(url).parent for file in files for url in file.outputs} == {tmp_path / "new/out/records"}


def test_what_was_moved_can_be_replayed_and_started_over(tmp_path: Path) -> None:
    """The journal finds the input that it read, and the output that it published."""
    fill(tmp_path)
    run(app_at(tmp_path, **BEFORE), runtime=InlineRuntime)
    before = records(tmp_path, "z/out")
    move(tmp_path)
    windows = replay_windows(app_at(tmp_path, **AFTER), RunOptions(), [1, 2], runtime=InlineRuntime)
    assert {change.change for window in windows for change in window.changes} == {"unchanged"}
    run(app_at(tmp_path, **AFTER), RunOptions(fresh=True), runtime=InlineRuntime)
    assert records(tmp_path, "new/out") == before


def test_no_place_below_a_root_is_in_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records, archives, snapshots and what was replayed name roots; where these were stands in each fence.

    The app's own text, which a fence keeps to show it, is as its author has written it.
    """
    fill(tmp_path)
    monkeypatch.setattr(run_setup, "JournalRetention", partial(JournalRetention, finished_windows=3, records=8))
    run(app_at(tmp_path, **BEFORE), runtime=InlineRuntime)
    replay_windows(app_at(tmp_path, **BEFORE), RunOptions(), [1], runtime=InlineRuntime)
    own = json.dumps((tmp_path / "app.yaml").read_text())[1:-1]
    journal = tmp_path / "z/journal"
    kinds: set[str] = set()
    for path in journal.rglob("*"):
        kind = path.relative_to(journal).parts[0]
        if path.is_file() and kind in ("log", "archive", "snap", "reprocessed"):
            text = json.dumps(list(decode_all(path.read_bytes(), str(path)))).replace(own, "")
            assert f"{tmp_path}/z/data/" not in text, path
            assert f"{tmp_path}/z/out/" not in text, path
            if r"\u0000results/records" in text:
                kinds.add(kind)
    assert kinds == {"log", "archive", "snap", "reprocessed"}, "each of them names the root of the output"


PLAIN = """\
name: sample
attributes: {{checkpoint: {at}/journal, roots: {roots}}}
operators:
  splitter: {{class: FileSplitterInput, properties: {{files: ["{at}/in/logs/*"], block_size: 8, blocks_threshold: 5}}}}
  reader: {{class: BlockReader}}
  writer: {{class: RecordWriter, properties: {{path: {at}/out}}, partition: parallel}}
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  records: {{from: reader.messages, to: writer.input}}
"""


def plain_app(tmp_path: Path, **roots: str) -> LogicalPlan:
    """An app whose roots are in these places below a directory, and nothing else changes."""
    (tmp_path / "in/logs").mkdir(parents=True, exist_ok=True)
    for name in "abc":
        path = tmp_path / "in/logs" / name
        if not path.exists():
            path.write_text(f"{name}1\n{name}2\n{name}3\n")
    located = {name: str(tmp_path / place) for name, place in roots.items()}
    (tmp_path / "app.yaml").write_text(PLAIN.format(at=tmp_path, roots=json.dumps(located)))
    return load_app(str(tmp_path / "app.yaml"))


LINES = sorted(f"{name}{number}" for name in "abc" for number in (1, 2, 3))


def plain_records(tmp_path: Path) -> list[str]:
    """What was published, sorted."""
    return sorted(line for path in (tmp_path / "out").glob("part*") for line in path.read_text().split())


@pytest.mark.parametrize(
    ("before", "after", "was", "now"),
    [
        ({"data": "in"}, {"input": "in"}, "by root 'data' and /logs", "by root 'input' and /logs"),
        ({"data": "in"}, {}, "by root 'data' and /logs", "by their paths"),
        ({"data": "in/logs"}, {"data": "in"}, "by root 'data'", "by root 'data' and /logs"),
        ({}, {"data": "in"}, "by their paths", "by root 'data' and /logs"),
    ],
    ids=["renamed", "dropped", "widened", "named"],
)
def test_roots_do_not_change_over_what_was_read(
    tmp_path: Path, before: dict[str, str], after: dict[str, str], was: str, now: str
) -> None:
    """The index would know none of the files, and all would be published twice: the run is refused each time."""
    with pytest.raises(DagflowError, match="the lights went out"):
        run(plain_app(tmp_path, **before), runtime=crashing(2))
    for _ in range(2):
        with pytest.raises(DagflowError, match=rf"in/logs: .* {was}, and would be looked for {now}: all"):
            run(plain_app(tmp_path, **after), runtime=InlineRuntime)
    run(plain_app(tmp_path, **before, results="out"), runtime=InlineRuntime)
    assert plain_records(tmp_path) == LINES
    with pytest.raises(JournalError, match=f"in/logs: .* {was}, and would be looked for {now}: all"):
        run(plain_app(tmp_path, **after, results="out"), runtime=InlineRuntime)


def test_what_is_decided_in_a_root_waits_until_the_root_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a run nor a fresh one goes on without it, and nothing is lost by having tried."""
    roots = {"data": "in", "results": "out"}

    def dying(storage: object, files: object, durability: str) -> None:
        raise DagflowError("the lights went out")

    with monkeypatch.context() as patch:
        patch.setattr(publishers, "publish_all", dying)
        with pytest.raises(DagflowError, match="the lights went out"):
            run(plain_app(tmp_path, **roots), runtime=InlineRuntime)
    refusal = r"(?s)lies in root 'results' .* no root of that name.*roots: \{results: …\}"
    for options in (RunOptions(), RunOptions(fresh=True)):
        with pytest.raises(StorageError, match=refusal):
            run(plain_app(tmp_path, data="in"), options, runtime=InlineRuntime)
    run(plain_app(tmp_path, **roots), runtime=InlineRuntime)
    assert plain_records(tmp_path) == LINES
    with pytest.raises(StorageError, match=refusal):
        run(plain_app(tmp_path, data="in"), RunOptions(fresh=True), runtime=InlineRuntime)
    assert plain_records(tmp_path) == LINES
    run(plain_app(tmp_path, **roots), RunOptions(fresh=True), runtime=InlineRuntime)
    assert plain_records(tmp_path) == LINES
