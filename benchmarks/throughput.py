"""Filters log lines with dagflow and with others, in turn on the same machine.

    python -m benchmarks.throughput               1 GB, five rounds, about four minutes
    python -m benchmarks.throughput --size 100MB --rounds 2

Makes lines of about 100 bytes, one in ten of which begins with a dot. Each contender reads all files, drops these lines
and writes the rest to local disk. Two rounds warm everything up and check the output. In each further round every
contender runs once. Prints medians with their range, and the peak memory of tasks and driver. Needs the extra
`benchmark`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import measuring
from benchmarks.measuring import SPARKS_JAVA, WARM_UP_ROUNDS, Promise, peak_mib, touch_memory
from dagflow.api.properties import parse_size

if TYPE_CHECKING:
    from pyspark import SparkContext

HERE = Path(__file__).resolve().parent
FILES = 2
POOL_LINES = 160_000

APP = """
name: throughput
attributes: {{checkpoint: {work}/journal}}
operators:
  splitter: {{class: FileSplitterInput, properties: {{files: {work}/input, block_size: {block_size}}}}}
  reader: {{class: BlockReader}}
  filter: {{{filter}, partition: parallel}}
  writer: {{class: RecordWriter, properties: {{path: {work}/output, file_name: block}}, partition: parallel}}
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  lines: {{from: reader.messages, to: filter.input}}
  kept: {{from: filter.output, to: writer.input}}
