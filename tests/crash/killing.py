"""Real runs of `dagflow run` on Spark, and ways to kill parts of them at random moments."""

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

from tests.cli.processes import ENTRY, PATIENCE_S, environment
from tests.crash.watching import Watcher

Target = Literal["driver", "jvm", "worker", "daemon"]

HEAD = """\
name: victim
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
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  records: {{from: reader.messages, to: filter.input}}
  kept: {{from: filter.output, to: slow.input}}
  late: {{from: slow.output, to: [unique.input, counter.input]}}
  first: {{from: unique.output, to: writer.input}}
  counted: {{from: counter.output, to: counts.input}}
"""

OPERATORS = """\
import time

from dagflow import InputPort, Operator, OutputPort


class Slow(Operator):
    \"\"\"Takes its time, so that there is a middle to be killed in.\"\"\"

    input = InputPort()
    output = OutputPort()

    @input.batch
    def delay(self, batch):
        time.sleep(0.02)
        self.output.emit(batch)
"""

START_S = 4.0
"""About how long Spark takes to start; kills within it hit a run that has not submitted anything."""

TIDY_S = 20.0


def make_folder(folder: Path, files: int, app: str = APP) -> None:
    """An app, its operator, and as its input the first modules of Python's own library."""
    (folder / "app.yaml").write_text(app)
    (folder / "slow_ops.py").write_text(OPERATORS)
    (folder / "in").mkdir()
    for path in sorted(Path(os.__file__).parent.glob("[a-m]*.py"))[:files]:
        (folder / "in" / path.name).write_bytes(path.read_bytes())


def oracle(folder: Path) -> list[bytes]:
    """What grep makes of the same files, sorted."""
    command = "grep -ahv '^#' in/* | LC_ALL=C sort"
    return subprocess.run(command, shell=True, cwd=folder, capture_output=True, check=True).stdout.split(b"\n")[:-1]


def published_records(folder: Path) -> list[bytes]:
    """The records of all published files, sorted."""
    files = [path for path in (folder / "out").glob("[!.]*") if path.is_file()]
    return sorted(line for path in files for line in path.read_bytes().split(b"\n")[:-1])


class Victim:
    """A command, mostly `dagflow run`, in a session of its own: its processes are found also when it is dead."""

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
        """Parent and command of each live process of the session, by process id."""
        found = {}
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError, IndexError):
                pid = int(entry.name)
                state, parent, _, session = (entry / "stat").read_text().rpartition(") ")[2].split()[:4]
                if int(session) == self.process.pid and state != "Z":
                    found[pid] = int(parent), (entry / "cmdline").read_text().replace("\0", " ")
        return found

    def pids(self, target: Target) -> list[int]:
        """The processes of one kind."""
        members = self.members()
        java = {pid for pid, (_, command) in members.items() if command.split(" ")[0].endswith("java")}
        python = {pid for pid, (_, command) in members.items() if "pyspark.worker" in command}
        match target:
            case "driver":
                return [self.process.pid]
            case "jvm":
                return sorted(java)
            case "daemon":
                return sorted(pid for pid in python if members[pid][0] in java)
            case "worker":
                # Those of a daemon that was killed live on, and Spark goes on using them.
                return sorted(pid for pid in python if members[pid][0] not in java)

    def kill(self, target: Target, dice: random.Random) -> bool:
        """SIGKILL one process of a kind, and say whether there was one."""
        pids = self.pids(target)
        if not pids or self.process.poll() is not None:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(dice.choice(pids), signal.SIGKILL)
            return True
        return False

    def wait_for(self, is_there: Callable[[], bool], most_s: float = PATIENCE_S) -> bool:
        """Wait until something is there, or the run has ended; says whether it is there."""
        deadline = time.monotonic() + most_s
        while self.process.poll() is None and time.monotonic() < deadline:
            if is_there():
                return True
            time.sleep(0.005)
        return is_there()

    def end(self, timeout_s: float = PATIENCE_S) -> int:
        """Wait for the exit code, and for every process that the run has started to be gone."""
        code = self.process.wait(timeout_s)
        deadline = time.monotonic() + TIDY_S
        while members := self.members():
            if time.monotonic() > deadline:
                self.destroy()
                raise AssertionError(f"{TIDY_S} s after its end the run's processes are still there: {members}")
            time.sleep(0.02)
        self._log.close()
        return code

    def destroy(self) -> None:
        """Leave nothing behind, whatever went wrong."""
        for pid in self.members():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        self._log.close()


