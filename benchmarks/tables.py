"""Makes tables of CSV and of JSON lines with dagflow and with others, in turn on the same machine.

    python -m benchmarks.tables                   1 GB for each task, three rounds
    python -m benchmarks.tables --size 100MB --rounds 1 --only csv,groups

| task | input | output |
|---|---|---|
| csv | ten typed columns of CSV, one of them in quotes, with commas and line breaks | Parquet |
| json | JSON lines with a declared schema | dagflow and dlt: Delta; others: Parquet |
| select | CSV, a condition that keeps three fifths of the rows, and three expressions | Parquet |
| groups | CSV, a count, a sum and a maximum for each of a million keys | Parquet |

Every contender reads the same files, is told their columns, and writes zstd to local disk. Two rounds warm everything
up, and check that all have made as many rows with the same sums. Prints medians with their range, the load of the
machine, and the peak memory of dagflow's tasks and driver. Needs the extra `benchmark`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import measuring, table_contenders
from benchmarks.measuring import SPARKS_JAVA, WARM_UP_ROUNDS, Promise, peak_mib
from benchmarks.table_inputs import make_input
from benchmarks.throughput import python_workers
from dagflow.api.properties import parse_size

if TYPE_CHECKING:
    from pyspark import SparkContext

TASK_LIMIT_MIB = 500
DRIVER_LIMIT_MIB = 300

_READ = """
name: tables
attributes: {checkpoint: WORK/journal}
operators:
  splitter: {class: FileSplitterInput, properties: {files: WORK/input, block_size: 64MiB}}
"""

_STREAMS = """
streams:
  blocks: {from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}
"""

_ALL_ROWS = _STREAMS + "  rows: {from: reader.messages, to: table.input}\n"

CSV = f"""{_READ}
  reader:
    class: BlockReader
    properties:
      format:
        type: csv
        columns:
          {{id: int64, placed: timestamp, qty: int32, price: "decimal(9, 2)", paid: bool, day: date}}
  table: {{class: TableWriter, properties: {{table: "parquet:WORK/output"}}, partition: parallel}}
{_ALL_ROWS}"""

JSON = f"""{_READ}
  reader:
    class: BlockReader
    properties:
      format:
        type: json_lines
        columns:
          {{id: int64, at: timestamp, user: string, kind: string, amount: double, ok: bool, referrer: string}}
  table:
    class: TableWriter
    properties: {{table: "delta:WORK/output", commit: {{every_millis: 0}}}}
    partition: parallel
{_ALL_ROWS}"""

SELECT = f"""{_READ}
  reader:
    class: BlockReader
    properties: {{format: {{type: csv, columns: {{sold_at: timestamp, qty: int32, price: double}}}}}}
  select:
    class: Select
    properties:
      where: qty > 0 and shop <> 'shop 3'
      columns: {{total: price * qty, day: cast(sold_at as date), label: upper(product)}}
    partition: parallel
  table: {{class: TableWriter, properties: {{table: "parquet:WORK/output"}}, partition: parallel}}
{_STREAMS}
  rows: {{from: reader.messages, to: select.input}}
  kept: {{from: select.output, to: table.input}}
"""

GROUPS = f"""{_READ}
  reader:
    class: BlockReader
    properties: {{format: {{type: csv, columns: {{user: int64, qty: int32, price: double}}}}}}
  groups:
    class: Aggregate
    properties: {{by: user, columns: {{n: count(*), total: sum(qty), most: max(price)}}, over: run}}
    partition: parallel
  table: {{class: TableWriter, properties: {{table: "parquet:WORK/output"}}, partition: parallel}}
{_STREAMS}
  rows: {{from: reader.messages, to: groups.input}}
  made: {{from: groups.output, to: table.input}}