"""
BUILT_IN = 'class: RecordFilter, properties: {drop: {prefix: "."}}'
PER_RECORD = 'class: drop_comments.DropComments, properties: {prefix: "."}'

PROMISES = [
    Promise("dagflow", 2.5, "Spark SQL"),
    Promise("dagflow", 12.0, "PySpark RDD"),
    Promise("dagflow", 1.2, "polars"),
    Promise("dagflow", 0.5, "buffered copy"),
    Promise("dagflow, per record", 2.0, "PySpark RDD"),
]

TASK_LIMIT_MIB = 400
DRIVER_LIMIT_MIB = 300


def make_input(folder: Path, size_bytes: int, files: int = FILES) -> int:
    """Write the files; return the bytes of all lines that do not begin with a dot."""
    dice = random.Random(1)
    letters = "abcdefghijklmnopqrstuvwxyz0123456789/=&"
    lines = []
    for _ in range(POOL_LINES):
        dot = "." if dice.random() < 0.1 else ""
        text = "".join(dice.choices(letters, k=dice.randint(20, 115)))
        lines.append(f"{dot}2026-03-04T00:00:{dice.randint(0, 59):02d} host{dice.randint(10, 99)} {text}\n".encode())
    folder.mkdir()
    kept = 0
    for number in range(files):
        size = 0
        with (folder / f"{number}.log").open("wb") as file:
            while size < size_bytes / files:
                part = lines[: max(1, min(POOL_LINES, int((size_bytes / files - size) / 100)))]
                size += file.write(b"".join(part))
                kept += sum(len(line) for line in part if not line.startswith(b"."))
    return kept


def size_of(folder: Path) -> int:
    """Return the bytes of all files below a folder, without those that Hadoop adds."""
    return sum(path.stat().st_size for path in folder.rglob("[!._]*") if path.is_file())


def run_dagflow(context: SparkContext, work: Path, operator: str, block_size: str = "64MiB") -> None:
    """Run the engine on a running Spark from an empty checkpoint, with journal, checks and publishing."""
    from dagflow.engine.run import run
    from dagflow.plan.load import load_app
    from dagflow.runtime.spark import SparkRuntime

    shutil.rmtree(work / "journal", ignore_errors=True)
    shutil.copy(HERE.parent / "apps" / "drop_comments.py", work)
    path = work / "throughput.yaml"
    path.write_text(APP.format(work=work, filter=operator, block_size=block_size))
    app = load_app(str(path))
    modules = app.spec.user_modules() if app.spec else []
    summary = run(app, runtime=lambda program: SparkRuntime(program, context, modules=modules))
    if summary.state != "completed":
        raise ValueError(f"dagflow's run ended as {summary}")


class ThroughputContest:
    """The contenders on one Spark session with one working directory."""

    def __init__(self, work: Path, cores: int) -> None:
        import duckdb
        from pyspark.sql import SparkSession

        from dagflow.runtime.spark_context import start_context

        self.work = work
        self.output = work / "output"
        self.inputs = sorted(str(path) for path in (work / "input").iterdir())
        # Spark's contenders get the settings that dagflow gives itself, except those of Java.
        self.context = start_context("throughput", f"local[{cores}]", SPARKS_JAVA, work / "spark.log")
        self.spark = SparkSession(self.context)
        self.duckdb = duckdb.connect(config={"threads": cores, "preserve_insertion_order": False})
        self.contenders: dict[str, Callable[[], object]] = {
            "Spark SQL": self.spark_sql,
            "PySpark RDD": self.rdd,
            "polars": self.polars,
            "DuckDB": self.duck,
            "buffered copy": self.copy,
            "dagflow": lambda: run_dagflow(self.context, work, BUILT_IN),
            "dagflow, per record": lambda: run_dagflow(self.context, work, PER_RECORD),
        }

    def spark_sql(self) -> None:
        """Filter with Spark's own text source and sink, in the JVM."""
        lines = self.spark.read.text(str(self.work / "input"))
        lines.filter(~lines["value"].startswith(".")).write.text(str(self.output))

    def rdd(self) -> None:
        """Filter in Python on Spark's RDDs."""
        lines = self.context.textFile(str(self.work / "input"))
        lines.filter(lambda line: not line.startswith(".")).saveAsTextFile(str(self.output))

    def polars(self) -> None:
        """Filter with polars' streaming engine."""
        import polars as pl

        self.output.mkdir()
        lines = pl.scan_lines(self.inputs).filter(~pl.col("line").str.starts_with("."))
        lines.sink_csv(self.output / "lines", include_header=False, quote_style="never")

    def duck(self) -> None:
        """Filter with DuckDB's CSV reader and writer, without columns and quotes."""
        self.duckdb.execute(
            f"COPY (SELECT * FROM read_csv({self.inputs}, columns={{'line': 'VARCHAR'}}, delim=E'\\x01', quote='', "
            "escape='', header=false, auto_detect=false) WHERE NOT starts_with(line, '.')) "
            f"TO '{self.output}' (FORMAT csv, HEADER false, DELIMITER E'\\x01', QUOTE '', ESCAPE '', "
            "PER_THREAD_OUTPUT true)"
        )

    def copy(self) -> None:
        """Copy each file through a buffer of a process of its own, all at once and without a filter.

        Not as cp does, which lets the kernel copy: no program that looks at the bytes can be compared with that.
        """
        self.output.mkdir()
        copies = [
            subprocess.Popen(["dd", "bs=1M", "status=none", f"if={path}", f"of={self.output / Path(path).name}"])
            for path in self.inputs
        ]
        for copy in copies:
            copy.wait()

    def measure(self, name: str) -> float:
        """Return the seconds of one contender, after the disk's queue is empty and memory is available."""
        shutil.rmtree(self.output, ignore_errors=True)
        os.sync()
        touch_memory(self.work / "scratch", size_of(self.work / "input"))
        started = time.perf_counter()
        self.contenders[name]()
        return time.perf_counter() - started

    def run(self, rounds: int, kept_bytes: int) -> dict[str, list[float]]:
        """Return the seconds of each contender in each round.

        Raises:
            ValueError: A contender wrote the wrong number of bytes.
        """
        for name in list(self.contenders) * WARM_UP_ROUNDS:
            self.measure(name)
            wanted = size_of(self.work / "input") if name == "buffered copy" else kept_bytes
            if size_of(self.output) != wanted:
                raise ValueError(f"{name} wrote {size_of(self.output)} bytes instead of {wanted}")
        return measuring.in_turn(self.contenders, self.measure, rounds)

    def close(self) -> None:
        """Stop Spark."""
        self.context.stop()


