"""What is in a table whose writer is killed again and again: with dagflow, delta-rs, pyiceberg and dlt.

    python -m benchmarks.table_kills [--kills 20] [--files 1000] [--seed 1] [--only delta-rs "dagflow, delta"]

Each contender adds the files of a directory to a table, and is killed with SIGKILL at a random moment after it has
begun, `--kills` times; then it may end. Counted are the records that the table lacks, and those that it has twice, at
the end or after any of the kills. Of upserts the newest record of each key is lacking, and others are too many.

| contender | how it knows what it has done |
|---|---|
| delta-rs | a list of files beside the table, written anew after each transaction |
| delta-rs, txn | the number of the batch as the table's transaction of an application, asked for before each batch |
| pyiceberg | a list of files, as for delta-rs |
| pyiceberg, property | the number of the batch in the summary of the snapshot, looked for when it starts |
| dlt | the state of its resource, which it keeps with each load; pending loads go on by themselves |
| dagflow, delta | its checkpoint, as for the other two kinds |
| dagflow, iceberg | |
| dagflow, parquet | |
| dagflow, ... groups | the same, where a transaction has the windows of 300 ms, which wait in fragments |
| dagflow, ... upserts | the same, where a record takes the place of the one with its key, window by window |
| dagflow, ... upserts in groups | both |

Needs the extras `benchmark`, `iceberg` and `sql-catalog`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.measuring import table as text_table

ROWS = 50
BATCH = 5
DLT_BATCH = 50
"""Files of a transaction; a load of dlt takes about a second, whatever is in it."""

KILL_WITHIN_S = 0.5
"""A writer is killed so soon after it has begun, at most; dlt within the time of some loads, groups of some groups."""
DLT_KILL_WITHIN_S = 3.0
GROUPS_KILL_WITHIN_S = 1.5

BEGUN = "begun"

APP = """\
name: killed
attributes: {checkpoint: journal, window_millis: 100}
operators:
  splitter: {class: FileSplitterInput, properties: {files: in, blocks_threshold: 5, batch_bytes: 0}}
  reader: {class: BlockReader, properties: {format: {type: json_lines, columns: {COLUMNS}}, max_readers: 1}}
  table: {class: TableWriter, properties: {PROPERTIES}, partition: parallel}
streams:
  blocks: {from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}
  rows: {from: reader.messages, to: table.input}
