"""Files of Delta tables that come back in the place of those that another program has merged them to."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake

from operators.sink.tables.delta_log import DeltaLog, history_of, unmerging
from operators.sink.tables.delta_table import DeltaTable as DeltaKind
from tests.engine.corrected_app import storage


def merged_table(root: Path) -> tuple[DeltaLog, DeltaTable, list[str]]:
    """A table of two files in a partition with a strange name, which were merged; with the names of these."""
    table = str(root / "table")
    for n in range(2):
        rows = {
            "day": [dt.date(2026, 1, 1 + n)],
            "at": pa.array([dt.datetime(2026, 1, 1, 10, 0, n, 1)], pa.timestamp("us")),
            "amount": pa.array([Decimal("1.25")], pa.decimal128(10, 2)),
            "none": pa.array([None], pa.int64()),
            "part": ["a %/é"],
        }
        write_deltalake(table, pa.table({**rows, "parts": [{"x": n}]}), mode="append", partition_by=["part"])
    names = [uri.rpartition("/")[2] for uri in DeltaTable(table).file_uris()]
    DeltaTable(table).optimize.compact()
    return DeltaLog(DeltaKind(table, []), storage()), DeltaTable(table), names


def test_files_come_back_with_their_statistics(tmp_path: Path) -> None:
    """As the log had them, whatever the types of the columns are, with no change of data."""
    log, handle, names = merged_table(tmp_path)
    merges = history_of(log, handle).merges_of(names[:1])
    actions = [*unmerging(log, merges, [])]
    handle.create_write_transaction(actions, "append", handle.schema(), partition_by=["part"])
    entries = sorted((tmp_path / "table/_delta_log").glob("*.json"))
    first, last = ([json.loads(line).get("add") for line in path.read_text().splitlines()] for path in entries[::3])
    (was,) = (each for each in first if each)
    (now,) = (each for each in last if each and each["path"] == was["path"])
    before, after = json.loads(was["stats"]), json.loads(now["stats"])
    assert after.keys() == before.keys() and after["numRecords"] == before["numRecords"]
    for kind in ("minValues", "maxValues", "nullCount"):
        assert {**after[kind], "at": ""} == {**before[kind], "at": ""}
        assert dt.datetime.fromisoformat(str(after[kind]["at"]).rstrip("Z")) if kind != "nullCount" else True
    assert not now["dataChange"] and now["partitionValues"] == was["partitionValues"]
    assert DeltaTable(log.table.location).to_pyarrow_table().num_rows == 2
    dataset = DeltaTable(log.table.location).to_pyarrow_dataset()
    assert dataset.to_table(filter=pc.field("amount") == Decimal("1.25")).num_rows == 2


@pytest.mark.parametrize("is_forgotten", [False, True])
def test_files_without_statistics_can_be_merged_again(tmp_path: Path, is_forgotten: bool) -> None:
    """They never had any, or the log does not reach back to the version that shows them."""
    log, handle, names = merged_table(tmp_path)
    for entry in (tmp_path / "table/_delta_log").glob("*[01].json"):
        if not is_forgotten:
            actions = [json.loads(line) for line in entry.read_text().splitlines()]
            for add in (action["add"] for action in actions if "add" in action):
                add.pop("stats")
            entry.write_text("\n".join(map(json.dumps, actions)))
    merges = history_of(log, handle).merges_of(names[:1])
    if is_forgotten:
        handle.create_checkpoint()
        for entry in (tmp_path / "table/_delta_log").glob("*[01].json"):
            entry.unlink()
    handle.create_write_transaction([*unmerging(log, merges, [])], "append", handle.schema(), partition_by=["part"])
    DeltaTable(log.table.location).optimize.compact()
    assert DeltaTable(log.table.location).to_pyarrow_table().num_rows == 2


@pytest.mark.parametrize(("kept", "is_gone"), [("interval 1 hours", False), ("interval 0 days", True), ("soon", True)])
def test_a_file_that_a_vacuum_may_remove_does_not_come_back(tmp_path: Path, kept: str, is_gone: bool) -> None:
    """Though it is still there: it could be removed while the table shows it."""
    log, handle, names = merged_table(tmp_path)
    handle.alter.set_table_properties({"delta.deletedFileRetentionDuration": kept}, raise_if_not_exists=False)
    (merge,) = history_of(log, DeltaTable(log.table.location)).merges_of(names)
    assert merge.gone == ({*names} if is_gone else set())