def python_workers() -> list[int]:
    """Return the processes that run Spark's Python tasks for this process."""
    rows = subprocess.run(["ps", "-eo", "pid,ppid,args"], capture_output=True, text=True, check=True).stdout
    parent, command = {}, {}
    for row in rows.splitlines()[1:]:
        pid, parent_pid, text = row.split(None, 2)
        parent[int(pid)], command[int(pid)] = int(parent_pid), text
    return [pid for pid in parent if "pyspark.worker" in command[pid] and _descends(pid, parent)]


def _descends(pid: int, parent: dict[int, int]) -> bool:
    while pid in parent:
        pid = parent[pid]
        if pid == os.getpid():
            return True
    return False


def measure_memory(work: Path, cores: int, block_size: str) -> None:
    """Run dagflow alone with blocks of one size, and print the peak memory of its processes in MiB."""
    from dagflow.runtime.spark_context import start_context

    context = start_context("memory", f"local[{cores}]", {}, work / "spark.log")
    run_dagflow(context, work, BUILT_IN, block_size)
    print(json.dumps({"task": max(map(peak_mib, python_workers())), "driver": peak_mib()}))
    context.stop()


def memory_of(work: Path, cores: int, block_size: str) -> dict[str, float]:
    """Return what measure_memory finds in a new process."""
    shutil.rmtree(work / "output", ignore_errors=True)
    return measuring.in_own_process("throughput", "--memory", str(work), block_size, "--cores", str(cores))


def report(seconds: dict[str, list[float]], size_bytes: int) -> bool:
    """Print the table and the promises; return whether all hold."""
    median = measuring.medians(seconds)
    heads = ["contender", "median s", "range s", "GB/s", "time relative to dagflow"]
    rows = [
        [
            name,
            f"{value:.2f}",
            measuring.range_of(seconds[name]),
            f"{size_bytes / value / 1e9:.2f}",
            f"{value / median['dagflow']:.2f}",
        ]
        for name, value in median.items()
    ]
    print(f"\n{measuring.table(heads, rows)}\n")
    return measuring.check_promises(PROMISES, median)


def report_memory(work: Path, cores: int) -> bool:
    """Print the memory of tasks and driver for one file of 1 GiB; return whether the promises hold."""
    shutil.rmtree(work / "input")
    make_input(work / "input", 1 << 30, files=1)
    all_hold = True
    for block_size in ("1GiB", "64KiB"):
        found = memory_of(work, cores, block_size)
        for who, limit in (("task", TASK_LIMIT_MIB), ("driver", DRIVER_LIMIT_MIB)):
            text = f"blocks of {block_size}: {who} took at most {found[who]:.0f} MiB, promised {limit}"
            all_hold &= measuring.check(found[who] < limit, text)
    return all_hold


def main() -> int:
    """Run the benchmark; return 1 if a promise does not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="1GB", help="bytes of input, such as 1GB")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--directory", type=Path, help="where to work; the default is the system's temporary directory")
    parser.add_argument("--memory", nargs=2, metavar=("WORK", "BLOCK_SIZE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.environ["POLARS_MAX_THREADS"] = str(options.cores)
    if options.memory:
        measure_memory(Path(options.memory[0]), options.cores, options.memory[1])
        return 0
    with tempfile.TemporaryDirectory(dir=options.directory) as folder:
        work = Path(folder)
        kept_bytes = make_input(work / "input", parse_size(options.size))
        size_bytes = size_of(work / "input")
        print(f"{size_bytes / 1e9:.2f} GB in {FILES} files, {options.cores} cores, {options.rounds} rounds")
        contest = ThroughputContest(work, options.cores)
        try:
            seconds = contest.run(options.rounds, kept_bytes)
        finally:
            contest.close()
        holds = report(seconds, size_bytes)
        return 0 if report_memory(work, options.cores) and holds else 1


if __name__ == "__main__":
    sys.exit(main())
