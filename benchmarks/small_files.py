"""How fast dagflow reads and merges small files, side by side with what else does it on the same machine.

    python -m benchmarks.small_files                           100,000 files of 5 KB, three rounds
    python -m benchmarks.small_files --files 20000 --rounds 1  a first impression
    python -m benchmarks.small_files --large                   also 1,000,000 files: memory, rate, rescan
    python -m benchmarks.small_files --files 0 --objects 0 --large --directory /dev/shm
                                                               only these, in memory: 14 GB, and no disk to wait for
    python -m benchmarks.small_files --files 0 --objects 0 --names 10000000
                                                               as many names of few files: memory, rate, rescan

Two jobs: drop the lines that begin with a dot and write the rest as lines; merge the files whole into large ones.
dagflow does all that it always does: journal, index of processed files, version checks, publishing. Two rounds warm
everything up, and check the output; then come rounds in which each contender runs once; the table shows medians.
Needs the extra `benchmark`.
"""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import os
import random
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.sparks_java import SPARKS_JAVA
from benchmarks.throughput import WARM_UP_ROUNDS, peak_mib, touch_memory, verdict

if TYPE_CHECKING:
    from pyspark import SparkContext

FILES_IN_DIRECTORY = 1000
DIRECTORIES_OF_A_FILE = 50
"""File systems allow a file some 65,000 names."""
FILE_BYTES = 5000

SLOW = "Spark wholeTextFiles"
SLOW_SHARE = 50
"""Of the files of the others the slow contender gets one part in so many, and runs once: Hadoop's local file system
starts a process to ask for the permissions of each file that it lists, which takes milliseconds."""

SPLITTER = "{{files: {files}{more}}}"
FILTER = """
name: small-files
attributes: {{checkpoint: {work}/journal}}
operators:
  splitter: {{class: FileSplitterInput, properties: {splitter}}}
  reader: {{class: BlockReader, properties: {{min_readers: {cores}, max_readers: {cores}}}}}
  filter: {{class: RecordFilter, properties: {{drop: {{prefix: "."}}}}, partition: parallel}}
  writer: {{class: RecordWriter, properties: {{path: {work}/output}}, partition: parallel}}
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  lines: {{from: reader.messages, to: filter.input}}
  kept: {{from: filter.output, to: writer.input}}
"""
MERGE = """
name: small-files
attributes: {{checkpoint: {work}/journal}}
operators:
  splitter: {{class: FileSplitterInput, properties: {splitter}}}
  reader: {{class: BlockReader, properties: {{format: whole_file, min_readers: {cores}, max_readers: {cores}}}}}
  merger: {{class: FileMerger, properties: {{path: {work}/output}}, partition: parallel}}
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  files: {{from: reader.messages, to: merger.input}}
"""
JOBS = {"filter": FILTER, "merge": MERGE}

RATE, STORE_RATE = 30_000, 500
THRESHOLDS = [
    ("dagflow filter", 8.0, "Spark readStream"),
    ("dagflow merge", 8.0, "Spark readStream"),
    ("dagflow merge", 4.0, "Spark binaryFile"),
    ("dagflow merge", 0.5, "bare Python, each core"),
]
"""What dagflow promises: the first is at least so many times as fast as the last."""


def make_input(folder: Path, files: int) -> None:
    """Write files of about 5 KB, in directories of a thousand; one line in ten begins with a dot."""
    dice = random.Random(1)
    letters = "abcdefghijklmnopqrstuvwxyz0123456789/=& "
    dots = ["." if dice.random() < 0.1 else "" for _ in range(4000)]
    lines = [f"{dot}{''.join(dice.choices(letters, k=dice.randint(20, 115)))}\n".encode() for dot in dots]
    bodies = []
    for _ in range(200):
        body = b""
        while len(body) < FILE_BYTES:
            body += dice.choice(lines)
        bodies.append(body)
    for number in range(files):
        directory = folder / f"{number // FILES_IN_DIRECTORY:05}"
        if number % FILES_IN_DIRECTORY == 0:
            directory.mkdir(parents=True)
        (directory / f"file-{number:08}.txt").write_bytes(bodies[number % len(bodies)])


