"""Draws how the executors of a cluster follow the backlog: partitions and executors over time, as text.

    python -m benchmarks.executors                 about a minute and a half
    python -m benchmarks.executors --file-seconds 0.4 --json executors.json

Starts a Spark standalone cluster of two workers with two cores each, and an app that follows a directory with
executors of one core. Waves of files arrive with pauses between them. Twice a second it records the number of executor
processes, of partitions of the last window, and of files that are not published yet.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from dagflow.storage.context import StorageContext

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from dagflow.errors import DagflowError
from dagflow.report.reading import status
from tests.cluster.hosts import WORKERS, Cluster
from tests.crash.killing import slow_operator, visible_files

APP = """\
name: executors
attributes: {checkpoint: journal, window_millis: 200}
operators:
  splitter:
    class: FileSplitterInput
    properties: {files: [in], follow: true, scan_interval_millis: 200, batch_files: 1, blocks_threshold: 16}
  reader: {class: BlockReader, properties: {min_readers: 1, max_readers: 8, interval_millis: 200}}
  slow: {class: slow_ops.Slow, partition: parallel}
  writer: {class: RecordWriter, properties: {path: out, file_name: block}, partition: parallel}
streams:
  blocks: {from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}
  records: {from: reader.messages, to: slow.input}
  late: {from: slow.output, to: writer.input}
"""
SETTINGS = {
    "spark.executor.cores": "1",
    "spark.dynamicAllocation.maxExecutors": "4",
    "spark.dynamicAllocation.executorIdleTimeout": "4s",
}
WAVES = (64, 4, 32)
"""Files of each wave."""

REST_S = 12.0
"""From the end of one wave to the beginning of the next."""

MOST_S = 120.0
Sample = tuple[float, int, int, int]


def main() -> None:
    """Run the app, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--file-seconds", type=float, default=0.5, help="how long a task takes for a file")
    parser.add_argument("--json", type=Path, help="where the samples are written to")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dagflow-executors-") as folder:
        cluster = Cluster(Path(folder) / "hosts", cores=2)
        try:
            cluster.start()
            samples = list(_watch(cluster, Path(folder) / "app", options.file_seconds))
        finally:
            cluster.destroy()
    if options.json is not None:
        options.json.write_text(json.dumps(samples))
    print("     s  executors  partitions  waiting")
    for at_s, executors, partitions, waiting in samples:
        print(f"{at_s:6.1f}  {'#' * executors:<9}  {'=' * partitions:<10}  {waiting:4d} {'.' * (waiting // 2)}")


def _watch(cluster: Cluster, folder: Path, file_s: float) -> Iterator[Sample]:
    (folder / "in").mkdir(parents=True)
    (folder / "app.yaml").write_text(APP)
    (folder / "slow_ops.py").write_text(slow_operator(folder, file_s))
    run = cluster.dagflow(folder, *(f"--conf={key}={value}" for key, value in SETTINGS.items()))
    started = time.monotonic()
    arrived = 0
    for wave in WAVES:
        for number in range(arrived, arrived + wave):
            (folder / f"{number}.txt").write_text(f"file {number}\n")
            (folder / f"{number}.txt").rename(folder / "in" / f"{number}.txt")
        arrived += wave
        ends_at = time.monotonic() + MOST_S
        while time.monotonic() < ends_at:
            waiting = arrived - visible_files(folder)
            if not waiting:
                ends_at = min(ends_at, time.monotonic() + REST_S)
            executors = sum(len(cluster.hosts[name].executors()) for name in WORKERS)
            yield time.monotonic() - started, executors, _partitions(folder), waiting
            time.sleep(0.5)
        if run.poll() is not None:
            raise SystemExit((folder / "run.log").read_text())
    run.send_signal(signal.SIGINT)
    run.wait(60)


def _partitions(folder: Path) -> int:
    with contextlib.suppress(DagflowError):
        known = status(str(folder / "journal"), StorageContext.default()).partitions.get("reader")
        return known.last if known is not None else 0
    return 0


if __name__ == "__main__":
    main()
