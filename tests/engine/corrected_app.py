"""An app whose files are corrected: each line with its file, in a table of any kind, or in files by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dagflow import Operator
from dagflow.api.transactions import Target
from dagflow.plan.logical import LogicalPlan, grouped
from dagflow.storage.context import StorageContext
from operators.reader.block_reader import BlockReader
from operators.sink.record_writer import RecordWriter
from operators.sink.table_writer import TableWriter
from operators.sink.tables.table_groups import GroupLimits
from operators.splitter.splitter import FileSplitterInput
from tests.engine.dags import dag
from tests.engine.table_app import FaultyWriter
from tests.runs.table_kinds import catalog, rows_of

SUPERSEDE = {"replaced": "supersede", "truncated": "supersede"}
DATABASES = ("sqlite", "duckdb")
KINDS = ["delta", "parquet", "iceberg", "files", "delta-groups", "iceberg-groups", *DATABASES, "sqlite-groups"]
EDGES = ["splitter.blocks_metadata_output reader.blocks_metadata_input", "reader.messages table.input"]


def splitter(root: Path, **properties: Any) -> FileSplitterInput:
    """Blocks of 8 bytes, two in a window, so that files span windows; those of the directory `in`."""
    given = {"block_size": 8, "blocks_threshold": 2, "batch_bytes": 0, "on_change": SUPERSEDE, **properties}
    return FileSplitterInput(files=[str(root / "in")], **given)


def writer(root: Path, kind: str, file_bytes: int) -> Operator:
    """What takes the lines."""
    if kind == "files":
        return RecordWriter(path=str(root / "table"))
    properties: dict[str, Any] = {"target_file_bytes": file_bytes}
    if kind.endswith("-groups"):
        properties |= {"commit": GroupLimits(bytes=1 << 30)}
    elif kind != "parquet":
        properties |= {"commit": GroupLimits(every_millis=0)}
    if kind.startswith("iceberg"):
        return FaultyWriter(table="iceberg:shop.x", catalog=catalog(root), **properties)
    if kind.startswith(DATABASES):
        file = f"{root / 'rows.db'}#rows"
        table = f"{kind.removesuffix('-groups')}:{file}"
        return FaultyWriter(table=table, metadata_columns="part", **properties)
    made = TableWriter if kind == "parquet" else FaultyWriter
    return made(table=f"{kind.removesuffix('-groups')}:{root / 'table'}", **properties)


def corrected_app(root: Path, kind: str, file_bytes: int = 128 << 20, **properties: Any) -> LogicalPlan:
    """Lines of files in a table; data files of a length."""
    nodes: dict[str, Any] = {
        "splitter": splitter(root, **properties),
        "reader": (BlockReader(format="lines", max_readers=2), 2),
        "table": (writer(root, kind, file_bytes), "parallel"),
    }
    return grouped(dag(root, nodes, EDGES))


def write(root: Path, name: str, lines: str) -> Path:
    """Put a file in place, as another one: with another inode than an earlier one of its name."""
    path = root / "in" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{name}")
    new.write_text("".join(f"{line}\n" for line in lines.split()))
    new.rename(path)
    return path


def lines_of(root: Path, kind: str) -> list[str]:
    """What readers see, sorted; nothing before there is a table."""
    if kind == "files":
        files = [path for path in (root / "table").glob("[!.]*") if path.is_file()] if root.exists() else []
        return sorted(line for path in files for line in path.read_text().split())
    if kind.startswith(DATABASES):
        table = writer(root, kind, 1)
        assert isinstance(table, TableWriter)
        target = table.transaction_target(storage())
        found = target.rows() if isinstance(target, Target) else None
        return [] if found is None else sorted(record.decode() for record in found.read_all()["record"].to_pylist())
    try:
        found = rows_of(root, kind.removesuffix("-groups"))["record"].to_pylist()
    except Exception:  # of as many kinds as there are tables
        return []
    return sorted(record.decode() for record in found)


def all_lines(root: Path) -> list[str]:
    """What all files of the input have now, sorted."""
    return sorted(line for path in (root / "in").iterdir() for line in path.read_text().split())


def storage() -> StorageContext:
    """The stores of the machine."""
    return StorageContext.default()