def make_names(folder: Path, names: int) -> None:
    """Give few files many names, in directories of a thousand; all of their lines begin with a dot."""
    content = b".all of this is dropped, so that what is measured needs no room\n" * 8
    for number in range(names // FILES_IN_DIRECTORY):
        directory = folder / f"{number // FILES_IN_DIRECTORY:03}" / f"{number:06}"
        directory.mkdir(parents=True)
        first = 0
        if number % DIRECTORIES_OF_A_FILE == 0:
            source = directory / "file-000.txt"
            source.write_bytes(content)
            first = 1
        for position in range(first, FILES_IN_DIRECTORY):
            os.link(source, directory / f"file-{position:03}.txt")


def size_of(folder: Path) -> int:
    """Bytes of all files below a folder, without indices, and without what writers keep under hidden names."""
    size = 0
    for path in folder.rglob("*"):
        is_hidden = any(part[0] in "._" for part in path.relative_to(folder).parts)
        if path.is_file() and not is_hidden and not path.name.endswith(".index.parquet"):
            size += path.stat().st_size
    return size


def concatenate(paths: list[str], target: str) -> None:
    """Read files and write them one behind the other: all that a bare loop does."""
    with open(target, "wb") as sink:
        for path in paths:
            with open(path, "rb") as source:
                sink.write(source.read())


class Watch:
    """Notes when a run's first window is published, and how many files it has."""

    def __init__(self) -> None:
        self.started = time.perf_counter()
        self.first_s = 0.0
        self.first_files = 0

    def progress(self, summary: Any) -> None:
        """See Observer."""
        if summary.windows and not self.first_s:
            self.first_s = time.perf_counter() - self.started
            self.first_files = summary.files

    def notice(self, text: str) -> None:
        """See Observer."""


def run_dagflow(context: SparkContext, work: Path, app: str, files: str, cores: int, more: str = "") -> Watch:
    """The engine on a running Spark, with all that it does; raises if it does not complete."""
    from dagflow.engine.run import run
    from dagflow.plan.load import load_app
    from dagflow.runtime.spark import SparkRuntime

    splitter = SPLITTER.format(files=files, more=f", {more}" if more else "")
    path = work / "small_files.yaml"
    path.write_text(app.format(work=work, splitter=splitter, cores=cores))
    watch = Watch()
    summary = run(load_app(str(path)), observer=watch, runtime=lambda program: SparkRuntime(program, context))
    if summary.state != "completed":
        raise ValueError(f"dagflow's run ended as {summary}")
    return watch


class Contest:
    """The contenders on one Spark session."""

    def __init__(self, work: Path, cores: int) -> None:
        from pyspark.sql import SparkSession

        from dagflow.runtime.spark_context import start_context

        # Spark lists 100,000 paths with a task for each, and packs a file as if it were 4 MB, unless it is told
        # otherwise; without these two settings it is several times slower.
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
            "dagflow filter": lambda: run_dagflow(self.context, work, FILTER, f"{work}/input", cores),
            "dagflow merge": lambda: run_dagflow(self.context, work, MERGE, f"{work}/input", cores),
            "dagflow merge, reread": lambda: run_dagflow(
                self.context, work, MERGE, f"{work}/input", cores, "on_change: {appended: reread}"
            ),
        }

    def stream(self) -> None:
        """Spark's streaming file source, once over what there is, with the same filter."""
        lines = self.spark.readStream.text(str(self.work / "input" / "*"))
        kept = lines.filter(~lines["value"].startswith("."))
        writer = kept.writeStream.format("text").option("checkpointLocation", str(self.work / "stream"))
        writer.trigger(availableNow=True).start(str(self.output)).awaitTermination()

    def binary_file(self) -> None:
        """Spark's source of whole files, merged by a function in Python that gets Arrow batches."""
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
        """Seconds that Spark's oldest source of whole files takes to merge its share, as if it had had all of them."""
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
        """Dask's scheduler of processes, sixteen tasks of the same loop."""
        dask: Any = importlib.import_module("dask")
        self.output.mkdir()
        tasks = [
            dask.delayed(concatenate)(self.paths[number::16], str(self.output / f"{number}")) for number in range(16)
        ]
        dask.compute(*tasks, scheduler="processes", num_workers=self.cores)

    def one_process(self) -> None:
        """A loop in this process."""
        self.output.mkdir()
        concatenate(self.paths, str(self.output / "0"))

    def processes(self) -> None:
        """The same loop in a process for each core."""
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
        """Remove what the contender before left."""
        for left in ("output", "journal", "stream"):
            shutil.rmtree(self.work / left, ignore_errors=True)
        os.sync()
        touch_memory(self.work / "scratch", FILE_BYTES * len(self.paths))

    def measure(self, name: str) -> float:
        """Seconds that one contender takes, from an empty output and an empty journal."""
        self.clear()
        started = time.perf_counter()
        self.contenders[name]()
        return time.perf_counter() - started

    def run(self, rounds: int) -> dict[str, list[float]]:
        """Seconds of each contender in each round.

        Raises:
            ValueError: A contender wrote something else than it should.
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
        seconds: dict[str, list[float]] = {name: [] for name in self.contenders}
        for number in range(rounds):
            for name in self.contenders:
                seconds[name].append(self.measure(name))
                print(f"round {number + 1}: {name} {seconds[name][-1]:.2f} s", file=sys.stderr, flush=True)
        seconds[SLOW] = [self.whole_text_files()]
        return seconds


def report(seconds: dict[str, list[float]], files: int) -> bool:
    """Print the table and the promises; returns whether all hold."""
    median = {name: statistics.median(runs) for name, runs in seconds.items()}
    print(f"\n| {'':22} | median s | files/s | dagflow merge is |\n|---|---|---|---|")
    for name, value in median.items():
        print(f"| {name:22} | {value:.2f} | {files / value:,.0f} | {value / median['dagflow merge']:.2f} x |")
    print(f"\n{SLOW} ran once, on a part of the files; its time is multiplied.\n")
    rates = [(name, files / median[name] >= RATE, files / median[name]) for name in ("dagflow filter", "dagflow merge")]
    for name, holds, rate in rates:
        print(f"{verdict(holds)} {name}: {rate:,.0f} files/s, promised {RATE:,}")
    all_hold = all(holds for _, holds, _ in rates)
    for name, promised, other in THRESHOLDS:
        ratio = median[other] / median[name]
        all_hold &= ratio >= promised
        print(f"{verdict(ratio >= promised)} {name} / {other}: {ratio:.2f}, promised {promised}")
    return all_hold


def report_store(work: Path, cores: int, objects: int) -> bool:
    """Read objects from a store that takes 50 ms for each request, and print the rate; whether it is promised."""
    command = [sys.executable, str(Path(__file__).with_name("slow_store.py")), "--objects", str(objects)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as store:
        assert store.stdout is not None
        settings = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{store.stdout.readline().strip()}",
            "AWS_ACCESS_KEY_ID": "any",
            "AWS_SECRET_ACCESS_KEY": "any",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        try:
            found = alone(work, cores, "s3://bench/in", "merge", {**os.environ, **settings})
        finally:
            store.communicate()
    rate = objects / found["run"] / cores
    later = (objects - found["first files"]) / (found["run"] - found["first"]) / cores
    print(
        f"{verdict(rate >= STORE_RATE)} store with 50 ms a request: {rate:,.0f} files/s a core from the start, "
        f"{later:,.0f} behind the first window, promised {STORE_RATE}"
    )
    return rate >= STORE_RATE


def alone(work: Path, cores: int, folder: str, job: str, environment: dict[str, str]) -> dict[str, float]:
    """What measure_alone finds in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.small_files", "--cores", str(cores)]
    command += ["--alone", str(work), folder, job]
    answer = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True, env=environment).stdout
    found: dict[str, float] = json.loads(answer.splitlines()[-1])
    return found


