"""Real runs of `dagflow run`, on Spark and without it, and ways to kill parts of them at random moments."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest

from tests.cli.processes import ENTRY, PATIENCE_S, environment
from tests.crash.watching import DirectoryWatcher

Target = Literal["driver", "jvm", "worker", "daemon"]

HEAD = """\
name: killed-app
attributes: {checkpoint: journal, master: "local[2]"}
operators:
  splitter: {class: FileSplitterInput, properties: {files: [in], block_size: 8KiB, blocks_threshold: 4}}
  reader: {class: BlockReader, properties: {min_readers: 2, max_readers: 4}}
  filter: {class: RecordFilter, properties: {drop: {prefix: "#"}}, partition: parallel}
  slow: {class: slow_ops.Slow, partition: parallel}
"""

APP = f"""\
{HEAD}\
  writer: {{class: RecordWriter, properties: {{path: out, file_name: block}}, partition: parallel}}
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  records: {{from: reader.messages, to: filter.input}}
  kept: {{from: filter.output, to: slow.input}}
  late: {{from: slow.output, to: writer.input}}
"""

STATEFUL_APP = f"""\
{HEAD}\
  unique: {{class: Deduplicator, partition: {{by: record, count: PARTITIONS}}}}
  writer: {{class: RecordWriter, properties: {{path: out}}, partition: parallel}}
  counter: {{class: KeyCounter, partition: {{by: record, count: PARTITIONS}}}}
  counts: {{class: RecordWriter, properties: {{path: counts}}, partition: parallel}}
  totals: {{class: CountBy, properties: {{by: record}}, partition: parallel}}
  sums: {{class: RecordWriter, properties: {{path: totals}}, partition: parallel}}
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  records: {{from: reader.messages, to: filter.input}}
  kept: {{from: filter.output, to: slow.input}}
  late: {{from: slow.output, to: [unique.input, counter.input, totals.input]}}
  first: {{from: unique.output, to: writer.input}}
  counted: {{from: counter.output, to: counts.input}}
  summed: {{from: totals.output, to: sums.input}}
"""

_OPERATORS = """\
import time
from pathlib import Path

from dagflow import InputPort, Operator, OutputPort


class Slow(Operator):
    \"\"\"Takes its time until it shall hurry, so that there is a middle to be killed in.\"\"\"

    input = InputPort()
    output = OutputPort()

    @input.batch
    def delay(self, batch):
        if not Path("HURRY").exists():
            time.sleep(DELAY_S)
        self.output.emit(batch)
"""


def slow_operator(folder: Path, delay_s: float = 0.02) -> str:
    """Return the source of an operator that delays each batch until hurry() is called for a folder."""
    return _OPERATORS.replace("HURRY", str(folder / "hurry")).replace("DELAY_S", str(delay_s))


def hurry(folder: Path) -> None:
    """Let the operator of slow_operator() delay nothing from now on."""
    (folder / "hurry").touch()


LOCALLY = ("--local", "--workers", "2")
"""The options of a run without Spark."""

also_on_spark = pytest.mark.parametrize(
    "options",
    [
        pytest.param(LOCALLY, id="local"),
        pytest.param((), id="Spark", marks=[pytest.mark.spark, pytest.mark.nightly]),
    ],
)
"""Marks tests of what Spark has no part in: without it, and every night with it."""

START_S = 4.0
"""About how long Spark takes to start; kills within it hit a run that has not submitted anything."""

TIDY_S = 20.0

LOOK_EVERY_S = 0.05
"""Seconds between two looks at all processes of the machine, which cost more than the runs that they wait for."""


def make_folder(folder: Path, files: int, app: str = APP, delay_s: float = 0.02) -> None:
    """Write an app, its slow operator, and as input modules of Python's standard library."""
    (folder / "app.yaml").write_text(app)
    (folder / "slow_ops.py").write_text(slow_operator(folder, delay_s))
    (folder / "in").mkdir()
    for path in sorted(Path(os.__file__).parent.glob("[a-m]*.py"))[:files]:
        (folder / "in" / path.name).write_bytes(path.read_bytes())


