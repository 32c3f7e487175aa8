"""Reads and merges small files with dagflow and with others, in turn on the same machine.

    python -m benchmarks.small_files                           100,000 files of 5 KB, three rounds
    python -m benchmarks.small_files --files 20000 --rounds 1  a first impression
    python -m benchmarks.small_files --large                   also 1,000,000 files: memory, rate, rescan
    python -m benchmarks.small_files --files 0 --objects 0 --large --directory /dev/shm
                                                               only these, in memory: takes 14 GB
    python -m benchmarks.small_files --files 0 --objects 0 --names 10000000
                                                               ten million names of few files: memory, rate, rescan

Two jobs: drop the lines that begin with a dot and write the rest; merge whole files into large ones. dagflow does
all of its usual work: journal, index of files, version checks, publishing. Two rounds warm everything up and check the
output. In each further round every contender runs once. Prints medians with their range. Needs the extra `benchmark`.
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from benchmarks import measuring
from benchmarks.measuring import SPARKS_JAVA, WARM_UP_ROUNDS, Promise, touch_memory
from benchmarks.small_file_jobs import FILE_BYTES, JOBS, make_input, run_dagflow
from benchmarks.small_files_alone import report_growth, report_names, report_store

SLOW = "Spark wholeTextFiles"
SLOW_SHARE = 50
"""The slow contender gets one part in this many of the files, and runs once: Hadoop's local file system starts a
process for the permissions of each listed file, which takes milliseconds."""

RATE = 30_000
"""Files per second that dagflow promises for both jobs."""

PROMISES = [
    Promise("dagflow filter", 8.0, "Spark readStream"),
    Promise("dagflow merge", 8.0, "Spark readStream"),
    Promise("dagflow merge", 4.0, "Spark binaryFile"),
    Promise("dagflow merge", 0.5, "bare Python, each core"),
]


def size_of(folder: Path) -> int:
    """Return the bytes of all visible files below a folder, without indexes."""
    size = 0
    for path in folder.rglob("*"):
        is_hidden = any(part[0] in "._" for part in path.relative_to(folder).parts)
        if path.is_file() and not is_hidden and not path.name.endswith(".index.parquet"):
            size += path.stat().st_size
    return size


def concatenate(paths: list[str], target: str) -> None:
    """Read files and write them one behind the other."""
    with open(target, "wb") as sink:
        for path in paths:
            with open(path, "rb") as source:
                sink.write(source.read())


class SmallFileContest:
    """The contenders on one Spark session."""

    def __init__(self, work: Path, cores: int) -> None:
        from pyspark.sql import SparkSession

        from dagflow.runtime.spark_context import start_context

        # By default Spark lists 100,000 paths with a task for each, and counts a file as 4 MB. Without these two
        # settings it is several times slower.
        tuned = {
            **SPARKS_JAVA,
            "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000000",
            "spark.sql.files.openCostInBytes": "4096",
        }
        self.work, self.cores = work, cores
        self.output = work / "output"
        self.context = start_context("small-files", f"local[{cores}]", tuned, work / "spark.log")
        self.spark = SparkSession(self.context)
        self.paths = sorted(str(path) for path in (work / "input").rglob("*.txt"))
        self.contenders: dict[str, Callable[[], object]] = {
            "Spark readStream": self.stream,
            "Spark binaryFile": self.binary_file,
            "dask": self.dask,
            "bare Python, one": self.one_process,
            "bare Python, each core": self.processes,
            "dagflow filter": lambda: run_dagflow(self.context, work, JOBS["filter"], f"{work}/input", cores),
            "dagflow merge": lambda: run_dagflow(self.context, work, JOBS["merge"], f"{work}/input", cores),
            "dagflow merge, reread": lambda: run_dagflow(
                self.context, work, JOBS["merge"], f"{work}/input", cores, "on_change: {appended: reread}"
            ),
        }

    def stream(self) -> None:
        """Filter with Spark's streaming file source, once over all files."""
        lines = self.spark.readStream.text(str(self.work / "input" / "*"))
        kept = lines.filter(~lines["value"].startswith("."))
        writer = kept.writeStream.format("text").option("checkpointLocation", str(self.work / "stream"))
        writer.trigger(availableNow=True).start(str(self.output)).awaitTermination()

    def binary_file(self) -> None:
        """Merge with Spark's source of whole files and a Python function over Arrow batches."""
        output = str(self.output)
        os.mkdir(output)

        def merge(batches: Iterator[Any]) -> Iterator[Any]:
            import pyarrow as pa

            with tempfile.NamedTemporaryFile(dir=output, prefix="part-", delete=False) as sink:
                for batch in batches:
                    for content in batch.column("content").to_pylist():
                        sink.write(content)
            yield pa.RecordBatch.from_pydict({"done": [1]})

        files = self.spark.read.format("binaryFile").load(str(self.work / "input" / "*")).select("content")
        files.mapInArrow(merge, "done long").collect()

    def whole_text_files(self) -> float:
        """Return the seconds of Spark's oldest source of whole files for its share, scaled to all files."""
        folders = sorted(str(path) for path in (self.work / "input").iterdir())
        folders = folders[: max(1, len(folders) // SLOW_SHARE)]
        share = [path for path in self.paths if os.path.dirname(path) in folders]
        output = str(self.output)

        def merge(contents: Iterable[str]) -> Iterable[int]:
            with tempfile.NamedTemporaryFile(dir=output, prefix="part-", delete=False) as sink:
                for content in contents:
                    sink.write(content.encode())
            yield 1

        self.clear()
        os.mkdir(output)
        started = time.perf_counter()
        self.context.wholeTextFiles(",".join(folders), 2 * self.cores).values().mapPartitions(merge).count()
        seconds = time.perf_counter() - started
        if size_of(self.output) != sum(map(os.path.getsize, share)):
            raise ValueError(f"{SLOW} wrote {size_of(self.output)} bytes")
        return seconds * len(self.paths) / len(share)

    def dask(self) -> None:
        """Merge with sixteen tasks of the same loop on dask's process scheduler."""
        dask: Any = importlib.import_module("dask")
        self.output.mkdir()
        tasks = [
            dask.delayed(concatenate)(self.paths[number::16], str(self.output / f"{number}")) for number in range(16)
        ]
        dask.compute(*tasks, scheduler="processes", num_workers=self.cores)

    def one_process(self) -> None:
        """Merge with a loop in this process."""
        self.output.mkdir()
        concatenate(self.paths, str(self.output / "0"))

    def processes(self) -> None:
        """Merge with the same loop in a process for each core."""
        self.output.mkdir()
        share = -(-len(self.paths) // self.cores)
        workers = [
            multiprocessing.get_context("spawn").Process(
                target=concatenate, args=(self.paths[start : start + share], str(self.output / str(start)))
            )
            for start in range(0, len(self.paths), share)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

    def clear(self) -> None:
        """Remove the output of the last contender."""
        for left in ("output", "journal", "stream"):
            shutil.rmtree(self.work / left, ignore_errors=True)
        os.sync()
        touch_memory(self.work / "scratch", FILE_BYTES * len(self.paths))

    def measure(self, name: str) -> float:
        """Return the seconds of one contender, from an empty output and an empty journal."""
        self.clear()
        started = time.perf_counter()
        self.contenders[name]()
        return time.perf_counter() - started

    def run(self, rounds: int) -> dict[str, list[float]]:
        """Return the seconds of each contender in each round.

        Raises:
            ValueError: A contender wrote the wrong number of bytes.
        """
        whole = size_of(self.work / "input")
        kept = 0
        for name in list(self.contenders) * WARM_UP_ROUNDS:
            self.measure(name)
            wrote = size_of(self.output)
            is_filter = name in ("Spark readStream", "dagflow filter")
            kept = kept or (wrote if is_filter else 0)
            if wrote != (kept if is_filter else whole):
                raise ValueError(f"{name} wrote {wrote} bytes instead of {kept if is_filter else whole}")
        seconds = measuring.in_turn(self.contenders, self.measure, rounds)
        seconds[SLOW] = [self.whole_text_files()]
        return seconds


def report(seconds: dict[str, list[float]], files: int) -> bool:
    """Print the table and the promises; return whether all hold."""
    median = measuring.medians(seconds)
    heads = ["contender", "median s", "range s", "files/s", "time relative to dagflow merge"]
    rows = [
        [
            name,
            f"{value:.2f}",
            measuring.range_of(seconds[name]),
            f"{files / value:,.0f}",
            f"{value / median['dagflow merge']:.2f}",
        ]
        for name, value in median.items()
    ]
    print(f"\n{measuring.table(heads, rows)}\n\n{SLOW} ran once, on a part of the files; its time is scaled.\n")
    all_hold = True
    for name in ("dagflow filter", "dagflow merge"):
        rate = files / median[name]
        all_hold &= measuring.check(rate >= RATE, f"{name}: {rate:,.0f} files/s, promised {RATE:,}")
    return measuring.check_promises(PROMISES, median) and all_hold


def main() -> int:
    """Run the benchmark; return 1 if a promise does not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--objects", type=int, default=20_000, help="objects in the slow store; 0 leaves it out")
    parser.add_argument("--large", action="store_true", help="compare 10,000 with 1,000,000 files as well")
    parser.add_argument("--directory", type=Path, help="where to work; the default is the system's temporary directory")
    parser.add_argument("--names", type=int, default=0, help="filter so many names of few files as well")
    options = parser.parse_args()
    all_hold = True
    with tempfile.TemporaryDirectory(dir=options.directory) as folder:
        work = Path(folder)
        if options.files:
            make_input(work / "input", options.files)
            print(f"{options.files:,} files of {FILE_BYTES} bytes, {options.cores} cores, {options.rounds} rounds")
            contest = SmallFileContest(work, options.cores)
            try:
                seconds = contest.run(options.rounds)
            finally:
                contest.context.stop()
            all_hold &= report(seconds, options.files)
        if options.objects:
            all_hold &= report_store(work, options.cores, options.objects)
        if options.large:
            all_hold &= report_growth(work, options.cores, 10_000, 1_000_000)
        if options.names:
            report_names(work, options.cores, options.names)
    return 0 if all_hold else 1


if __name__ == "__main__":
    sys.exit(main())
