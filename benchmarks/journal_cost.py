"""The cost of the journal: the main job without a journal, with it, and with `durability: power`.

    python -m benchmarks.journal_cost               1 GB, seven rounds, about two minutes
    python -m benchmarks.journal_cost --size 100MB --rounds 3

Runs the job of throughput.py (lines are read, filtered and written to local disk) in three ways, one after the other
in each round. Without a journal no record is encoded, written or synced, and no epoch is checked; files are still
published by a link.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.measuring import check, range_of, table
from benchmarks.throughput import APP, BUILT_IN, make_input, size_of
from dagflow.api.properties import parse_size
from dagflow.engine import run_setup
from dagflow.engine.run import run
from dagflow.journal.events import Event
from dagflow.journal.journal import Journal

if TYPE_CHECKING:
    from pyspark import SparkContext

WAYS = ("no journal", "durability: process", "durability: power")
PROMISED = 1.05
"""Largest ratio of the time with the journal to the time without it."""


class JournalSeconds:
    """Adds up the seconds that a run spends in its journal."""

    def __init__(self) -> None:
        self.seconds = 0.0

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        """Add the time of the `with` block."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds += time.perf_counter() - started


def journal_class(way: str, spent: JournalSeconds) -> type[Journal]:
    """Return a journal that measures its time, or one that writes nothing."""

    class Counted(Journal):
        """Measures the time of a window's records."""

        def append(self, *events: Event) -> None:
            """Append and measure."""
            with spent.counted():
                super().append(*events)

        def maintain(self) -> None:
            """Compact and measure."""
            with spent.counted():
                super().maintain()

    class Unwritten(Journal):
        """Changes the state in memory only."""

        def append(self, *events: Event) -> None:
            """Apply the events to the state."""
            for event in events:
                self.state.apply(event)

        def maintain(self) -> None:
            """Do nothing: there is nothing to compact."""

    return Unwritten if way == "no journal" else Counted


def run_once(context: SparkContext, work: Path, way: str, block_size: str) -> tuple[float, float, int]:
    """Return the seconds of one run, its seconds in the journal, and its number of windows.

    Raises:
        ValueError: The run took another journal.
    """
    from dagflow.plan.load import load_app
    from dagflow.runtime.spark import SparkRuntime

    for name in ("journal", "output"):
        shutil.rmtree(work / name, ignore_errors=True)
    durability = "power" if way.endswith("power") else "process"
    text = APP.format(work=work, filter=BUILT_IN, block_size=block_size)
    path = work / "journal_cost.yaml"
    path.write_text(text.replace("/journal}", f"/journal, durability: {durability}}}"))
    app = load_app(str(path))
    spent = JournalSeconds()
    names = vars(run_setup)
    original, names["Journal"] = names["Journal"], journal_class(way, spent)
    os.sync()
    started = time.perf_counter()
    try:
        summary = run(app, runtime=lambda program: SparkRuntime(program, context))
    finally:
        names["Journal"] = original
    took_s = time.perf_counter() - started
    if (spent.seconds > 0) == (way == WAYS[0]):
        raise ValueError(f"{way}: the run took another journal than the one that measures")
    return took_s, spent.seconds, summary.windows


def main() -> int:
    """Run the benchmark; return 1 if the promise does not hold."""
    from dagflow.runtime.spark_context import start_context

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="1GB", help="bytes of input, such as 1GB")
    parser.add_argument("--block-size", default="16MiB", help="smaller blocks make more output files")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--directory", type=Path, help="where to work; the default is the system's temporary directory")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory) as folder:
        work = Path(folder)
        kept = make_input(work / "input", parse_size(options.size))
        context = start_context("journal-cost", f"local[{options.cores}]", {}, work / "spark.log")
        runs: dict[str, list[tuple[float, float, int]]] = {way: [] for way in WAYS}
        try:
            for number in range(options.rounds + 1):
                for way in WAYS:
                    measured = run_once(context, work, way, options.block_size)
                    if size_of(work / "output") != kept:
                        raise ValueError(f"{way}: {size_of(work / 'output')} bytes were written instead of {kept}")
                    # The first round warms up: Spark, its workers, and the page cache.
                    if number:
                        runs[way].append(measured)
        finally:
            context.stop()
        return 0 if report(runs, size_of(work / "input")) else 1


def report(runs: dict[str, list[tuple[float, float, int]]], size_bytes: int) -> bool:
    """Print the table; return whether the promise holds."""
    median = {way: statistics.median(seconds for seconds, _, _ in measured) for way, measured in runs.items()}
    print(f"{size_bytes / 1e9:.2f} GB\n")
    rows = []
    for way, measured in runs.items():
        journal = statistics.median(spent for _, spent, _ in measured)
        windows = max(count for _, _, count in measured)
        ratio = median[way] / median[WAYS[0]]
        seconds = [seconds for seconds, _, _ in measured]
        rows.append([way, f"{median[way]:.2f}", range_of(seconds), f"{journal:.3f}", str(windows), f"{ratio:.3f}"])
    heads = ["way", "median s", "range s", "in the journal s", "windows", "time relative to no journal"]
    print(table(heads, rows) + "\n")
    # All ways of a round meet the same disturbances, so the median of the rounds' ratios varies less.
    paired = statistics.median(mine[0] / other[0] for mine, other in zip(runs[WAYS[1]], runs[WAYS[0]], strict=True))
    return check(paired <= PROMISED, f"{WAYS[1]} takes {paired:.3f} x in the median round, promised {PROMISED}")


if __name__ == "__main__":
    sys.exit(main())