def measure_alone(work: Path, cores: int, folder: str, job: str) -> None:
    """Run dagflow twice in a process that has done nothing before, and print what it took as JSON."""
    from dagflow.runtime.spark_context import start_context

    for left in ("output", "journal"):
        shutil.rmtree(work / left, ignore_errors=True)
    context = start_context("alone", f"local[{cores}]", {}, work / "spark.log")
    app = JOBS[job]
    if "://" not in folder and job == "merge":
        # What a disk takes for files that nobody has read yet is not what is compared.
        subprocess.run(f"find {shlex.quote(folder)} -type f -print0 | xargs -0 cat > /dev/null", shell=True, check=True)
    started = time.perf_counter()
    watch = run_dagflow(context, work, app, folder, cores)
    first_run_s = time.perf_counter() - started
    driver_mib = peak_mib()
    gateway: Any = context._gateway
    java = Path(f"/proc/{gateway.proc.pid}/status").read_text()
    java_mib = int(java.partition("VmHWM:")[2].split()[0]) / 1024
    started = time.perf_counter()
    if "://" not in folder:
        subprocess.run(["find", folder, "-type", "f", "-printf", "%p %s %T@\n"], stdout=subprocess.DEVNULL, check=True)
    find_s = time.perf_counter() - started
    started = time.perf_counter()
    run_dagflow(context, work, app, folder, cores)
    rescan_s = time.perf_counter() - started
    first = {"first": watch.first_s, "first files": watch.first_files}
    found = {"run": first_run_s, **first, "driver": driver_mib, "java": java_mib, "find": find_s, "rescan": rescan_s}
    print(json.dumps(found))
    context.stop()