"""


@dataclass(frozen=True, slots=True)
class Task:
    """What all contenders do.

    Attributes:
        input: The kind of input.
        app: dagflow's app; WORK stands for the directory in which it works.
        sums: What of the rows must be equal, as expressions of DuckDB.
        promises: How much faster dagflow must be.
    """

    input: str
    app: str
    sums: str
    promises: tuple[Promise, ...]


TASKS = {
    "csv": Task(
        "orders",
        CSV,
        "count(*), sum(id), sum(price), sum(length(note))",
        (Promise("dagflow", 2.5, "Spark SQL"), Promise("dagflow", 0.8, "polars")),
    ),
    "json": Task(
        "events",
        JSON,
        "count(*), sum(id), sum(round(amount * 100)), count(referrer)",
        (Promise("dagflow", 2.0, "Spark SQL"), Promise("dagflow", 0.8, "DuckDB"), Promise("dagflow", 1.0, "dlt")),
    ),
    "select": Task(
        "sales",
        SELECT,
        "count(*), sum(round(total * 100)), min(day), max(label)",
        (Promise("dagflow", 3.0, "Spark SQL"), Promise("dagflow", 0.8, "polars")),
    ),
    "groups": Task(
        "counts",
        GROUPS,
        "count(*), sum(n), sum(total), sum(round(most * 100))",
        (Promise("dagflow", 1.0, "Spark SQL"),),
    ),
}


def run_dagflow(context: SparkContext, work: Path, task: str) -> None:
    """Run an app from an empty checkpoint, with journal, checks and publishing."""
    from dagflow.engine.run import run
    from dagflow.plan.load import load_app
    from dagflow.runtime.spark import SparkRuntime

    shutil.rmtree(work / "journal", ignore_errors=True)
    path = work / "tables.yaml"
    path.write_text(TASKS[task].app.replace("WORK", str(work)))
    summary = run(load_app(str(path)), runtime=lambda program: SparkRuntime(program, context))
    if summary.state != "completed" or summary.rejected:
        raise ValueError(f"dagflow's run ended as {summary}")


class TableContest:
    """The contenders of one task on one Spark session with one working directory."""

    def __init__(self, task: str, work: Path, context: SparkContext) -> None:
        self.task = TASKS[task]
        self.output = work / "output"
        others = table_contenders.contenders(task, work, context)
        self.contenders: dict[str, Callable[[], object]] = {
            **others,
            "dagflow": lambda: run_dagflow(context, work, task),
        }

    def measure(self, name: str) -> float:
        """Return the seconds of one contender, after the disk's queue is empty."""
        shutil.rmtree(self.output, ignore_errors=True)
        os.sync()
        started = time.perf_counter()
        self.contenders[name]()
        return time.perf_counter() - started

    def outcome(self, name: str) -> tuple[Any, ...]:
        """Return the sums over what a contender has written."""
        import duckdb

        files = f"'{self.output}/**/*.parquet'"
        if (deltas := list(self.output.rglob("_delta_log"))) and name in ("dagflow", "dlt"):
            from deltalake import DeltaTable

            table = next(each.parent for each in deltas if "_dlt" not in str(each.parent.name))
            files = str([uri.removeprefix("file://") for uri in DeltaTable(str(table)).file_uris()])
        found = duckdb.execute(f"SELECT {self.task.sums} FROM read_parquet({files})").fetchone()
        assert found is not None
        return tuple(found)

    def run(self, rounds: int) -> dict[str, list[float]]:
        """Return the seconds of each contender in each round.

        Raises:
            ValueError: A contender wrote something else than the first one.
        """
        outcomes = {}
        for name in list(self.contenders) * WARM_UP_ROUNDS:
            self.measure(name)
            outcomes[name] = self.outcome(name)
            if len(set(outcomes.values())) > 1:
                raise ValueError(f"the contenders disagree: {outcomes}")
        return measuring.in_turn(self.contenders, self.measure, rounds)


def measure_memory(work: Path, task: str, cores: int) -> None:
    """Run dagflow alone, and print the peak memory of its processes in MiB."""
    from dagflow.runtime.spark_context import start_context

    context = start_context("memory", f"local[{cores}]", {}, work / "spark.log")
    run_dagflow(context, work, task)
    print(json.dumps({"task": max(map(peak_mib, python_workers())), "driver": peak_mib()}))
    context.stop()


def report(task: str, seconds: Mapping[str, list[float]], memory: Mapping[str, float]) -> bool:
    """Print the rows of a task and its promises; return whether all hold."""
    median = measuring.medians(seconds)
    rows = [
        [task, name, f"{median[name]:.2f}", measuring.range_of(values), f"{median[name] / median['dagflow']:.2f}"]
        for name, values in seconds.items()
    ]
    print(f"\n{measuring.table(['task', 'contender', 'median s', 'range s', 'time relative to dagflow'], rows)}\n")
    all_hold = measuring.check_promises(TASKS[task].promises, median)
    for who, limit in (("task", TASK_LIMIT_MIB), ("driver", DRIVER_LIMIT_MIB)):
        text = f"{task}: {who} took at most {memory[who]:.0f} MiB, promised {limit}"
        all_hold &= measuring.check(memory[who] < limit, text)
    return all_hold


def contest(task: str, folder: Path, context: SparkContext, options: argparse.Namespace) -> bool:
    """Make the input of a task, let all do it, and report; return whether the promises hold."""
    work = folder / task
    work.mkdir()
    make_input(work / "input", TASKS[task].input, parse_size(options.size))
    before = os.getloadavg()[0]
    seconds = TableContest(task, work, context).run(options.rounds)
    print(f"load of the machine before and after: {before:.1f}, {os.getloadavg()[0]:.1f}")
    shutil.rmtree(work / "output")
    memory = measuring.in_own_process("tables", "--memory", str(work), task, "--cores", str(options.cores))
    holds = report(task, seconds, memory)
    shutil.rmtree(work)
    return holds


def main() -> int:
    """Run the benchmark; return 1 if a promise does not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="1GB", help="bytes of input of each task, such as 1GB")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", default=",".join(TASKS), help="tasks, with commas between them")
    parser.add_argument("--memory", nargs=2, metavar=("WORK", "TASK"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.environ["POLARS_MAX_THREADS"] = str(options.cores)
    if options.memory:
        measure_memory(Path(options.memory[0]), options.memory[1], options.cores)
        return 0
    from dagflow.runtime.spark_context import start_context

    with tempfile.TemporaryDirectory() as folder:
        # Spark's contenders get the settings that dagflow gives itself, except those of Java.
        context = start_context("tables", f"local[{options.cores}]", SPARKS_JAVA, Path(folder) / "spark.log")
        try:
            held = [contest(task, Path(folder), context, options) for task in options.only.split(",")]
        finally:
            context.stop()
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
