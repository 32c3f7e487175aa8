"""Check with unique(…): the first record of each value passes, whatever the windows, partitions and crashes."""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from dagflow.engine.run import run
from dagflow.errors import DagflowError, JournalError, RecordError
from dagflow.plan.load import load_app
from dagflow.plan.logical import LogicalPlan
from dagflow.report.reading import status
from dagflow.runtime.local import InlineRuntime
from dagflow.storage.context import StorageContext
from dagflow.testing.faults import InjectedCrash, crashing_disk
from dagflow.testing.operators import OperatorHarness
from operators.transform.check import Check, UniqueCheck, UniqueColumn
from tests.nightly import by_day, every

APP = """\
name: orders
attributes: {{checkpoint: {root}/journal}}
operators:
  splitter: {{class: FileSplitterInput, properties: {{files: {source}, block_size: 100, blocks_threshold: 2}}}}
  reader: {{class: BlockReader, properties: {{format: {format}, max_readers: 3}}}}
  check:
    class: Check
    properties: {{expect: [{expect}]{properties}}}
    partition: {partition}
  writer: {{class: RecordWriter, properties: {{path: {root}/out, format: json_lines}}, partition: parallel}}
  refused: {{class: RecordWriter, properties: {{path: {root}/refused}}, partition: parallel}}
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  rows: {{from: reader.messages, to: check.input}}
  kept: {{from: check.output, to: writer.input}}
  rejects: {{from: check.errors, to: refused.input}}
"""
FORMAT = "{type: csv, columns: {id: int64, qty: int32}}"
Row = tuple[int | None, int]


def app(
    root: Path, partition: str = "parallel", properties: str = "", expect: str = "qty > 0, unique(id)"
) -> LogicalPlan:
    """Write the app, and load it."""
    root.mkdir(exist_ok=True)
    text = APP.format(
        root=root,
        source=root.parent / "in",
        format=FORMAT,
        partition=partition,
        properties=properties,
        expect=expect,
    )
    (root / "app.yaml").write_text(text)
    return load_app(root / "app.yaml")


@pytest.fixture
def rows(tmp_path: Path) -> list[Row]:
    """What the input holds, in the order of its files: some values twice, some null, some that fail the condition."""
    dice = random.Random(5)
    made: list[Row] = [(dice.choice([None, *range(90)]), dice.randint(0, 5)) for _ in range(240)]
    (tmp_path / "in").mkdir()
    for number in range(3):
        with (tmp_path / "in" / f"{number}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([("id", "qty"), *made[number * 80 : number * 80 + 80]])
    return made


def firsts(rows: Iterable[Row]) -> list[Row]:
    """The rows that are as expected."""
    seen: set[int] = set()
    kept: list[Row] = []
    for id, qty in rows:
        if qty > 0 and id not in seen:
            kept.append((id, qty))
            seen |= set() if id is None else {id}
    return kept


def objects(folder: Path) -> list[dict[str, Any]]:
    """What an app has published as JSON."""
    return [json.loads(line) for path in sorted(folder.glob("[!.]*")) for line in path.read_bytes().splitlines()]


def published(root: Path) -> list[Row]:
    """The records that the app has let through."""
    return [(row["id"], row["qty"]) for row in objects(root / "out")]


@pytest.mark.parametrize("partition", by_day(2, ["parallel", "1", "3", "{by: qty}"]))
def test_the_first_record_of_each_value_passes(tmp_path: Path, rows: list[Row], partition: str) -> None:
    """Over all windows; each other one is refused once, with its place and the window of the first."""
    root = tmp_path / "run"
    assert run(app(root, partition), runtime=InlineRuntime).windows > 3
    found = published(root)
    assert sorted((row[0] for row in found), key=str) == sorted((row[0] for row in firsts(rows)), key=str)
    refused = objects(root / "refused")
    assert len(found) + len(refused) == len(rows)
    repeated = [each for each in refused if "unique" in each["reason"]]
    assert repeated[-1]["reason"].startswith("expected unique(id): an earlier record, of window ")
    assert Path(repeated[-1]["url"]).read_bytes()[repeated[-1]["offset"] :][:1].isdigit()


@every(160)
def test_a_crash_at_any_disk_change_lets_no_value_pass_twice(tmp_path: Path, rows: list[Row], step: int) -> None:
    """Nor does one that is continued with other partitions."""
    expected = sorted((row[0] for row in firsts(rows)), key=str)
    for at in range(1, 2000, step):
        root = tmp_path / str(at)
        try:
            with crashing_disk(str(root), at) as faults:
                run(app(root), runtime=InlineRuntime)
        except InjectedCrash:
            pass
        run(app(root, "2"), runtime=InlineRuntime)
        assert sorted((row[0] for row in published(root)), key=str) == expected, f"died at {at}"
        if not faults.has_struck:
            assert at > 50
            return
    pytest.fail("the run never came through")


def test_what_is_not_unique_is_counted_or_ends_the_run(tmp_path: Path, rows: list[Row]) -> None:
    """As what fails a condition; each part has the limits."""
    root = tmp_path / "warn"
    run(app(root, properties=", on_fail: warn"), runtime=InlineRuntime)
    assert len(published(root)) == len(rows)
    known = status(str(root / "journal"), StorageContext.default()).operators
    (repeated,) = (operator.counts for operator in known if operator.name == "check")
    assert repeated["failed"] == repeated["failed unique(id)"] + repeated["failed qty > 0"]
    assert repeated["failed unique(id)"] > 20
    with pytest.raises(RecordError, match=r"expected unique\(id\): an earlier record, of window \d+"):
        run(app(tmp_path / "fail", properties=", on_fail: fail", expect="unique(id)"), runtime=InlineRuntime)
    with pytest.raises(DagflowError, match="records are not as expected, and max_failed is 30%"):
        run(app(tmp_path / "limit", properties=", on_fail: warn, max_failed: 30%"), runtime=InlineRuntime)


def test_values_of_a_column_are_distinguished_from_those_of_another(tmp_path: Path) -> None:
    """Where the first of two expectations is taken out, the second one does not go on with its values."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.csv").write_text("id,qty\n1,100\n")
    root = tmp_path / "run"
    both = "unique(id), unique(qty)"
    run(app(root, expect=both), runtime=InlineRuntime)
    (tmp_path / "in" / "1.csv").write_text("id,qty\n2,1\n1,101\n3,100\n")
    with pytest.raises(JournalError, match=r"keys: check\.column: id -> qty\n.*set it back; or start"):
        run(app(root, expect="unique(qty)"), runtime=InlineRuntime)
    run(app(root, expect=both), runtime=InlineRuntime)
    assert sorted(published(root)) == [(1, 100), (2, 1)]


def test_values_beyond_max_keys_are_forgotten_and_counted() -> None:
    """The oldest first: a later record of such a value passes."""
    harness = OperatorHarness(UniqueCheck(UniqueColumn.of("unique(a)"), max_keys=2))
    for value in (1, 2, 3, 3, 1):
        harness.window({"input": [{"a": value}]})
    assert [row["a"] for row in harness.emitted["output"]] == [1, 2, 3, 1]
    assert harness.counters["forgotten_keys"] == 2


def test_it_does_not_run_alone() -> None:
    """An operator that would be checked only in part is refused."""
    with pytest.raises(ValueError, match="Check is made of conditions, unique, and does not run alone"):
        OperatorHarness(Check(expect=["a > 0", "unique(a)"]))