@dataclass(slots=True)
class Tale:
    """What happened in a series of kills.

    Attributes:
        kills: How many processes were killed, by kind.
        starts: How often the run was started.
        codes: The exit codes, in order.
        middle: How many kills came after the first file was published and before the last.
    """

    kills: dict[str, int] = field(default_factory=dict)
    starts: int = 0
    codes: list[int] = field(default_factory=list)
    middle: int = 0

    @property
    def total(self) -> int:
        """How many processes were killed."""
        return sum(self.kills.values())


def kill_until_done(
    folder: Path, seed: int, targets: list[Target], tale: Tale, before_start: Callable[[int], None] = lambda start: None
) -> None:
    """Start the run, kill the targets one after the other at random moments, then let it finish.

    A dead driver or JVM ends a run, and the next one goes on; a dead Python worker should not even do that.

    Args:
        folder: What make_folder made.
        seed: What the moments are drawn from.
        targets: What to kill, one after the other.
        tale: Takes what happened.
        before_start: Called before each start, with the number of those before.

    Raises:
        AssertionError: A run left processes behind, or did not complete at last.
    """
    dice = random.Random(seed)
    left = list(targets)
    while True:
        before_start(tale.starts)
        victim = Victim(folder, "-q")
        tale.starts += 1
        try:
            while left and _strike(victim, folder, left[0], dice, tale):
                left.pop(0)
            code = victim.end()
        finally:
            victim.destroy()
        tale.codes.append(code)
        if code == 0:
            return
        assert tale.starts <= len(targets) + 2, (folder / "run.log").read_text()


def _strike(victim: Victim, folder: Path, target: Target, dice: random.Random, tale: Tale) -> bool:
    """Wait for a random moment and kill; False when the run was over by then."""
    before = visible_files(folder)
    is_starting = not victim.pids("worker")
    if is_starting and target in ("driver", "jvm") and dice.random() < 0.5:
        moment = time.monotonic() + dice.uniform(0, START_S)
        victim.wait_for(lambda: time.monotonic() >= moment)
    else:
        more = dice.randint(0, 8)
        victim.wait_for(lambda: bool(victim.pids("worker")) and visible_files(folder) >= before + more)
        moment = time.monotonic() + dice.uniform(0, 0.1)
        victim.wait_for(lambda: time.monotonic() >= moment)
    victim.wait_for(lambda: bool(victim.pids(target)))
    is_middle = visible_files(folder) > 0
    if not victim.kill(target, dice):
        return False
    tale.kills[target] = tale.kills.get(target, 0) + 1
    tale.middle += is_middle
    return True


def visible_files(folder: Path) -> int:
    """How many files a reader of the output directory sees."""
    try:
        return sum(1 for name in os.listdir(folder / "out") if name[0] != ".")
    except FileNotFoundError:
        return 0


def require_whole(folder: Path) -> None:
    """Fail unless the output is what grep makes of the input, and nothing else is left.

    Raises:
        AssertionError: Something is missing, too much, or left behind.
    """
    found, expected = published_records(folder), oracle(folder)
    assert len(expected) > 1000, "grep found next to nothing"
    assert found == expected, f"{len(found)} records are published where grep finds {len(expected)}"
    hidden = [path for path in (folder / "out").rglob("*") if path.name[0] == "."]
    assert hidden == [], f"left behind: {hidden}"


@contextlib.contextmanager
def watched(folder: Path) -> Iterator[None]:
    """Let another process list the output directory and read it all the while, and require that it saw nothing odd.

    Raises:
        AssertionError: It saw a file that was not whole, or that changed or vanished later.
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
    report = Watcher.parse(answer)
    assert report.complaints == [], report.complaints
    assert report.looks > 20, report
    final = Watcher(folder / "out")
    final.look()
    assert report.seen == final.seen, "a file was different when it was first seen"
