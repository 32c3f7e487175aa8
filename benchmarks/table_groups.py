"""A table that is followed: how many transactions and files it gets, how far the run is behind, what a kill repeats.

    python -m benchmarks.table_groups                       ten minutes of 200 files a second, without Spark
    python -m benchmarks.table_groups --seconds 150 --kill-after 115
    python -m benchmarks.table_groups --scan-millis 60000 --every-millis 0      windows as long as a transaction
    python -m benchmarks.table_groups --remove-after 20     files that others remove 20 seconds after they came
    python -m benchmarks.table_groups --commits 10000       the time of a transaction as the table gets older

Files of lines are moved into directories of a minute each. Every second the journal is asked which files are
committed: the age of the oldest file that is not says how far the run is behind. With --kill-after the driver is killed
once at that second and started again. At the end the run is stopped, and the table is read.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from pathlib import Path

from deltalake import DeltaTable

from benchmarks.measuring import table
from dagflow.errors import DagflowError
from dagflow.journal.reader import read_state
from dagflow.journal.state import JournalState
from dagflow.metrics import names
from dagflow.storage.context import StorageContext
from dagflow.storage.pending import FileFacts, PendingFile

APP = """\
name: table-groups
attributes: {{checkpoint: journal}}
operators:
  splitter: {{class: FileSplitterInput, properties: {{files: in, scan_interval_millis: {scan_millis}}}}}
  reader: {{class: BlockReader, properties: {{format: lines, max_readers: 2}}}}
  table:
    class: TableWriter
    properties: {{table: "delta:out/table", metadata_columns: [file, offset], commit: {{every_millis: {every_millis}}}}}
    partition: parallel
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  lines: {{from: reader.messages, to: table.input}}
"""

LINE_BYTES = 100


class Feeder(threading.Thread):
    """Moves files into the input at a steady rate.

    Attributes:
        moved_s: When each file was there, by time.monotonic().
    """

    def __init__(self, work: Path, seconds: float, per_s: int, file_bytes: int, keep_s: float | None) -> None:
        super().__init__(daemon=True)
        self._work, self._seconds, self._per_s = work, seconds, per_s
        self._keep_s = math.inf if keep_s is None else keep_s
        self._there: deque[Path] = deque()
        self.lines = file_bytes // LINE_BYTES
        self.moved_s: list[float] = []

    def run(self) -> None:
        """Feed until the time is over."""
        started = time.monotonic()
        while (now := time.monotonic() - started) < self._seconds:
            while len(self.moved_s) < now * self._per_s:
                number = len(self.moved_s)
                directory = self._work / "in" / f"{int(now // 60):04}"
                directory.mkdir(exist_ok=True)
                waiting = self._work / "waiting"
                lines = (f"{number:08} {line:04} ".ljust(LINE_BYTES - 1, "x") for line in range(self.lines))
                waiting.write_text("\n".join(lines) + "\n")
                self._there.append(waiting.rename(directory / f"{number:08}.txt"))
                self.moved_s.append(time.monotonic())
            while self._there and time.monotonic() - self.moved_s[-len(self._there)] > self._keep_s:
                self._there.popleft().unlink()
            time.sleep(0.01)


def start(work: Path) -> subprocess.Popen[bytes]:
    """Begin a run that follows."""
    command = [sys.executable, "-m", "dagflow", "run", "app.yaml", "--follow", "--local", "-q"]
    return subprocess.Popen(command, cwd=work, stdin=subprocess.DEVNULL, stderr=(work / "run.log").open("ab"))


def state_of(work: Path) -> JournalState:
    """What the journal says; nothing before it is there."""
    try:
        return read_state(StorageContext.default().objects(str(work / "journal")))
    except DagflowError:
        return JournalState()


def require_alive(work: Path, process: subprocess.Popen[bytes]) -> None:
    """Give up where the run has ended.

    Raises:
        RuntimeError: The run has ended.
    """
    if process.poll() is not None:
        raise RuntimeError(f"the run has ended: {(work / 'run.log').read_text()[-1000:]}")


def follow(work: Path, options: argparse.Namespace) -> None:
    """Feed a run, and print what came of it."""
    (work / "in").mkdir()
    limits = {"every_millis": options.every_millis, "scan_millis": options.scan_millis}
    (work / "app.yaml").write_text(APP.format(**limits))
    process = start(work)
    while not state_of(work).app:
        require_alive(work, process)
        time.sleep(0.1)
    feeder = Feeder(work, options.seconds, options.per_second, options.file_bytes, options.remove_after)
    feeder.start()
    began, kill_s, repeated = time.monotonic(), options.kill_after, -1
    behind: list[float] = []
    while feeder.is_alive():
        time.sleep(1.0)
        now = time.monotonic()
        committed = state_of(work).totals.total(names.FILES)
        oldest = feeder.moved_s[committed] if committed < len(feeder.moved_s) else now
        behind.append(max(now - oldest, 0.0))
        if kill_s is not None and now - began >= kill_s:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            state, kill_s = state_of(work), None
            repeated = state.last_planned - state.last_committed
            process = start(work)
    while options.remove_after is None and state_of(work).totals.total(names.FILES) < len(feeder.moved_s):
        require_alive(work, process)
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    process.wait()
    report(work, feeder, behind, repeated)


def report(work: Path, feeder: Feeder, behind: list[float], repeated: int) -> None:
    """Print a table of what was measured."""
    state, delta = state_of(work), DeltaTable(str(work / "out" / "table"))
    records = delta.to_pyarrow_table(columns=["record"])["record"]
    expected = len(feeder.moved_s) * feeder.lines
    sizes = sorted(path.stat().st_size for path in (work / "out" / "table").glob("*.parquet"))
    rows = [
        ("files fed", f"{len(feeder.moved_s):,}"),
        ("records in the table, distinct", f"{len(records):,}, {len(records.unique()):,} of {expected:,}"),
        ("windows", f"{state.last_done:,}"),
        ("transactions", f"{delta.version() + 1:,}"),
        ("data files, bytes", f"{len(sizes)}, {sizes[0]:,} to {sizes[-1]:,}"),
        ("behind, seconds", f"median {statistics.median(behind):.1f}, most {max(behind):.1f}"),
        *([("windows that a kill repeated", str(repeated))] if repeated >= 0 else []),
        ("load", f"{os.getloadavg()[2]:.1f} over 15 minutes on {os.cpu_count()} cores"),
    ]
    print(table(["what", "measured"], rows))


def commits(work: Path, count: int) -> None:
    """Print the time of a transaction, as a driver makes them one after the other, by the number of those before."""
    # The target is what is measured: a run would add the time of its tasks.
    import pyarrow as pa
    import pyarrow.parquet as pq

    from dagflow.api.transactions import DecidedWindow
    from operators.sink.columns.table_columns import schema_text
    from operators.sink.tables.delta_table import DeltaTable as Kind

    root = work / "table"
    root.mkdir()
    rows = pa.table({"id": [1]})
    target, writer = Kind(str(root), ()).target(StorageContext.default()), "dagflow/benchmark.0/table"
    taken: list[float] = []
    for window_id in range(1, count + 1):
        path = root / f"part-{window_id:08}.parquet"
        pq.write_table(rows, path)
        facts = FileFacts("table", schema_text(rows.schema), {}, {"id": 0}, {"id": 1}, {"id": 1})
        file = PendingFile(str(path), "", path.stat().st_size, 1, facts=facts)
        began = time.perf_counter()
        state = target.open(writer)
        state.commit([DecidedWindow(window_id, f"{window_id}", (file,))])
        assert target.open(writer).marker == window_id
        taken.append(time.perf_counter() - began)
        if window_id % 1000 == 0:
            print(f"{window_id}: {statistics.median(taken[-100:]) * 1e3:.1f} ms", file=sys.stderr, flush=True)
    points = [each for each in (100, 1000, 3000, 10_000, 30_000) if each <= count]
    last = {each: taken[each - 50 : each] for each in points}
    shown = [(f"{n:,}", f"{statistics.median(t) * 1e3:.1f}", f"{max(t) * 1e3:.1f}") for n, t in last.items()]
    print(table(["after windows", "median of 50, ms", "most, ms"], shown))


def main() -> None:
    """Measure as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--per-second", type=int, default=200)
    parser.add_argument("--file-bytes", type=int, default=5000)
    parser.add_argument("--every-millis", type=int, default=60_000)
    parser.add_argument("--scan-millis", type=int, default=1000)
    parser.add_argument("--remove-after", type=float)
    parser.add_argument("--kill-after", type=float)
    parser.add_argument("--commits", type=int)
    parser.add_argument("--work", type=Path)
    options = parser.parse_args()
    work = options.work or Path(tempfile.mkdtemp(prefix="table-groups-"))
    work.mkdir(exist_ok=True)
    try:
        if options.commits:
            commits(work, options.commits)
        else:
            follow(work, options)
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
