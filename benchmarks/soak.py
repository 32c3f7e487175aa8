"""A run that follows directories in which everything moves, and is killed again and again.

    python -m benchmarks.soak                     30 minutes
    python -m benchmarks.soak --minutes 5 --seed 7 --keep DIR

Programs write, rotate, replace, truncate, rename and delete files (soak_sources.py) while `dagflow run --follow` reads
them. For two thirds of the time the run is killed at random moments: its driver, Java, a Python worker, or all of its
processes at once; now and then the disk of output and checkpoint is full for some seconds (where this process may
mount one). In the last third nothing is killed, and memory and descriptors of the driver are watched. At the end every
record that stayed readable must be published once, and none twice.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks.measuring import check, table
from benchmarks.soak_sources import REQUIRED, SOURCES, Arrived, LogSource, RecordRegister
from tests.crash.killing import RunProcess, Target

APP = """\
name: soak
attributes: {{checkpoint: {disk}/journal, master: "local[2]"}}
operators:
  splitter: {{class: FileSplitterInput, properties: {{files: [in], follow: true, scan_interval_millis: 500}}}}
  reader: {{class: BlockReader, properties: {{min_readers: 2, max_readers: 2}}}}
  writer: {{class: RecordWriter, properties: {{path: {disk}/out}}, partition: parallel}}
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  records: {{from: reader.messages, to: writer.input}}
"""

DISK_MB = 2048
FULL_S = 5.0
QUIET_S = 20.0
"""A run that has published nothing for so long while nothing is written has read everything."""

PATIENCE_S = 180.0
KILLED: Sequence[Target | None] = ("driver", "jvm", "daemon", "worker", "worker", None)
"""What is killed; None is everything at once."""


@dataclass(slots=True)
class DriverSamples:
    """What a driver that is left alone takes: MiB of resident memory, and open descriptors."""

    memory_mib: array[float] = field(default_factory=lambda: array("d"))
    descriptors: array[int] = field(default_factory=lambda: array("L"))

    def take(self, pid: int) -> None:
        """Add one sample, if the process is still there."""
        # Of a process that has ended, and was not waited for, the system tells no memory.
        with contextlib.suppress(OSError, ValueError, IndexError):
            status = Path(f"/proc/{pid}/status").read_text()
            self.memory_mib.append(int(status.partition("VmRSS:")[2].split()[0]) / 1024)
            self.descriptors.append(len(os.listdir(f"/proc/{pid}/fd")))


class Soak:
    """One soak test in a directory of its own."""

    def __init__(self, folder: Path, seed: int, rate: float) -> None:
        self.folder = folder
        self.random = random.Random(seed)
        self.disk = folder / "disk"
        self.disk.mkdir()
        (folder / "app.yaml").write_text(APP.format(disk=self.disk))
        self.register = RecordRegister()
        self.sources: list[LogSource] = [
            kind(folder / "in" / kind.__name__, self.register, self.random.randrange(1 << 30), rate / len(SOURCES))
            for kind in SOURCES
        ]
        self.arrived = Arrived(self.disk / "out")
        self.events: Counter[str] = Counter()
        self.quiet_delays_s: array[float] = array("f")
        self.samples = DriverSamples()
        self._current: RunProcess | None = None

    def run(self, seconds: float) -> None:
        """Let everything happen for some time, then let the run read what is left, and end it."""
        started = time.monotonic()
        for source in self.sources:
            source.start()
        kills_end, end = started + seconds * 2 / 3, started + seconds
        while time.monotonic() < kills_end:
            self._disturbed(min(kills_end, time.monotonic() + self.random.uniform(5, 40)))
        seen = len(self.arrived.delays_s)
        self._undisturbed(end)
        self.quiet_delays_s = self.arrived.delays_s[seen:]
        for source in self.sources:
            source.stopping.set()
        for source in self.sources:
            source.join()
            if source.error:
                raise source.error
        self._read_the_rest()

    def _disturbed(self, until: float) -> None:
        run = self._live_run()
        while time.monotonic() < until and run.process.poll() is None:
            self.arrived.look()
            time.sleep(0.2)
        if run.process.poll() is not None:
            return
        if self.disk.is_mount() and self.random.random() < 0.1:
            self._fill_disk()
            return
        target = self.random.choice(KILLED)
        if target is None:
            run.destroy()
        else:
            run.kill(target, self.random)
        self.events[f"killed {target or 'everything'}"] += 1

    def _undisturbed(self, until: float) -> None:
        while time.monotonic() < until:
            run = self._live_run()
            self.arrived.look()
            self.samples.take(run.process.pid)
            time.sleep(0.5)

    def _live_run(self) -> RunProcess:
        """The run; it is started again if it has ended."""
        if self._current is None or self._current.process.poll() is not None:
            if self._current is not None:
                self.events[f"exit code {self._current.process.returncode}"] += 1
                # Java may outlive a driver that was killed by some moments.
                self._current.destroy()
            self._current = RunProcess(self.folder, "-q")
            self.events["starts"] += 1
        return self._current

    def _fill_disk(self) -> None:
        filler = self.disk / "filler"
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 20))
        time.sleep(FULL_S)
        filler.unlink()
        self.events["disk full"] += 1

    def _read_the_rest(self) -> None:
        last = time.monotonic()
        while time.monotonic() < last + QUIET_S:
            self._live_run()
            if self.arrived.look():
                last = time.monotonic()
            time.sleep(0.2)
        run = self._live_run()
        run.process.send_signal(signal.SIGTERM)
        self.events[f"exit code {run.end(PATIENCE_S)} after SIGTERM"] += 1
        self._current = None
        self.arrived.look()

    def close(self) -> None:
        """End what is left."""
        for source in self.sources:
            source.stopping.set()
        if self._current is not None:
            self._current.destroy()

    def report(self) -> bool:
        """Print what was found; return whether every promise holds."""
        states = self.register.states()
        counts = np.frombuffer(bytes(self.arrived.counts).ljust(len(states), b"\0"), np.uint8)[: len(states)]
        lost = np.flatnonzero((states == REQUIRED) & (counts == 0))
        doubled = np.flatnonzero(counts > 1)
        print(", ".join(f"{count} x {name}" for name, count in sorted(self.events.items())))
        print(
            f"{len(states):,} records written, {int((states == REQUIRED).sum()):,} of them in versions that stayed; "
            f"{int(counts.astype(bool).sum()):,} arrived in {self.arrived.files:,} files\n"
        )
        rows = [
            ("all", *_percentiles(self.arrived.delays_s)),
            ("without kills", *_percentiles(self.quiet_delays_s)),
        ]
        print(table(("seconds from writing to publication", "p50", "p95", "largest"), rows))
        good = check(not len(lost), f"{len(lost)} records lost {lost[:5].tolist()}")
        good &= check(not len(doubled), f"{len(doubled)} records doubled {doubled[:5].tolist()}")
        for name, values in (("MiB of memory", self.samples.memory_mib), ("descriptors", self.samples.descriptors)):
            quarter = len(values) // 4
            if quarter < 5:
                continue
            # The first quarter is that of the start.
            early, late = statistics.median(values[quarter : 2 * quarter]), statistics.median(values[-quarter:])
            good &= check(late <= early * 1.1 + 5, f"the driver's {name}: {early:.0f} early, {late:.0f} late")
        return good


def _percentiles(values: Sequence[float]) -> tuple[str, str, str]:
    if not len(values):
        return "-", "-", "-"
    p50, p95, largest = np.percentile(np.array(values), [50, 95, 100])
    return f"{p50:.2f}", f"{p95:.2f}", f"{largest:.2f}"


@contextlib.contextmanager
def _mounted(disk: Path) -> Iterator[None]:
    """A disk of limited size, where this process may mount one."""
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        print("no disk can be mounted here, so it never fills")
        yield
        return
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def main() -> int:
    """Run the test of the command line; return 1 if a record was lost or doubled, or the driver grew."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=1, help="what files, changes and kills are drawn from")
    parser.add_argument("--rate", type=float, default=3000, help="records a second that are written")
    parser.add_argument("--keep", type=Path, help="where everything is left afterwards; it must not exist")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        if options.keep:
            options.keep.mkdir()
            folder = options.keep.resolve()
        else:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        soak = Soak(folder, options.seed, options.rate)
        if not options.keep:
            stack.enter_context(_mounted(soak.disk))
        stack.callback(soak.close)
        soak.run(options.minutes * 60)
        return 0 if soak.report() else 1


if __name__ == "__main__":
    sys.exit(main())