def oracle(folder: Path) -> list[bytes]:
    """Return the records that grep selects from the input, sorted."""
    command = "grep -ahv '^#' in/* | LC_ALL=C sort"
    return subprocess.run(command, shell=True, cwd=folder, capture_output=True, check=True).stdout.split(b"\n")[:-1]


def published_records(folder: Path) -> list[bytes]:
    """Return the records of all published files, sorted."""
    files = [path for path in (folder / "out").glob("[!.]*") if path.is_file()]
    return sorted(line for path in files for line in path.read_bytes().split(b"\n")[:-1])


class RunProcess:
    """A command, usually `dagflow run`, in its own session, so that its processes are found after its death."""

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        command: Sequence[str] = ("run", "app.yaml"),
        prefix: Sequence[str] = (),
        **variables: str,
    ) -> None:
        self._log = (folder / "run.log").open("ab")
        self.process = subprocess.Popen(
            [*prefix, *ENTRY, *command, *arguments],
            cwd=folder,
            env=environment(**variables),
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )

    def members(self) -> dict[int, tuple[int, str]]:
        """Return parent and command of each live process of the session, by process id."""
        found = {}
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError, IndexError):
                pid = int(entry.name)
                state, parent, _, session = (entry / "stat").read_text().rpartition(") ")[2].split()[:4]
                if int(session) == self.process.pid and state != "Z":
                    found[pid] = int(parent), (entry / "cmdline").read_text().replace("\0", " ")
        return found

    def pids(self, target: Target) -> list[int]:
        """Return the process ids of one kind."""
        members = self.members()
        java = {pid for pid, (_, command) in members.items() if command.split(" ")[0].endswith("java")}
        python = {pid for pid, (_, command) in members.items() if "pyspark.worker" in command}
        local = {pid for pid, (_, command) in members.items() if "dagflow.runtime.worker_server" in command}
        match target:
            case "driver":
                return [self.process.pid]
            case "jvm":
                return sorted(java)
            case "daemon":
                daemons = {pid for pid in python if members[pid][0] in java}
                return sorted(daemons | {pid for pid in local if members[pid][0] == self.process.pid})
            case "worker":
                # Workers of a killed daemon stay alive, and Spark keeps using them.
                workers = {pid for pid in python if members[pid][0] not in java}
                return sorted(workers | {pid for pid in local if members[pid][0] != self.process.pid})

    def kill(self, target: Target, dice: random.Random) -> bool:
        """Kill one process of a kind with SIGKILL; return whether there was one."""
        pids = self.pids(target)
        if not pids or self.process.poll() is not None:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(dice.choice(pids), signal.SIGKILL)
            return True
        return False

    def wait_for(self, is_there: Callable[[], bool], most_s: float = PATIENCE_S, pause_s: float = 0.01) -> bool:
        """Wait until a condition holds or the run has ended; return whether it holds."""
        deadline = time.monotonic() + most_s
        while self.process.poll() is None and time.monotonic() < deadline:
            if is_there():
                return True
            time.sleep(pause_s)
        return is_there()

    def end(self, timeout_s: float = PATIENCE_S) -> int:
        """Wait for the exit code and the end of every process of the run."""
        code = self.process.wait(timeout_s)
        deadline = time.monotonic() + TIDY_S
        while members := self.members():
            if time.monotonic() > deadline:
                self.destroy()
                raise AssertionError(f"{TIDY_S} s after its end the run's processes are still there: {members}")
            time.sleep(LOOK_EVERY_S)
        self._log.close()
        return code

    def destroy(self) -> None:
        """Kill all processes that are left."""
        for pid in self.members():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        self._log.close()


@dataclass(slots=True)
class KillCounts:
    """The kills and restarts of one series.

    Attributes:
        kills: How many processes were killed, by kind.
        starts: How often the run was started.
        codes: The exit codes, in order.
        middle: Kills after the first file was published and before the last.
    """

    kills: dict[str, int] = field(default_factory=dict)
    starts: int = 0
    codes: list[int] = field(default_factory=list)
    middle: int = 0

    @property
    def total(self) -> int:
        """Return the number of killed processes."""
        return sum(self.kills.values())

    def add(self, other: KillCounts) -> None:
        """Add the counts of another series."""
        for target, kills in other.kills.items():
            self.kills[target] = self.kills.get(target, 0) + kills
        self.starts += other.starts
        self.codes += other.codes
        self.middle += other.middle


