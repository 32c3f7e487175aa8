"""Groups over a run count each record once, whatever dies, and however many partitions there are."""

from __future__ import annotations

import contextlib
import csv
import shutil
from collections import Counter
from pathlib import Path

import pytest

from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.engine.window_replay import replay_windows
from dagflow.errors import JournalError
from dagflow.plan.load import load_app
from dagflow.plan.logical import LogicalPlan
from dagflow.runtime.local import InlineRuntime
from dagflow.testing.faults import InjectedCrash, crashing_disk

pytestmark = pytest.mark.crash

APP = """
name: sums
attributes: {{checkpoint: "{root}/journal"}}
operators:
  splitter: {{class: FileSplitterInput, properties: {{files: "{root}/in", block_size: 16, blocks_threshold: 2}}}}
  reader:
    class: BlockReader
    properties: {{min_readers: {readers}, max_readers: {readers}, format: {{type: csv, columns: {{n: int64}}}}}}
  sums:
    class: Sql
    properties: {{query: "select k, count(*) as records, sum(n) as total from input where n > 0 group by k"}}
    partition: parallel
  writer: {{class: RecordWriter, properties: {{path: "{root}/out", format: csv}}, partition: parallel}}
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  read: {{from: reader.messages, to: sums.input}}
  summed: {{from: sums.output, to: writer.input}}
"""


def app(root: Path, readers: int) -> LogicalPlan:
    """The app, with a number of partitions."""
    (root / "app.yaml").write_text(APP.format(root=root, readers=readers))
    return load_app(root / "app.yaml")


def add_input(root: Path, number: int) -> None:
    """A file of several blocks, with a total of 10 of each key."""
    (root / "in").mkdir(parents=True, exist_ok=True)
    rows = "".join(f"{key},{n}\n" for n in (0, 1, 2, 3, 4) for key in "ab")
    (root / "in" / f"{number}.csv").write_text(f"k,n\n{rows}")


def totals(root: Path) -> Counter[tuple[str, str]]:
    """What all published results add up to."""
    found: Counter[tuple[str, str]] = Counter()
    for path in (root / "out").glob("*"):
        for row in csv.DictReader(path.read_text().splitlines()):
            found[row["k"], "records"] += int(row["records"])
            found[row["k"], "total"] += int(row["total"])
    return found


@pytest.mark.nightly
def test_a_crash_and_another_number_of_partitions_count_nothing_twice(tmp_path: Path) -> None:
    """What several runs publish adds up to what was read, where one dies at any change of the disk."""
    for at in range(1, 500, 3):
        root = tmp_path / str(at)
        add_input(root, 1)
        with crashing_disk(str(root), at) as faults, contextlib.suppress(InjectedCrash):
            run(app(root, 1), runtime=InlineRuntime)
        add_input(root, 2)
        run(app(root, 3), runtime=InlineRuntime)
        assert totals(root) == {(key, what): 2 * each for key in "ab" for what, each in (("records", 4), ("total", 10))}
        shutil.rmtree(root)
        if not faults.has_struck:
            return
    pytest.fail("the run never came through")


def test_a_window_of_a_sum_is_not_processed_again_alone(tmp_path: Path) -> None:
    """The sum holds its records already: the error says how the result is made anew, and nothing is changed."""
    add_input(tmp_path, 1)
    run(app(tmp_path, 2), runtime=InlineRuntime)
    before = totals(tmp_path)
    with pytest.raises(JournalError, match="gives results over several windows") as caught:
        replay_windows(app(tmp_path, 2), RunOptions(), [1], runtime=InlineRuntime)
    assert "--fresh" in str(caught.value.hint)
    assert totals(tmp_path) == before
    add_input(tmp_path, 2)
    run(app(tmp_path, 2), RunOptions(fresh=True), runtime=InlineRuntime)
    assert totals(tmp_path) == {key: 2 * value for key, value in before.items()}
