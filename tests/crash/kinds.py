"""Kinds of apps that are killed: what each reads, and what it must have published at the end."""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog

from dagflow.storage.concatenated import extract, list_entries
from dagflow.storage.context import StorageContext
from operators.sink.tables.sql_table import DuckdbFileTable, PostgresTable, SqliteFileTable
from tests.crash.killing import (
    APP,
    HEAD,
    STATEFUL_APP,
    make_folder,
    oracle,
    published_records,
    require_whole,
)


@dataclass(frozen=True)
class KilledApp:
    """An app that is killed.

    Attributes:
        name: Its name on the command line.
        make: Writes app, operators and input into a folder.
        require_whole: Raises AssertionError where the output is not that of an undisturbed run.
        before_start: Called with the folder and the number of earlier starts.
    """

    name: str
    make: Callable[[Path], None]
    require_whole: Callable[[Path], None]
    before_start: Callable[[Path, int], None] = lambda folder, starts: None


READ = "blocks: {from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}"


def _app(splitter: str, reader: str, operators: str, streams: str) -> str:
    """An app of a splitter, a reader, and what follows."""
    return f"""\
name: killed-app
attributes: {{checkpoint: journal, master: "local[2]"}}
operators:
  splitter: {{class: FileSplitterInput, properties: {{files: [in], {splitter}}}}}
  reader: {{class: BlockReader, properties: {{min_readers: 2, max_readers: 4, {reader}}}}}
  slow: {{class: slow_ops.Slow, partition: parallel}}
{operators}
streams:
  {READ}
  records: {{from: reader.messages, to: slow.input}}
{streams}
"""


def _visible(directory: Path) -> list[Path]:
    return sorted(path for path in directory.glob("[!._]*") if path.is_file())


def _require_nothing_pending(folder: Path) -> None:
    hidden = [path for path in (folder / "out").rglob("*") if path.name[0] == "."]
    assert hidden == [], f"left behind: {hidden}"


def _require_equal(found: Iterable[object], expected: Iterable[object]) -> None:
    found, expected = Counter(found), Counter(expected)
    lost, extra = expected - found, found - expected
    assert not lost, f"{lost.total()} records are lost, such as {next(iter(lost))!r}"
    assert not extra, f"{extra.total()} records are too many, such as {next(iter(extra))!r}"
    assert expected.total() > 1000, "there was next to nothing to read"


def _require_state(folder: Path) -> None:
    lines = Counter(oracle(folder))
    assert published_records(folder) == sorted(lines)
    newest: Counter[bytes] = Counter()
    for path in _visible(folder / "counts"):
        for record in path.read_bytes().splitlines():
            key, _, count = record.rpartition(b"\t")
            newest[key] = max(newest[key], int(count))
    assert newest == lines


def _repartition(folder: Path, starts: int) -> None:
    (folder / "app.yaml").write_text(STATEFUL_APP.replace("PARTITIONS", str(1 + starts % 3)))


ROLLED_APP = f"""\
{HEAD}\
  writer:
    class: RecordWriter
    properties: {{path: out, max_bytes: 64KiB, format: {{type: raw, compression: zstd}}}}
    partition: 3
streams:
  {READ}
  records: {{from: reader.messages, to: filter.input}}
  kept: {{from: filter.output, to: slow.input}}
  late: {{from: slow.output, to: writer.input}}
"""


def _require_rolled(folder: Path) -> None:
    found: list[bytes] = []
    for path in _visible(folder / "out"):
        with pa.input_stream(str(path), compression="zstd") as stream:
            found += stream.read().split(b"\n")[:-1]
    _require_equal(found, oracle(folder))
    _require_nothing_pending(folder)


COUNTS_APP = _app(
    "block_size: 16KiB, blocks_threshold: 4",
    "format: lines",
    "  run: {class: CountBy, properties: {by: record, over: run}, partition: parallel}\n"
    "  times: {class: CountBy, properties: {by: record, over: {millis: 700}}, partition: parallel}\n"
    "  once: {class: RecordWriter, properties: {path: once, format: json_lines}, partition: parallel}\n"
    "  often: {class: RecordWriter, properties: {path: out, format: json_lines}, partition: parallel}",
    "  late: {from: slow.output, to: [run.input, times.input]}\n  all: {from: run.output, to: once.input}\n"
    "  some: {from: times.output, to: often.input}",
)


def _require_counts(folder: Path) -> None:
    """One result of all runs together; those of times are several, and add up to it."""
    expected: Counter[str] = Counter()
    for path in (folder / "in").iterdir():
        expected.update(path.read_text("utf-8").removesuffix("\n").split("\n"))
    for place in ("out", "once"):
        found: Counter[str] = Counter()
        rows = [json.loads(line) for path in _visible(folder / place) for line in path.read_text().splitlines()]
        for row in rows:
            found[row["record"]] += row["count"]
        _require_equal(found.elements(), expected.elements())
        assert (len(rows) == len(expected)) == (place == "once"), f"{len(rows)} rows in {place}"
    _require_nothing_pending(folder)


