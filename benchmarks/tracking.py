"""The cost of the index of files: time, memory and disk by the number of files.

    python -m benchmarks.tracking                          1 and 10 million files, in and out of order of path
    python -m benchmarks.tracking --entries 1000000
    python -m benchmarks.tracking --entries 40000000       takes some ten minutes, and 1 GB of disk
    python -m benchmarks.tracking --tree 1000000           also scans a real tree of that many files
    python -m benchmarks.tracking --entries --tree 100000 --spark   Spark's file source over the same tree

Files are taken in windows of 10,000 with a snapshot after each; their fingerprints come some windows later. Then a new
process restores the last snapshot, and compares a listing of all files, one of a hundred new and one modified, with the
index. Each step is a process of its own, so that its peak memory is its own. More than 10 million files are taken by
several processes, each of which continues from the last snapshot, as after a restart.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import pickle
import statistics
import subprocess
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.measuring import SPARKS_JAVA, in_own_process, peak_mib

WINDOW_FILES = 10_000
WINDOWS_UNREAD = 5
PROCESS_FILES = 10_000_000
DIRECTORY_FILES = 1_000
# Odd and not a multiple of 5, so that steps of this length visit every number below a power of ten.
SCATTER = 7_368_787
MIB = 1 << 20


def path_of(number: int) -> bytes:
    """Return a path of 81 bytes that ascends with the number."""
    return b"/data/landing-zone/region-01/%08d/service-access-log-part-%010d-0000.log.gz" % (
        number // DIRECTORY_FILES,
        number,
    )


def scrambled(number: int) -> int:
    """Return 64 bits that do not compress; the finaliser of splitmix64."""
    number = number * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF
    number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
    return number ^ number >> 27


def size_of(number: int) -> int:
    """Return a size up to 1 MB."""
    return scrambled(number) % 1_000_000


def fingerprint_of(number: int) -> int:
    """Return any 63 bits."""
    return scrambled(~number) >> 1


def mtime_ns_of(number: int) -> int:
    """Return a time at a hundred files a second."""
    return 1_700_000_000_000_000_000 + number * 10_000_000 + scrambled(number) % 10_000_000


def directory_mib(directory: Path) -> float:
    """Return the size of a directory on disk."""
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file()) / MIB


def track(directory: Path, entries: int, order: str, first: int) -> dict[str, Any]:
    """Take at most PROCESS_FILES files from a number on, and write the last snapshot."""
    from operators.files.metadata import FileFingerprints
    from operators.splitter.index.file_index import FileIndex
    from operators.splitter.index.pending_fingerprints import PendingFingerprints

    index = FileIndex(str(directory / "index"))
    ends = PendingFingerprints(index)
    unread: deque[FileFingerprints] = deque()
    if first:
        index.restore(pickle.loads((directory / "state").read_bytes()))
    windows_ms = []
    begun_s = time.process_time()
    state: Any = None
    last = min(first + PROCESS_FILES, entries)
    for start in range(first, last, WINDOW_FILES):
        numbers = range(start, min(start + WINDOW_FILES, last))
        taken = [number if order == "sorted" else number * SCATTER % entries for number in numbers]
        taken.sort()
        paths, sizes, times = list(map(path_of, taken)), list(map(size_of, taken)), list(map(mtime_ns_of, taken))
        names = [path.decode() for path in paths]
        unread.append(FileFingerprints.of("", names, sizes, times, list(map(fingerprint_of, taken))))
        columns = sizes, times, [9_000_000 + n for n in taken]
        begin = time.perf_counter()
        ends.begin_window(ends.window_id + 1)
        ends.add(index.record_all(paths, *columns, 1_700_000_000_000, [0] * len(taken)))
        ends.reports.note_snapshot(ends.window_id)
        state = index.snapshot()
        while len(unread) > (0 if numbers.stop == last else WINDOWS_UNREAD):
            ends.report(ends.window_id - len(unread) + 1, [unread.popleft()])
            ends.reports.state()
        windows_ms.append((time.perf_counter() - begin) * 1000)
    state = index.snapshot()
    index.close()
    (directory / "state").write_bytes(pickle.dumps(state))
    return {
        "cpu_us_per_file": (time.process_time() - begun_s) / (last - first) * 1e6,
        "window_p50_ms": statistics.median(windows_ms),
        "window_p99_ms": sorted(windows_ms)[len(windows_ms) * 99 // 100],
        "state_kb": (directory / "state").stat().st_size / 1000,
        "disk_mib": directory_mib(directory / "index"),
        "peak_mib": peak_mib(),
    }


def check(directory: Path, entries: int) -> dict[str, Any]:
    """Restore the snapshot, and compare a listing of all files with it."""
    import numpy as np

    from operators.splitter.index.file_index import FileIndex

    # A collection of what was imported takes 20 ms, and would fall into what is measured by chance.
    gc.collect()
    begin = time.perf_counter()
    index = FileIndex(str(directory / "index"))
    index.restore(pickle.loads((directory / "state").read_bytes()))
    view = index.view()
    assert view.look_up([path_of(0)]).known.all()
    restart_s = time.perf_counter() - begin
    found, spent_s = 0, 0.0
    for start in range(1, entries, 8192):
        numbers = range(start, min(start + 8192, entries))
        paths = [path_of(number) for number in numbers]
        sizes = np.array([size_of(number) for number in numbers])
        # One of a hundred has another name, which sorts after its own; another one has another size.
        for position in range(0, len(paths), 100):
            paths[position] += b"~"
        sizes[50::100] += 1
        begin = time.process_time()
        answers = view.look_up(paths)
        found += int((answers.known & (answers.size_bytes == sizes)).sum())
        spent_s += time.process_time() - begin
    assert abs(found - entries * 0.98) <= 2 * (entries / 8192 + 2), found
    return {"restart_ms": restart_s * 1000, "check_cpu_us_per_file": spent_s / entries * 1e6, "peak_mib": peak_mib()}


def scan(directory: Path, entries: int) -> dict[str, Any]:
    """Run a splitter over a real tree, and once more after a restart."""
    from dagflow.api.context import OperatorContext
    from operators import FileSplitterInput

    class Services:
        follow = False
        operator_index = 0
        state_url = str(directory / "index")
        held_files = ()
        output_locations = ()

        def in_tasks(self, function: Callable[[Any], Any], items: list[Any]) -> list[Any]:
            return [function(item) for item in items]

        def watched(self, what: str) -> contextlib.AbstractContextManager[None]:
            return contextlib.nullcontext()

        def __init__(self) -> None:
            from dagflow.api.context import WindowBudget

            self.budget = WindowBudget(WINDOW_FILES, 1 << 50)

    def life(state: Any) -> tuple[int, float, Any]:
        splitter = FileSplitterInput(files=str(directory / "tree"))
        counters: Counter[str] = Counter()
        splitter.setup(OperatorContext(counters=counters, control=Services()))
        begin = time.perf_counter()
        if state is not None:
            splitter.restore(state)
        files = -1
        while files != counters["files"]:
            files = counters["files"]
            splitter.begin_window(0)
            splitter.emit_tuples()
            splitter.end_window()
            state = splitter.snapshot()
        splitter.teardown()
        return files, (time.perf_counter() - begin) / entries * 1e6, state

    files, first_us, state = life(None)
    again, again_us, _ = life(state)
    assert (files, again) == (entries, 0), (files, again)
    return {"first_us_per_file": first_us, "again_us_per_file": again_us, "peak_mib": peak_mib()}


def spark(directory: Path, entries: int) -> dict[str, Any]:
    """Run Spark's file source over the tree, in batches as large as our windows, and once more."""
    from pyspark.sql import SparkSession

    from dagflow.runtime.spark_context import start_context

    conf = {**SPARKS_JAVA, "spark.sql.streaming.numRecentProgressUpdates": "100000"}
    session = SparkSession(start_context("tracking", "local[2]", conf, directory / "spark.log"))
    source = session.readStream.format("text").option("maxFilesPerTrigger", WINDOW_FILES)

    def life() -> tuple[float, list[dict[str, int]]]:
        begin = time.perf_counter()
        writer = source.load(f"{directory}/tree/*").writeStream.format("noop").trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(directory / "checkpoint")).start()
        query.awaitTermination()
        return time.perf_counter() - begin, [progress["durationMs"] for progress in query.recentProgress]

    first_s, batches = life()
    # Time of a batch outside of its job: finding new files, and recording them.
    planning_ms = [batch.get("triggerExecution", 0) - batch.get("addBatch", 0) for batch in batches]
    again_s, _ = life()
    processes = subprocess.run(["ps", "-C", "java", "-o", "rss="], check=True, stdout=subprocess.PIPE).stdout.split()
    session.stop()
    return {
        "first_us_per_file": first_s / entries * 1e6,
        "again_us_per_file": again_s / entries * 1e6,
        "planning_p50_ms": statistics.median(planning_ms),
        "planning_max_ms": max(planning_ms),
        "batches": len(batches),
        "log_mib": directory_mib(directory / "checkpoint"),
        "java_rss_mib": max(int(rss) for rss in processes) / 1024,
    }