def kill_until_done(
    folder: Path,
    seed: int,
    targets: list[Target],
    counts: KillCounts,
    before_start: Callable[[int], None] = lambda start: None,
    options: Callable[[int], Sequence[str]] = lambda start: (),
) -> None:
    """Start the run, kill the targets one by one at random moments, then let it finish.

    A dead driver or JVM ends a run, and the next one continues; a dead Python worker does not end it.

    Args:
        folder: What make_folder made.
        seed: What the moments are drawn from.
        targets: What to kill, one after the other.
        counts: Takes what happened.
        before_start: Called before each start, with the number of those before.
        options: More options of the command, by the same number.

    Raises:
        AssertionError: A run left processes behind, or did not complete at last.
    """
    dice = random.Random(seed)
    left = list(targets)
    while True:
        before_start(counts.starts)
        run = RunProcess(folder, "-q", *options(counts.starts))
        counts.starts += 1
        try:
            while left and _strike(run, folder, left[0], dice, counts):
                left.pop(0)
            code = run.end()
        finally:
            run.destroy()
        counts.codes.append(code)
        if code == 0:
            return
        assert counts.starts <= len(targets) + 2, (folder / "run.log").read_text()


def _strike(run: RunProcess, folder: Path, target: Target, dice: random.Random, counts: KillCounts) -> bool:
    """Wait for a random moment and kill; return False if the run had ended by then."""
    before = visible_files(folder)
    is_starting = not run.pids("worker")
    if is_starting and target in ("driver", "jvm") and dice.random() < 0.5:
        moment = time.monotonic() + dice.uniform(0, START_S)
        run.wait_for(lambda: time.monotonic() >= moment)
    else:
        more = dice.randint(0, 8)
        run.wait_for(lambda: visible_files(folder) >= before + more and bool(run.pids("worker")), pause_s=LOOK_EVERY_S)
        moment = time.monotonic() + dice.uniform(0, 0.1)
        run.wait_for(lambda: time.monotonic() >= moment)
    run.wait_for(lambda: bool(run.pids(target)), pause_s=LOOK_EVERY_S)
    is_middle = visible_files(folder) > 0
    if not run.kill(target, dice):
        return False
    counts.kills[target] = counts.kills.get(target, 0) + 1
    counts.middle += is_middle
    return True


def visible_files(folder: Path) -> int:
    """Count the visible files of the output directory."""
    try:
        return sum(1 for name in os.listdir(folder / "out") if name[0] != ".")
    except FileNotFoundError:
        return 0


def require_whole(folder: Path) -> None:
    """Fail unless the output equals that of grep, and nothing pending is left.

    Raises:
        AssertionError: A record is missing or too many, or a pending file is left.
    """
    found, expected = published_records(folder), oracle(folder)
    assert len(expected) > 1000, "grep found next to nothing"
    assert found == expected, f"{len(found)} records are published where grep finds {len(expected)}"
    hidden = [path for path in (folder / "out").rglob("*") if path.name[0] == "."]
    assert hidden == [], f"left behind: {hidden}"


@contextlib.contextmanager
def watched(folder: Path) -> Iterator[None]:
    """Let another process list and read the output directory meanwhile, and check what it saw.

    Raises:
        AssertionError: It saw an incomplete file, or one that changed or vanished later.
    """
    with subprocess.Popen(
        [sys.executable, "-m", "tests.crash.watching", str(folder / "out")],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield
            answer, _ = process.communicate("enough\n", timeout=PATIENCE_S)
        finally:
            process.kill()
    report = DirectoryWatcher.parse(answer)
    assert report.complaints == [], report.complaints
    assert report.looks > 20, report
    final = DirectoryWatcher(folder / "out")
    final.look()
    assert report.seen == final.seen, "a file was different when it was first seen"
