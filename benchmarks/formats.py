"""Reads each format on one core from the page cache, beside others that read the same.

    python -m benchmarks.formats
    python -m benchmarks.formats --size 200MB --rounds 5 --only csv
    python -m benchmarks.formats --part cores
    python -m benchmarks.formats --part doors

The reader of a task reads each file in blocks of 32 MiB, byte accounting included; records are counted, and counted
again after a filter. Where rows of CSV are only counted, no column of them is wanted, and each contender knows. The
table shows megabytes of input per second of CPU time, as medians: CPU time depends little on other programs. Spark's
is that of its JVM. A second table shows wall time of one process, and of two at the same time (see two_processes.py).
A third table compares formats of rows and archives with libraries (see doors.py).
Needs the extra `benchmark`; the second table needs two idle cores.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

# Set before polars is imported, because it makes its threads then.
os.environ["POLARS_MAX_THREADS"] = "1"

from benchmarks import peers
from benchmarks.measuring import SPARKS_JAVA
from benchmarks.two_processes import Act, TwoProcesses, blocks_of
from dagflow.api.properties import parse_size
from dagflow.engine.driver_memory import memory_for_tasks
from dagflow.storage.context import StorageContext

if TYPE_CHECKING:
    from dagflow.api.records import RecordBatch

BLOCK_BYTES = 32 << 20
POOL = 50_000
"""Different records in a file; they are repeated in other orders."""

DEALT_BLOCKS = 8
"""Blocks of a file for two processes."""

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789/=& "
CSV_NAMES = ["id", "name", "ratio", "day", "note"]
JSON_TYPES = {"id": "int64", "level": "string", "text": "string"}
XML_TYPES = {"@id": "int64", "a": "string", "b": "string"}


@dataclass(frozen=True)
class MeasuredFormat:
    """A file in a format.

    Attributes:
        name: Row of the table.
        format: As dagflow takes it.
        least: Promised megabytes per second; None without a promise.
        least_filtered: Those behind a filter, if they are others.
        record: Makes one record with its delimiter.
        head: Head of the file.
        column: Column that the filter compares with the text b; "" drops records that begin with a dot.
        share: Part of the bytes for two processes; less for slow formats, so that a round is short.
        is_serial: Whether files are read from their beginning, so that two processes need two files.
        peers: Others that read the same, by name; each takes the file and whether to filter.
    """

    name: str
    format: Any
    least: int | None
    record: Callable[[random.Random], bytes]
    head: bytes = b""
    column: str = ""
    share: float = 1
    is_serial: bool = False
    peers: dict[str, Callable[[str, bool], int]] = field(default_factory=dict)
    least_filtered: int | None = None


def text(dice: random.Random, end: bytes) -> bytes:
    """Return about a hundred bytes; one record in ten begins with a dot."""
    dot = "." if dice.random() < 0.1 else ""
    return (dot + "".join(dice.choices(LETTERS, k=dice.randint(40, 160)))).encode() + end


def escaped(dice: random.Random) -> bytes:
    """Return a line; one in five has an escaped newline, one in ten an escaped escape."""
    line = text(dice, b"")
    if dice.random() < 0.2:
        line += b"\\\n" + text(dice, b"")
    if dice.random() < 0.1:
        line += b"\\\\"
    return line + b"\n"


def row(dice: random.Random) -> bytes:
    """Return a CSV row; one in ten has quoted newlines, delimiters and quotes."""
    note = text(dice, b"").decode()
    if dice.random() < 0.1:
        note = f'"{note},\n""so"" {note}"'
    number, name = dice.randint(0, 10**9), dice.choice("abcd")
    return f"{number},{name},{dice.random():.6f},2026-03-{dice.randint(1, 28):02d},{note}\n".encode()


def json_line(dice: random.Random) -> bytes:
    """Return a JSON object."""
    value = {"id": dice.randint(0, 10**9), "level": dice.choice("abcd"), "text": text(dice, b"").decode(), "n": [1, 2]}
    return json.dumps(value).encode() + b"\n"


def log_entry(dice: random.Random) -> bytes:
    """Return a log entry; one in ten has a stack trace."""
    trace = b"\tat some.place.Class.method(Class.java:17)\n" * 8 if dice.random() < 0.1 else b""
    return b"2026-03-04 10:11:12 " + text(dice, b"\n") + trace


def paragraph(dice: random.Random) -> bytes:
    """Return a few lines."""
    return b"".join(b"Field: " + text(dice, b"\n") for _ in range(5)) + b"\n"


def element(dice: random.Random) -> bytes:
    """Return an XML element."""
    return b"<row id='7'><a>" + text(dice, b"").replace(b"&", b" ") + b"</a><b/></row>\n"


def prefixed(dice: random.Random) -> bytes:
    """Return a record with its length before it."""
    content = text(dice, b"")
    return struct.pack("<I", len(content)) + content


def cases(peers: Peers | None) -> list[MeasuredFormat]:
    """Return the rows of the table."""
    fixed = {"type": "fixed", "length": 100}

    def others(kind: str) -> dict[str, Callable[[str, bool], int]]:
        return {} if peers is None else peers.of(kind)

    return [
        MeasuredFormat("lines, LF", "lines", 1000, lambda dice: text(dice, b"\n"), peers=others("lines")),
        MeasuredFormat("lines, CR LF", "lines", None, lambda dice: text(dice, b"\r\n")),
        MeasuredFormat(
            "lines, one byte", {"type": "lines", "delimiter": "\x1e"}, 500, lambda dice: text(dice, b"\x1e")
        ),
        MeasuredFormat("lines, two bytes", {"type": "lines", "delimiter": "~|"}, 500, lambda dice: text(dice, b"~|")),
        MeasuredFormat("lines, overlapping", {"type": "lines", "delimiter": "||"}, 500, lambda dice: text(dice, b"||")),
        MeasuredFormat("escaped_lines", "escaped_lines", 400, escaped),
        MeasuredFormat("fixed", fixed, 2000, lambda dice: text(dice, b"").ljust(100, b"_")[:100]),
        MeasuredFormat(
            *("csv, both passes", "csv", 900, row),
            head=",".join(CSV_NAMES).encode() + b"\n",
            column="name",
            share=0.4,
            peers=others("csv"),
            least_filtered=250,
        ),
        MeasuredFormat("json_lines, checked", "json_lines", None, json_line, share=0.4),
        MeasuredFormat(
            *("json_lines, parsed", {"type": "json_lines", "columns": JSON_TYPES}, 150, json_line),
            column="level",
            share=0.2,
            peers=others("json"),
        ),
        MeasuredFormat(
            "regex", {"type": "regex", "pattern": r"\d{4}-", "max_record": "64KiB"}, None, log_entry, share=0.4
        ),
        MeasuredFormat("paragraphs", "paragraphs", None, paragraph),
        MeasuredFormat("length_prefixed", "length_prefixed", None, prefixed, share=0.4, is_serial=True),
        MeasuredFormat("xml", {"type": "xml", "tag": "row"}, 250, element, share=0.1, is_serial=True),
        MeasuredFormat(
            *("xml, parsed", {"type": "xml", "tag": "row", "columns": XML_TYPES}, 100, element),
            column="a",
            share=0.1,
            is_serial=True,
        ),
    ]


class Peers:
    """Others on one thread each.

    Args:
        work: Where Spark logs.
    """

    def __init__(self, work: Path) -> None:
        import duckdb
        import polars
        from pyspark.sql import SparkSession

        from dagflow.runtime.spark_context import start_context

        self.polars = polars
        self.duckdb = duckdb.connect(config={"threads": 1})
        self.spark = SparkSession(start_context("formats", "local[1]", SPARKS_JAVA, work / "spark.log"))

    def of(self, kind: str) -> dict[str, Callable[[str, bool], int]]:
        """Return the methods that read a kind of file, by contender."""
        own = {name: getattr(self, f"{name.lower()}_{kind}") for name in ("polars", "DuckDB", "Spark")}
        return own if kind == "lines" else own | {name: partial(self.peer, name, kind) for name in peers.installed()}

    def peer(self, name: str, kind: str, path: str, is_filtered: bool) -> int:
        """Count rows, with the columns that the others read."""
        types = {"id": "bigint", "level": "string", "text": "string"}
        columns = dict.fromkeys(CSV_NAMES, "string") if kind == "csv" else types
        where = f" WHERE {'name' if kind == 'csv' else 'level'} = 'b'" if is_filtered else ""
        texts = [name for name, type in columns.items() if type == "string" and (is_filtered or kind != "csv")]
        query = f"SELECT {', '.join(['count(*) AS n', *map('max(length({}))'.format, texts)])} FROM source{where}"
        rows = peers.PeerSource(path, columns, kind == "csv").rows_by(name, query, threads=1)
        return int(rows.column(0)[0].as_py())

    def polars_lines(self, path: str, is_filtered: bool) -> int:
        """Count lines."""
        frame = self.polars.scan_lines(path)
        return self._polars_count(frame, ~self.polars.col("line").str.starts_with(".") if is_filtered else None)

    def polars_csv(self, path: str, is_filtered: bool) -> int:
        """Count rows, after a filter with all columns as text."""
        frame = self.polars.scan_csv(path, infer_schema=False)
        if not is_filtered:
            return int(frame.select(self.polars.len()).collect(engine="streaming").item())
        return self._polars_count(frame, self.polars.col("name") == "b")

    def polars_json(self, path: str, is_filtered: bool) -> int:
        """Count objects, with three typed columns."""
        kinds = {"id": self.polars.Int64, "level": self.polars.String, "text": self.polars.String}
        frame = self.polars.scan_ndjson(path, schema=kinds)
        return self._polars_count(frame, self.polars.col("level") == "b" if is_filtered else None)

    def _polars_count(self, frame: Any, condition: Any) -> int:
        # All columns are made, as dagflow makes them, and not only those that the count needs.
        kept = frame if condition is None else frame.filter(condition)
        return int(kept.collect(engine="streaming").height)

    def duckdb_lines(self, path: str, is_filtered: bool) -> int:
        """Count lines with the CSV reader, without columns and quotes."""
        source = (
            f"read_csv('{path}', columns={{'line': 'VARCHAR'}}, delim=E'\\x01', quote='', escape='', header=false, "
            "auto_detect=false)"
        )
        return self._duckdb_count(source, "count(line)", "NOT starts_with(line, '.')" if is_filtered else "true")

    def duckdb_csv(self, path: str, is_filtered: bool) -> int:
        """Count rows, after a filter with all columns as text."""
        columns = ", ".join(f"'{name}': 'VARCHAR'" for name in CSV_NAMES)
        source = f"read_csv('{path}', columns={{{columns}}}, header=true, quote='\"', escape='\"', auto_detect=false)"
        every = ", ".join(["count(*)", *(f"max(length({name}))" for name in CSV_NAMES if is_filtered)])
        return self._duckdb_count(source, every, "name = 'b'" if is_filtered else "true")

    def duckdb_json(self, path: str, is_filtered: bool) -> int:
        """Count objects, with three typed columns."""
        source = (
            f"read_json('{path}', columns={{id: 'BIGINT', level: 'VARCHAR', text: 'VARCHAR'}}, "
            "format='newline_delimited')"
        )
        every = "count(*), max(id), max(length(level)), max(length(text))"
        return self._duckdb_count(source, every, "level = 'b'" if is_filtered else "true")

    def _duckdb_count(self, source: str, result: str, condition: str) -> int:
        row = self.duckdb.execute(f"SELECT {result} FROM {source} WHERE {condition}").fetchone()
        return int(row[0]) if row else 0

    def spark_lines(self, path: str, is_filtered: bool) -> int:
        """Count lines."""
        frame = self.spark.read.text(path)
        return self._spark_count(frame, ~frame["value"].startswith(".") if is_filtered else None)

    def spark_csv(self, path: str, is_filtered: bool) -> int:
        """Count rows with quoted newlines, after a filter with all columns as text."""
        reader = self.spark.read.option("multiLine", True).option("escape", '"').option("header", True)
        frame = reader.schema(", ".join(f"{name} string" for name in CSV_NAMES)).csv(path)
        return self._spark_count(frame, frame["name"] == "b") if is_filtered else int(frame.count())

    def spark_json(self, path: str, is_filtered: bool) -> int:
        """Count objects, with three typed columns."""
        frame = self.spark.read.schema("id long, level string, text string").json(path)
        return self._spark_count(frame, frame["level"] == "b" if is_filtered else None)

    def _spark_count(self, frame: Any, condition: Any) -> int:
        kept = frame if condition is None else frame.filter(condition)
        # A count alone would leave columns unparsed.
        observed = kept.selectExpr("count(1)", *(f"max(length({name}))" for name in kept.columns))
        return int(observed.collect()[0][0])


def contenders() -> list[str]:
    """Return the columns of the table."""
    return ["dagflow", "polars", "DuckDB", "Spark", *peers.installed()]


def cpu_seconds() -> float:
    """Return the CPU time of this process and of its live descendants."""
    ticks = 0
    children = _children(os.getpid())
    while children:
        process = children.pop()
        with contextlib.suppress(FileNotFoundError):
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
            children += _children(process)
    # The time of this process is known more exactly than to a tick.
    return ticks / os.sysconf("SC_CLK_TCK") + time.process_time()


def _children(process: int) -> list[int]:
    children: list[int] = []
    for thread in Path(f"/proc/{process}/task").iterdir():
        # A thread may end while others are looked at.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            children += map(int, (thread / "children").read_text().split())
    return children


def read_by_dagflow(case: MeasuredFormat, path: str, is_filtered: bool) -> int:
    """Read a file, and count its records, or those that a filter keeps."""
    import pyarrow.compute as pc

    from operators.transform.record_filter import RecordFilter

    dropping = RecordFilter(drop={"prefix": "."})
    counted: list[int] = []

    def count(batch: RecordBatch) -> None:
        counted.append(len(batch))

    def select(batch: RecordBatch) -> None:
        count(batch.filter(pc.equal(batch.to_arrow().column(case.column), "b")) if len(batch) else batch)

    dropping.output.connect(count)
    chosen = select if case.column else getattr(dropping, dropping.handlers["input"][1])
    read_blocks(path, case.format, chosen if is_filtered else count, is_counted=not is_filtered)
    return sum(counted)


def read_blocks(path: str, format: Any, take: Callable[[RecordBatch], object], *, is_counted: bool = False) -> None:
    """Read all blocks of a file one after the other, as a task does in which records are taken, or only counted."""
    from dagflow.api.capabilities import WantedRows
    from operators.files.metadata import BlockMetadata, FileVersion
    from operators.reader.block_reader import BlockReader

    found = StorageContext.default().stat(path)
    version, size = FileVersion(found.size_bytes, found.mtime_ns, found.etag), found.size_bytes
    blocks = [
        BlockMetadata(index, path, version, start, min(start + BLOCK_BYTES, size), start + BLOCK_BYTES >= size)
        for index, start in enumerate(range(0, size, BLOCK_BYTES))
    ]
    reader = BlockReader(format=format)
    reader.wanted = WantedRows(columns=frozenset() if is_counted else None)
    reader.messages.connect(take)
    prescan = reader.prescan()
    results = [prescan.scan(block, StorageContext.default()) if prescan.needs_scan(block) else None for block in blocks]
    for block in prescan.resolve(blocks, results):
        for _ in reader.read(block):
            pass
    reader.end_window()


def make_file(case: MeasuredFormat, path: Path, size_bytes: int) -> None:
    """Write a file of about this size."""
    dice = random.Random(1)
    pool = [case.record(dice) for _ in range(POOL)]
    with path.open("wb") as file:
        file.write(case.head)
        while file.tell() < size_bytes:
            dice.shuffle(pool)
            file.write(b"".join(pool))


def speed_of(name: str, read: Callable[[], int], size_bytes: int, rounds: int) -> tuple[float, int]:
    """Return the median megabytes per second of CPU time, and the count; the first round warms up.

    All but Spark work in this process; its JVM also compiles and collects garbage while it has nothing to do.
    """
    clock = cpu_seconds if name == "Spark" else time.process_time
    spent = []
    for _ in range(rounds + 1):
        before = clock()
        counted = read()
        spent.append(clock() - before)
    return size_bytes / 1e6 / statistics.median(spent[1:]), counted


def measure(case: MeasuredFormat, work: Path, size_bytes: int, rounds: int) -> tuple[str, bool]:
    """Return a row of the table, and whether the promise holds."""
    path = work / "input"
    make_file(case, path, size_bytes)
    size = path.stat().st_size
    readers: dict[str, Callable[[str, bool], int]] = {
        "dagflow": lambda url, is_filtered: read_by_dagflow(case, url, is_filtered),
        **case.peers,
    }
    cells = {}
    speeds: dict[str, tuple[float, ...]] = {}
    counts: dict[str, tuple[int, ...]] = {}
    for name, read in readers.items():
        runs = [
            speed_of(name, lambda read=read, chosen=chosen: read(str(path), chosen), size, rounds)  # type: ignore[misc]  # lambda
            for chosen in (False, True)
        ]
        speeds[name], counts[name] = tuple(run[0] for run in runs), tuple(run[1] for run in runs)
        cells[name] = " / ".join(f"{run[0]:,.0f}" for run in runs)
    if len(set(counts.values())) > 1:
        raise ValueError(f"{case.name}: the contenders disagree: {counts}")
    least = [case.least or 0, case.least_filtered or case.least or 0]
    is_kept = all(speed >= promised for speed, promised in zip(speeds["dagflow"], least, strict=True))
    promise = "" if case.least is None else f"≥ {' / '.join(f'{each:,}' for each in dict.fromkeys(least))}"
    promise += "" if is_kept else " **missed**"
    shown = [cells.get(name, "-") for name in contenders()]
    path.unlink()
    return f"| {case.name} | {promise} | {' | '.join(shown)} |", is_kept


def on_two_cores(case: MeasuredFormat, work: Path, size_bytes: int, rounds: int, two: TwoProcesses) -> str:
    """Return a row of the second table."""
    paths = [work / "first", work / "second"] if case.is_serial else [work / "first"]
    for path in paths:
        make_file(case, path, int(size_bytes * case.share))
    size = sum(path.stat().st_size for path in paths)
    dealt = blocks_of(paths[0], DEALT_BLOCKS)
    read = [blocks_of(path, 1)[0] for path in paths] if case.is_serial else dealt
    acts: list[Act] = []
    for processes in (1, 2):
        acts += [
            partial(two.read_blocks, case.format, read, processes),
            partial(two.copy, dealt, processes),
            partial(two.count_in_cache, processes),
        ]
    taken = two.rounds(rounds, *acts)
    for path in paths:
        path.unlink()
    one, both = (size / 1e6 / statistics.median(seconds[index] for seconds in taken) for index in (0, 3))
    ratios = [statistics.median(seconds[index] / seconds[index + 3] for seconds in taken) for index in range(3)]
    what = "two files" if case.is_serial else f"{len(dealt)} blocks"
    return f"| {case.name} | {what} | {one:,.0f} | {both:,.0f} | {' | '.join(f'{ratio:.2f}' for ratio in ratios)} |"


def main() -> None:
    """Print the tables; exit with 1 if a promise does not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=parse_size, default="100MB")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="the rows whose names begin so")
    parser.add_argument("--part", choices=("cpu", "cores", "doors", "all"), default="all", help="which table")
    arguments = parser.parse_args()
    size_bytes = parse_size(arguments.size)
    with tempfile.TemporaryDirectory() as name, memory_for_tasks():
        work = Path(name)
        kept = True
        if arguments.part in ("cpu", "all"):
            print("MB per second of CPU time: counted / filtered and counted\n")
            heads = ("format", "promised", *contenders())
            print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}", flush=True)
            for case in cases(Peers(work)):
                if case.name.startswith(arguments.only):
                    line, is_kept = measure(case, work, size_bytes, arguments.rounds)
                    kept = kept and is_kept
                    print(line, flush=True)
        if arguments.part in ("doors", "all"):
            from benchmarks.doors import compare

            print("\nMB of the stored file per second of CPU time\n")
            kept = compare(work, size_bytes, arguments.rounds, read_blocks, cpu_seconds) and kept
        if arguments.part in ("cores", "all"):
            print("\nMB per second of wall time\n")
            print("| format | read | one process | two processes | ratio | copying alone | loop in cache |")
            print("|---|---|---|---|---|---|---|", flush=True)
            with TwoProcesses() as two:
                for case in cases(None):
                    if case.name.startswith(arguments.only):
                        print(on_two_cores(case, work, size_bytes, arguments.rounds, two), flush=True)
    sys.exit(0 if kept else 1)


if __name__ == "__main__":
    main()
