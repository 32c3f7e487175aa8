"""An app whose files are corrected, and whose table has totals of their lines, which are `key.value`."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path
from typing import Any

import duckdb
from deltalake import DeltaTable

from dagflow import Operator
from dagflow.plan.logical import LogicalPlan, expanded, grouped, unified
from operators.aggregate.aggregate import Aggregate
from operators.reader.block_reader import BlockReader
from operators.sink.record_writer import RecordWriter
from operators.sink.table_writer import TableWriter
from operators.sink.tables.table_groups import GroupLimits
from tests.engine.corrected_app import all_lines, splitter
from tests.engine.dags import dag
from tests.engine.table_app import FaultyWriter
from tests.runs.table_kinds import catalog, rows_of

COLUMNS = {"n": "count(*)", "s": "sum(v)", "least": "min(v)", "mean": "avg(v)", "last": "max(k)"}
KINDS = ["delta", "delta-groups", "iceberg", "sqlite", "duckdb"]
BESIDE = ["", "delta", "delta-groups", "files"]


def totals_writer(root: Path, kind: str, **properties: Any) -> Operator:
    """A table that has each key once."""
    name, _, is_grouped = kind.partition("-")
    if name in ("delta", "iceberg"):
        limits = GroupLimits(bytes=1 << 30) if is_grouped else GroupLimits(every_millis=0)
        properties = {"commit": limits, **properties}
    if name == "iceberg":
        return FaultyWriter(table="iceberg:shop.x", catalog=catalog(root), upsert_by="k", **properties)
    location = root / "table" if name == "delta" else f"{root / 'db'}#totals"
    return FaultyWriter(table=f"{name}:{location}", upsert_by="k", **properties)


def totals_app(root: Path, kind: str, beside: str = "", **properties: Any) -> LogicalPlan:
    """Totals of four keys in one table, and the lines themselves beside them in another output."""
    partitions = properties.pop("partitions", 2)
    nodes: dict[str, Any] = {
        "splitter": splitter(root, **properties),
        "reader": (BlockReader(format=FORMAT, max_readers=2), 2),
        "sums": (Aggregate(by={"k": "k % 4"}, columns=COLUMNS, over="all"), partitions),
        "table": (totals_writer(root, kind), "parallel"),
    }
    edges = ["splitter.blocks_metadata_output reader.blocks_metadata_input", "reader.messages sums.input"]
    edges.append("sums.output table.input")
    if beside:
        limits = GroupLimits(bytes=1 << 30) if beside == "delta-groups" else GroupLimits(every_millis=0)
        lines = root / "lines"
        made = (
            RecordWriter(path=str(lines)) if beside == "files" else TableWriter(table=f"delta:{lines}", commit=limits)
        )
        nodes["lines"] = (made, "parallel")
        edges.append("reader.messages lines.input")
    return grouped(unified(expanded(dag(root, nodes, edges))))


FORMAT = {"type": "csv", "header": False, "delimiter": ".", "columns": {"k": "int64", "v": "int64"}}


def totals_in(root: Path, kind: str) -> list[tuple[Any, ...]]:
    """The rows of the table, sorted; nothing before there is one."""
    names = ["k", *COLUMNS]
    name = kind.partition("-")[0]
    try:
        if name in ("delta", "iceberg"):
            return sorted(tuple(row[each] for each in names) for row in rows_of(root, name).to_pylist())
        connect = sqlite3.connect if name == "sqlite" else duckdb.connect
        with contextlib.closing(connect(str(root / "db"))) as connection:
            return sorted(connection.execute(f"SELECT {', '.join(names)} FROM totals").fetchall())
    except Exception:  # of as many kinds as there are tables
        return []


def lines_beside(root: Path, beside: str) -> list[str]:
    """The lines in the other output, sorted."""
    if beside == "files":
        files = [path for path in (root / "lines").glob("[!.]*") if path.is_file()]
        rows = [json.loads(line) for path in files for line in path.read_text().splitlines()]
    else:
        rows = DeltaTable(str(root / "lines")).to_pyarrow_table().to_pylist()
    return sorted(f"{row['k']}.{row['v']}" for row in rows)


def totals_of_files(root: Path) -> list[tuple[Any, ...]]:
    """What the input has now, added up by Python."""
    groups: dict[int, list[tuple[int, int]]] = {}
    for line in all_lines(root):
        key, value = map(int, line.split("."))
        groups.setdefault(key % 4, []).append((key, value))
    return [
        (k, len(own), sum(v for _, v in own), min(v for _, v in own), sum(v for _, v in own) / len(own), max(own)[0])
        for k, own in sorted(groups.items())
    ]