def grow(directory: Path, entries: int) -> None:
    """Make a real tree of empty files."""
    for number in range(entries):
        path = directory / "tree" / f"{number // DIRECTORY_FILES:06}"
        if number % DIRECTORY_FILES == 0:
            path.mkdir(parents=True)
        (path / f"service-access-log-part-{number:010}.log").touch()


def measured(step: str, directory: Path, entries: int, order: str, first: int = 0) -> dict[str, Any]:
    """Run one step in a process of its own."""
    options = ["--step", step, "--directory", str(directory), "--entries", str(entries)]
    return in_own_process("tracking", *options, "--order", order, "--first", str(first))


def rows(entries: list[int], tree: int, *, with_spark: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each measurement when it is done."""
    for count in entries:
        for order in ("sorted", "scattered"):
            with tempfile.TemporaryDirectory() as directory:
                for first in range(0, count, PROCESS_FILES):
                    name = f"track {min(first + PROCESS_FILES, count):,} {order}"
                    yield name, measured("track", Path(directory), count, order, first)
                yield f"check {count:,} {order}", measured("check", Path(directory), count, order)
    if tree:
        with tempfile.TemporaryDirectory() as directory:
            grow(Path(directory), tree)
            yield f"scan a tree of {tree:,}", measured("scan", Path(directory), tree, "sorted")
            if with_spark:
                yield f"Spark's file source, {tree:,}", measured("spark", Path(directory), tree, "sorted")


def main() -> None:
    """Print a line for each measurement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, nargs="*", default=[1_000_000, 10_000_000])
    parser.add_argument("--tree", type=int, default=0, help="number of real files")
    parser.add_argument("--spark", action="store_true", help="also run Spark's file source over the tree")
    parser.add_argument("--step", choices=["track", "check", "scan", "spark"], help=argparse.SUPPRESS)
    parser.add_argument("--directory", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--order", default="sorted", help=argparse.SUPPRESS)
    parser.add_argument("--first", type=int, default=0, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.step is None:
        for name, figures in rows(given.entries, given.tree, with_spark=given.spark):
            print(f"{name:32}" + "  ".join(f"{key} {value:,.1f}" for key, value in figures.items()), flush=True)
        return
    if given.step == "track":
        figures = track(given.directory, given.entries[0], given.order, given.first)
    else:
        figures = {"check": check, "scan": scan, "spark": spark}[given.step](given.directory, given.entries[0])
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
