"""A batch of a stream over a directory of files that are all known: its time, and the memory of the driver.

    python -m benchmarks.spark_known_files dagflow|text [--files 1000000] [--directory DIRECTORY]

Run it once for each source, dagflow first: its first query reads the files. Spark's own source would take longer; its
log of files is written as that source writes it. Both list the directory again for each batch.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import dagflow.spark
from benchmarks.measuring import SPARKS_JAVA

PER_DIRECTORY = 10_000


def files_in(root: Path, count: int) -> Iterator[Path]:
    """The paths of the files; those that are not there are made."""
    for number in range(count):
        path = root / f"{number // PER_DIRECTORY:04}" / f"{number:07}.log"
        if not number % PER_DIRECTORY:
            path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            path.write_bytes(b"%07d\n" % number)
        yield path


def started(spark: Any, name: str, files: Path, checkpoint: Path, **trigger: Any) -> Any:
    """A query that reads the directory into a sink that takes nothing in."""
    reader = spark.readStream.format(name)
    if name == "dagflow":
        reader = reader.option("checkpoint", str(checkpoint)).schema("record string")
    else:
        reader = reader.option("recursiveFileLookup", "true")
    writer = reader.load(str(files)).writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    return writer.trigger(**trigger).start()


def know_all(spark: Any, name: str, files: Path, checkpoint: Path, count: int) -> None:
    """Make all files known to the source."""
    if name == "dagflow":
        list(files_in(files, count))
        began_s = time.perf_counter()
        started(spark, name, files, checkpoint, availableNow=True).awaitTermination()
        print(f"first query: {time.perf_counter() - began_s:.0f} s", file=sys.stderr, flush=True)
        return
    # Spark lists the files of its last batch again when a query is started: that is one file.
    for path in list(files_in(files, 2)):
        started(spark, name, path, checkpoint, availableNow=True).awaitTermination()
    with (checkpoint / "sources" / "0" / "0").open("w") as log:
        log.write("v1")
        for number, path in enumerate(files_in(files, count)):
            if number == 1:
                continue  # the file of the second batch
            millis = path.stat().st_mtime_ns // 1_000_000
            log.write("\n" + json.dumps({"path": path.as_uri(), "timestamp": millis, "batchId": 0}))
    (checkpoint / "sources" / "0" / ".0.crc").unlink(missing_ok=True)


def mib_of(process: int, fact: str) -> float:
    """A fact of a process's status, in MiB; 0 where it has ended."""
    try:
        return int(re.findall(rf"{fact}:\s+(\d+)", Path(f"/proc/{process}/status").read_text())[0]) / 1024
    except (OSError, IndexError):
        return 0.0


def descendants(process: int) -> list[int]:
    """The processes that a process has started, and those that they have."""
    below = [
        int(name)
        for children in Path(f"/proc/{process}/task").glob("*/children")
        for name in children.read_text().split()
    ]
    return [*below, *(lower for child in below for lower in descendants(child))]


def main() -> int:
    """Measure one source, and print what it took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", choices=("dagflow", "text"))
    parser.add_argument("--files", type=int, default=1_000_000)
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir(), "known-files"))
    parser.add_argument("--seconds", type=float, default=60)
    options = parser.parse_args()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    for name, value in {**SPARKS_JAVA, "spark.driver.memory": "8g"}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    dagflow.spark.register(spark)
    gateway: Any = spark.sparkContext._gateway
    java, machine = gateway.proc.pid, gateway.jvm
    checkpoint = options.directory.with_name(f"{options.directory.name}-{options.source}")
    if not checkpoint.exists():
        know_all(spark, options.source, options.directory, checkpoint, options.files)

    def heap_mib() -> float:
        gc.collect()
        machine.System.gc()
        runtime = machine.Runtime.getRuntime()
        return float(runtime.totalMemory() - runtime.freeMemory()) / (1 << 20)

    before = heap_mib()
    query = started(spark, options.source, options.directory, checkpoint, processingTime="10 seconds")
    query.awaitTermination(options.seconds)
    millis = [progress["durationMs"]["triggerExecution"] for progress in query.recentProgress]
    held = heap_mib()
    below = descendants(java)
    print(
        f"{options.source}: {options.files:,} known files, {sum(p['numInputRows'] for p in query.recentProgress)} new"
    )
    print(f"seconds of batches: {', '.join(f'{each / 1000:.2f}' for each in millis)}")
    print(f"Java: {held - before:.0f} MiB of the heap are held; peak {mib_of(java, 'VmHWM'):.0f} MiB")
    print(
        f"Python: largest process {max((mib_of(process, 'VmHWM') for process in below), default=0):.0f} MiB at its peak"
    )
    query.stop()
    spark.stop()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