"""


_TABLES = {
    "delta": 'table: "delta:out"',
    "iceberg": 'table: "iceberg:shop.rows", catalog: {type: sql, uri: "sqlite:///catalog.db", warehouse: out}',
}
_WAYS = {
    "": "commit: {every_millis: 0}",
    " groups": "commit: {every_millis: 300}, target_file_bytes: 4KiB",
    " upserts": "commit: {every_millis: 0}, upsert_by: id",
    " upserts in groups": "commit: {every_millis: 300}, upsert_by: id",
}
DAGFLOW = {
    **{f"dagflow, {kind}{way}": f"{table}, {said}" for way, said in _WAYS.items() for kind, table in _TABLES.items()},
    "dagflow, parquet": 'table: "parquet:out"',
}
"""What the app says of its table: each window is visible by itself, but where there are groups."""


def makes_upserts(name: str) -> bool:
    """Whether the records of a contender have keys."""
    return "upserts" in name


def makes_groups(name: str) -> bool:
    """Whether a transaction of a contender has several windows."""
    return "groups" in name


def batches(size: int) -> Iterator[tuple[int, list[str]]]:
    """The files, some at a time, counted from 1."""
    names = sorted(os.listdir("in"))
    yield from ((1 + start // size, names[start : start + size]) for start in range(0, len(names), size))


def rows_in(names: list[str]) -> Any:
    """The records of files."""
    import pyarrow as pa

    ids = [json.loads(line)["id"] for name in names for line in Path("in", name).read_text().splitlines()]
    return pa.table({"id": pa.array(ids, pa.int64())})


class FileList:
    """The files that were added, in a file that is replaced as a whole."""

    def __init__(self) -> None:
        path = Path("done.json")
        self.names: set[str] = set(json.loads(path.read_text())) if path.exists() else set()

    def add(self, names: list[str]) -> None:
        """Note files."""
        self.names.update(names)
        Path("done.new").write_text(json.dumps(sorted(self.names)))
        os.replace("done.new", "done.json")


def delta_by_list() -> None:
    """Append, then note the files."""
    from deltalake import write_deltalake

    done = FileList()
    for _, names in batches(BATCH):
        if not done.names.issuperset(names):
            Path(BEGUN).touch()
            write_deltalake("out", rows_in(names), mode="append")
            done.add(names)


def delta_by_txn() -> None:
    """Append with a number, unless the table has it."""
    from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

    for number, names in batches(BATCH):
        there = DeltaTable("out").transaction_version("loader") if DeltaTable.is_deltatable("out") else None
        if (there or 0) < number:
            Path(BEGUN).touch()
            said = CommitProperties(app_transactions=[Transaction("loader", number)])
            write_deltalake("out", rows_in(names), mode="append", commit_properties=said)


def _catalog() -> Any:
    from pyiceberg.catalog.sql import SqlCatalog

    return SqlCatalog("default", uri="sqlite:///catalog.db", warehouse=f"file://{os.getcwd()}/out")


def _iceberg() -> Any:
    catalog = _catalog()
    catalog.create_namespace_if_not_exists("shop")
    return catalog.create_table_if_not_exists("shop.rows", rows_in([]).schema)


def iceberg_by_list() -> None:
    """Append, then note the files."""
    table, done = _iceberg(), FileList()
    for _, names in batches(BATCH):
        if not done.names.issuperset(names):
            Path(BEGUN).touch()
            table.append(rows_in(names))
            done.add(names)


def iceberg_by_property() -> None:
    """Append with a number in the snapshot's summary, unless a snapshot has it."""
    table = _iceberg()
    said = [each.summary.additional_properties.get("batch", "0") for each in table.snapshots() if each.summary]
    there = max(map(int, said), default=0)
    for number, names in batches(BATCH):
        if there < number:
            Path(BEGUN).touch()
            table.append(rows_in(names), snapshot_properties={"batch": str(number)})


def dlt_by_state() -> None:
    """Load files that the state of the resource does not name."""
    os.environ.update(RUNTIME__DLTHUB_TELEMETRY="false", RUNTIME__LOG_LEVEL="CRITICAL")
    import dlt

    lake = dlt.destinations.filesystem(f"{os.getcwd()}/out")
    pipeline = dlt.pipeline("killed", pipelines_dir="pipelines", destination=lake, dataset_name="shop")

    def rows(names: list[str]) -> Iterator[Any]:
        done = dlt.current.resource_state("rows").setdefault("files", [])
        new = [name for name in names if name not in done]
        if new:
            yield rows_in(new)
            done.extend(new)

    for _, names in batches(DLT_BATCH):
        Path(BEGUN).touch()
        resource = dlt.resource(rows(names), name="rows")
        pipeline.run(resource, table_format="delta", write_disposition="append")


WRITERS: dict[str, Callable[[], None]] = {
    "delta-rs": delta_by_list,
    "delta-rs, txn": delta_by_txn,
    "pyiceberg": iceberg_by_list,
    "pyiceberg, property": iceberg_by_property,
    "dlt": dlt_by_state,
}


def records_in(name: str) -> Counter[tuple[int, ...]]:
    """What the table of a contender has: ids, and of upserts also the number of the record."""
    import pyarrow.parquet as pq
    from deltalake import DeltaTable

    columns = ["id", "n"] if makes_upserts(name) else ["id"]
    place = "out/shop/rows" if name == "dlt" else "out"
    if "iceberg" in name:
        with contextlib.closing(_catalog()) as catalog:
            if not catalog.table_exists("shop.rows"):
                return Counter()
            rows = catalog.load_table("shop.rows").scan(selected_fields=tuple(columns)).to_arrow()
    elif "parquet" in name:
        # A writer that died early leaves a directory without a file that readers see.
        rows = pq.read_table("out", columns=columns) if list(Path("out").glob("*.parquet")) else rows_in([])
    elif DeltaTable.is_deltatable(place):
        rows = DeltaTable(place).to_pyarrow_table(columns=columns)
    else:
        return Counter()
    return Counter(zip(*(rows[column].to_pylist() for column in columns), strict=True))