def report_growth(work: Path, cores: int, few: int, many: int) -> bool:
    """Print memory, rate, time to the first record and the time of a rescan for few and for many files."""
    found = []
    for count in (few, many):
        folder = work / f"grow-{count}"
        make_input(folder, count)
        found.append(alone(work, cores, str(folder), "merge", dict(os.environ)))
    small, large = found
    # Workers start before the first window is published; what counts is how it goes on.
    rates = [
        (count - each["first files"]) / (each["run"] - each["first"]) for count, each in ((few, small), (many, large))
    ]
    checks = [
        (large["driver"] <= 1.25 * small["driver"] + 50, f"driver {small['driver']:.0f} and {large['driver']:.0f} MiB"),
        (large["java"] <= 1.25 * small["java"] + 50, f"its Java {small['java']:.0f} and {large['java']:.0f} MiB"),
        (rates[1] >= 0.9 * rates[0], f"{rates[0]:,.0f} and {rates[1]:,.0f} files/s"),
        (large["first"] <= 1.5 * small["first"] + 0.5, f"first {small['first']:.2f} and {large['first']:.2f} s"),
        (large["rescan"] <= 1.5 * large["find"], f"rescan {large['rescan']:.2f} s, find {large['find']:.2f} s"),
    ]
    for holds, text in checks:
        print(f"{verdict(holds)} {few:,} and {many:,} files: {text}")
    return all(holds for holds, _ in checks)


def report_names(work: Path, cores: int, names: int) -> None:
    """Print what it takes to filter files that are many names of few, and to find nothing new after that."""
    make_names(work / "names", names)
    found = alone(work, cores, str(work / "names"), "filter", dict(os.environ))
    journal_mb = sum(path.stat().st_size for path in (work / "journal").rglob("*") if path.is_file()) / 1e6
    print(
        f"{names:,} names: {names / found['run']:,.0f} files/s, first {found['first']:.2f} s, "
        f"driver {found['driver']:.0f} MiB, its Java {found['java']:.0f} MiB, rescan {found['rescan']:.1f} s, "
        f"find {found['find']:.1f} s, checkpoint {journal_mb:.0f} MB"
    )


def main() -> int:
    """Run what the command line asks for; 1 if a promise does not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--objects", type=int, default=20_000, help="objects in the slow store; 0 leaves it out")
    parser.add_argument("--large", action="store_true", help="compare 10,000 with 1,000,000 files as well")
    parser.add_argument("--directory", type=Path, help="where to work; the default is the system's temporary directory")
    parser.add_argument("--names", type=int, default=0, help="filter so many names of few files as well")
    parser.add_argument("--alone", nargs=3, metavar=("WORK", "FOLDER", "JOB"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.alone:
        work, location, job = options.alone
        measure_alone(Path(work), options.cores, location, job)
        return 0
    all_hold = True
    with tempfile.TemporaryDirectory(dir=options.directory) as folder:
        work = Path(folder)
        if options.files:
            make_input(work / "input", options.files)
            print(f"{options.files:,} files of {FILE_BYTES} bytes, {options.cores} cores, {options.rounds} rounds")
            contest = Contest(work, options.cores)
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