SMALL_FILES_APP = _app(
    "batch_bytes: 4KiB, blocks_threshold: 100",
    "format: lines",
    "  writer: {class: RecordWriter, properties: {path: out}, partition: parallel}",
    "  late: {from: slow.output, to: writer.input}",
)


def _make_small_files(folder: Path) -> None:
    make_folder(folder, files=0, app=SMALL_FILES_APP)
    for number in range(4000):
        directory = folder / "in" / f"{number % 40:02}"
        directory.mkdir(exist_ok=True)
        (directory / f"{number:04}.txt").write_text("".join(f"{number} {line}\n" for line in range(number % 5)))


def _require_small_files(folder: Path) -> None:
    expected = [f"{number} {line}".encode() for number in range(4000) for line in range(number % 5)]
    _require_equal(published_records(folder), expected)
    _require_nothing_pending(folder)


MERGE_APP = """\
name: killed-app
attributes: {checkpoint: journal, master: "local[2]"}
operators:
  splitter:
    class: FileSplitterInput
    properties: {files: [in], batches: whole, batch_bytes: 4KiB, blocks_threshold: 100}
  reader: {class: BlockReader, properties: {format: whole_file, min_readers: 2, max_readers: 4}}
  merger: {class: FileMerger, properties: {path: out, below: in, max_bytes: 16KiB}, partition: parallel}
  cleaner: {class: SourceCleaner, properties: {action: remove}}
streams:
  blocks: {from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}
  files: {from: reader.messages, to: merger.input}
  read: {from: reader.blocks_metadata_output, to: cleaner.input}
"""


def _make_merge(folder: Path) -> None:
    _make_small_files(folder)
    (folder / "app.yaml").write_text(MERGE_APP)


def _require_merge(folder: Path) -> None:
    storage = StorageContext.default()
    merged = [(e.path, b"".join(extract(storage, e))) for e in list_entries(storage, str(folder / "out"))]
    expected = [
        (f"{number % 40:02}/{number:04}.txt".encode(), "".join(f"{number} {n}\n" for n in range(number % 5)).encode())
        for number in range(4000)
    ]
    _require_equal([(path.encode() if isinstance(path, str) else path, data) for path, data in merged], expected)
    left = [path for path in (folder / "in").rglob("*") if path.is_file()]
    assert left == [], f"{len(left)} merged files are still there"
    _require_nothing_pending(folder)


CSV_APP = _app(
    "block_size: 2KiB, blocks_threshold: 8",
    "format: {type: csv, columns: {number: int64, text: string, price: 'decimal(9, 2)'}}",
    "  table: {class: RecordWriter, properties: {path: out, format: parquet}, partition: parallel}\n"
    "  rejects: {class: RecordWriter, properties: {path: rejects}, partition: parallel}",
    "  late: {from: slow.output, to: table.input}\n  bad: {from: reader.errors, to: rejects.input}",
)


def _csv_rows() -> list[list[tuple[int, str, str]]]:
    dice = random.Random(1)
    texts = ["plain", 'with "quotes"', "two\nlines", "comma, inside", "naïve €"]
    return [[(100 * f + n, dice.choice(texts), f"{n}.{f:02}") for n in range(100)] for f in range(60)]


def _make_csv(folder: Path) -> None:
    make_folder(folder, files=0, app=CSV_APP)
    for number, rows in enumerate(_csv_rows()):
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([("number", "text", "price"), *rows, ("no", "number", "1.00")])
        (folder / "in" / f"{number:02}.csv").write_text(text.getvalue())


def _require_csv(folder: Path) -> None:
    found = [row for path in _visible(folder / "out") for row in pq.read_table(path).to_pylist()]
    _require_equal(
        [(row["number"], row["text"], str(row["price"])) for row in found],
        [row for rows in _csv_rows() for row in rows],
    )
    rejected = [line for path in _visible(folder / "rejects") for line in path.read_text().splitlines()]
    assert len(rejected) == 60, f"{len(rejected)} rejects, where each of 60 files has one"
    _require_nothing_pending(folder)


JSON_APP = _app(
    "blocks_threshold: 4",
    "format: {type: json_lines, columns: {id: int64, tags: string}}",
    "  writer: {class: RecordWriter, properties: {path: out, file_name: block}, partition: parallel}",
    "  late: {from: slow.output, to: writer.input}",
)


def _make_json(folder: Path) -> None:
    make_folder(folder, files=0, app=JSON_APP)
    for file in range(80):
        lines = "".join(json.dumps({"id": 100 * file + n, "tags": "é" * (n % 7)}) + "\n" for n in range(100))
        (folder / "in" / f"{file:02}.json.gz").write_bytes(gzip.compress(lines.encode(), mtime=0))


def _require_json(folder: Path) -> None:
    rows = [json.loads(line) for path in _visible(folder / "out") for line in path.read_text().splitlines()]
    _require_equal(
        [(row["id"], row["tags"]) for row in rows],
        [(100 * file + n, "é" * (n % 7)) for file in range(80) for n in range(100)],
    )
    _require_nothing_pending(folder)


TABLES = ("rows", "newest", "groups")