def doubled_keys(records: Counter[tuple[int, ...]]) -> int:
    """How many records have an id that is there already."""
    return records.total() - len({found[0] for found in records})


def command_of(name: str) -> list[str]:
    """How a contender is started in its directory."""
    if name in DAGFLOW:
        return [sys.executable, "-m", "dagflow", "run", "app.yaml", "--local", "-q"]
    return [sys.executable, "-m", "benchmarks.table_kills", "--write", name]


def has_begun(name: str, before: int) -> bool:
    """Whether a contender that was started is at work."""
    if name in DAGFLOW:
        return log_length() > before + 1  # behind the record that takes the checkpoint over
    return Path(BEGUN).exists()


def log_length() -> int:
    """How many records dagflow's journal has, about."""
    with contextlib.suppress(FileNotFoundError):
        return max((int(name) for name in os.listdir("journal/log") if name.isdigit()), default=0)
    return 0


def run_killed(name: str, kills: int, chance: random.Random) -> tuple[int, int, int]:
    """Start a contender until it ends by itself.

    Returns:
        How often it was killed, how often it failed, and how many records the table had twice after a kill, at most.
    """
    killed = failed = doubled = 0
    within_s = GROUPS_KILL_WITHIN_S if makes_groups(name) else KILL_WITHIN_S
    within_s = DLT_KILL_WITHIN_S if name == "dlt" else within_s
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    while failed < kills:
        Path(BEGUN).unlink(missing_ok=True)
        before = log_length()
        with open("errors", "w") as errors:
            process = subprocess.Popen(command_of(name), env=environment, stderr=errors)
        if killed < kills:
            while process.poll() is None and not has_begun(name, before):
                time.sleep(0.002)
            time.sleep(chance.uniform(0, within_s))
            if process.poll() is None:
                process.kill()
                killed += 1
        if (code := process.wait()) == 0:
            break
        if code != -9:
            failed += 1
            print(f"{name} has failed: {Path('errors').read_text()}", file=sys.stderr)
        doubled = max(doubled, doubled_keys(records_in(name)))
    return killed, failed, doubled


def compete(name: str, options: argparse.Namespace) -> list[str]:
    """Let a contender work in a directory of its own; return a row of the result."""
    with tempfile.TemporaryDirectory(prefix="dagflow-kills-") as folder, contextlib.chdir(folder):
        expected = make_input(options.files, options.seed, with_keys=makes_upserts(name))
        columns = "id: int64, n: int64" if makes_upserts(name) else "id: int64"
        Path("app.yaml").write_text(APP.replace("PROPERTIES", DAGFLOW.get(name, "")).replace("COLUMNS", columns))
        killed, failed, doubled = run_killed(name, options.kills, random.Random(options.seed))
        found = records_in(name)
        lost = (expected - found).total()
        doubled = max(doubled, (found - expected).total())
        shutil.rmtree("out")
    return [name, f"{killed}", f"{failed}", f"{lost:,}", f"{doubled:,}"]


def make_input(files: int, seed: int, *, with_keys: bool) -> Counter[tuple[int, ...]]:
    """Write files of records, and return those that a table has of them.

    Args:
        files: How many files.
        seed: What keys are drawn from.
        with_keys: Whether a record takes the place of others; a key has two records, about, anywhere.
    """
    os.mkdir("in")
    chance, newest = random.Random(seed), dict[int, int]()
    for file in range(files):
        numbers = range(file * ROWS, (file + 1) * ROWS)
        rows = {n: {"id": chance.randrange(files * ROWS // 2), "n": n} if with_keys else {"id": n} for n in numbers}
        Path("in", f"{file:05}.json").write_text("".join(f"{json.dumps(row)}\n" for row in rows.values()))
        newest.update({row["id"]: n for n, row in rows.items()})
    return Counter(newest.items() if with_keys else ((each,) for each in newest))


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="*", default=[*WRITERS, *DAGFLOW], help="contenders")
    parser.add_argument("--write", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write:
        WRITERS[options.write]()
        return 0
    rows = []
    for name in options.only:
        rows.append(compete(name, options))
        print(*rows[-1], sep="  ", flush=True)
    print(f"\n{text_table(['contender', 'kills', 'failures', 'records lost', 'records doubled'], rows)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