TABLES_APP = _app(
    "block_size: 16KiB, blocks_threshold: 4",
    "format: lines",
    "  writer: {class: RecordWriter, properties: {path: out}, partition: parallel}\n"
    "  rows: {class: TableWriter, properties: {PLACE, WHERE, commit: {every_millis: 300}}, partition: parallel}\n"
    "  newest: {class: TableWriter, properties: {PLACE, WHERE, KEYS, commit: {every_millis: 0}}, partition: parallel}\n"
    "  groups: {class: TableWriter, properties: {PLACE, WHERE, KEYS, commit: {every_millis: 700}}, partition: 2}",
    "  late: {from: slow.output, to: [writer.input, rows.input, newest.input, groups.input]}",
)
"""Lines as files, as a table in groups of windows, and as the newest of each, window by window and in groups."""


def _make_tables(folder: Path, place: str) -> None:
    app = TABLES_APP.replace("WHERE", "metadata_columns: [file, offset, window]").replace("KEYS", "upsert_by: record")
    for name in TABLES:
        app = app.replace("PLACE", place.replace("NAME", name), 1)
    make_folder(folder, files=60, app=app)


def _require_tables(folder: Path, read: Callable[[Path, str], pa.Table]) -> None:
    """All lines, and of each the one of the newest window that has it."""
    lines = [line for path in (folder / "in").iterdir() for line in path.read_bytes().removesuffix(b"\n").split(b"\n")]
    _require_equal(published_records(folder), lines)
    rows, newest, groups = (read(folder, name).to_pylist() for name in TABLES)
    _require_equal((row["record"] for row in rows), lines)
    expected: dict[bytes, int] = {}
    for row in rows:
        expected[row["record"]] = max(row["_dagflow_window"], expected.get(row["record"], 0))
    for table in (newest, groups):
        _require_equal(((row["record"], row["_dagflow_window"]) for row in table), expected.items())
        assert all(row in rows for row in random.Random(1).sample(table, 100))
    waiting = [path for path in folder.rglob(".dagflow-pending/*")]
    assert waiting == [], f"left behind: {waiting}"


def _delta_table(folder: Path, name: str) -> pa.Table:
    return DeltaTable(str(folder / "tables" / name)).to_pyarrow_table()


def _iceberg_table(folder: Path, name: str) -> pa.Table:
    with SqlCatalog("default", uri=f"sqlite:///{folder / 'catalog.db'}") as catalog:
        return catalog.load_table(f"shop.{name}").scan().to_arrow()


def _duckdb_table(folder: Path, name: str) -> pa.Table:
    return DuckdbFileTable(f"{folder}/{name}.duckdb#rows", ()).target(StorageContext.default()).rows().read_all()


def _sqlite_table(folder: Path, name: str) -> pa.Table:
    return SqliteFileTable(f"{folder}/tables.db#{name}", ()).target(StorageContext.default()).rows().read_all()


ICEBERG = 'table: "iceberg:shop.NAME", catalog: {type: sql, uri: "sqlite:///catalog.db", warehouse: tables}'


def postgres_kind(address: str) -> KilledApp:
    """Tables of a server that is running."""

    def read(folder: Path, name: str) -> pa.Table:
        table = PostgresTable(f"public.{folder.name}_{name}", ())
        table.connect_by(address, "")
        return table.target(StorageContext.default()).rows().read_all()

    def make(folder: Path) -> None:
        place = f'table: "postgres:public.{folder.name}_NAME", connection: "{address}", staging: staging'
        _make_tables(folder, place)

    return KilledApp("postgres", make, lambda folder: _require_tables(folder, read))


KINDS = (
    KilledApp("blocks", lambda folder: make_folder(folder, files=120, app=APP), require_whole),
    KilledApp("state", lambda folder: make_folder(folder, files=16), _require_state, _repartition),
    KilledApp("rolled", lambda folder: make_folder(folder, files=60, app=ROLLED_APP), _require_rolled),
    KilledApp("counts", lambda folder: make_folder(folder, files=60, app=COUNTS_APP), _require_counts),
    KilledApp("small-files", _make_small_files, _require_small_files),
    KilledApp("merge", _make_merge, _require_merge),
    KilledApp("csv", _make_csv, _require_csv),
    KilledApp("json", _make_json, _require_json),
    KilledApp(
        "delta",
        lambda folder: _make_tables(folder, 'table: "delta:tables/NAME"'),
        lambda folder: _require_tables(folder, _delta_table),
    ),
    KilledApp(
        "iceberg",
        lambda folder: _make_tables(folder, ICEBERG),
        lambda folder: _require_tables(folder, _iceberg_table),
    ),
    KilledApp(
        "duckdb",
        lambda folder: _make_tables(folder, 'table: "duckdb:NAME.duckdb#rows"'),
        lambda folder: _require_tables(folder, _duckdb_table),
    ),
    KilledApp(
        "sqlite",
        lambda folder: _make_tables(folder, 'table: "sqlite:tables.db#NAME"'),
        lambda folder: _require_tables(folder, _sqlite_table),
    ),
)
