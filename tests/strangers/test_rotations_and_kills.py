"""Any history of logs that are written to, rotated and read, by runs that die, gives each record once."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.errors import DagflowError
from dagflow.execution.messages import Program, WindowJob
from dagflow.plan.load import load_app
from dagflow.report.snapshot import RunSnapshot
from dagflow.runtime.base import Runtime
from dagflow.runtime.local import InlineRuntime
from tests.nightly import by_day
from tests.operators.splitter.changes.renames.rotations import (
    ROTATIONS,
    compress_at_once,
    copy_and_truncate,
    mirror,
    rename_into_directory,
)
from tests.operators.splitter.splitter_driver import write
from tests.properties.test_growing_files import append
from tests.properties.test_rotating_logs import APP, COPYING
from tests.strangers.fuzzing import seeds


class LogHistory:
    """Logs of one directory, and the runs that read them.

    Args:
        folder: An empty directory.
        dice: Chooses what happens.
    """

    def __init__(self, folder: Path, dice: random.Random) -> None:
        self.folder, self.dice = folder, dice
        (folder / "in").mkdir()
        self.logged: list[bytes] = []
        # The last line of a log, as far as it was written.
        self.begun: dict[str, bytes] = {}
        # Logs that were copied, and that the next run must find under their names to know the copies.
        self.copied: set[str] = set()
        spread = dice.choice(["", ", blocks_threshold: 1", ", blocks_threshold: 3"])
        self.splitter = {
            "batch": dice.choice(["0", "16MiB"]),
            "block": dice.choice([8, 1 << 20]),
            "files": dice.choice([1, 3, 100]),
            "spread": spread,
        }
        self.use(dice.choice(["wait", "{wait_millis: 3600000}"]))
        for name in ("app.log", "web.log"):
            self.log(name)

    def use(self, unterminated: str) -> None:
        """Choose what happens to a last record without delimiter."""
        more = f"unterminated: {unterminated}{self.splitter['spread']}"
        text = APP.format(folder=self.folder, **{**self.splitter, "spread": more})
        self.app = load_app(str(write(self.folder / "app.yaml", text)))

    def log(self, name: str) -> None:
        """Append lines that are all different, and perhaps a part of one more."""
        for _ in range(self.dice.randint(1, 3)):
            self.end(name, b"\n")
            # The number first, so that no two logs begin with the same block.
            self.begun[name] = b"%07d line of %s" % (len(self.logged) + len(self.begun), name.encode())
            append(self.folder / "in" / name, self.begun[name])
        if self.dice.random() < 0.5:
            self.end(name, b"\n")

    def end(self, name: str, delimiter: bytes) -> None:
        """End the last line of a log."""
        if line := self.begun.pop(name, b""):
            self.logged.append(line)
            append(self.folder / "in" / name, delimiter)

    def rotate(self, name: str) -> None:
        """Rotate a log, if it is there, perhaps within a line; the program that logs may begin a new one at once."""
        rotation = self.dice.choice(ROTATIONS)
        if (path := self.folder / "in" / name).exists() and path.stat().st_size:
            self.end(name, self.dice.choice([b"", b"\n"]))
            rotation(path)
            self.copied |= {name} if rotation in COPYING else set()
            if self.dice.random() < 0.5 or (name in self.copied and not path.exists()):
                self.log(name)

    def run_to_the_end(self) -> RunSnapshot:
        """Read what there is."""
        self.copied.clear()
        return run(self.app, RunOptions(), runtime=InlineRuntime)

    def run_with_a_mishap(self) -> None:
        """Before one of the windows is read, the machine dies, or a log is rotated."""
        windows, dies = self.dice.randint(1, 3), self.dice.random() < 0.6

        def act(window: WindowJob) -> None:
            nonlocal windows
            windows -= 1
            if not windows and dies:
                raise DagflowError("the machine is gone")
            if not windows:
                self.rotate(self.dice.choice(["app.log", "web.log"]))

        self.run_with(act)

    def run_with(self, act: Callable[[WindowJob], None]) -> None:
        """Run, and do something before each window is read."""

        def made(program: Program) -> Runtime:
            return InlineRuntime(program, before=act)

        try:
            run(self.app, RunOptions(), runtime=made)
        except DagflowError as error:
            assert "the machine is gone" in str(error), str(error)

    def happen(self) -> None:
        """Let one thing happen."""
        event = self.dice.choice(["log", "rotate", "run", "mishap", "mishap"])
        if event == "log":
            self.log(self.dice.choice(["app.log", "web.log"]))
        elif event == "rotate":
            self.rotate(self.dice.choice(["app.log", "web.log"]))
        elif event == "run":
            self.run_to_the_end()
        else:
            self.run_with_a_mishap()


def test_each_record_is_published_once_and_nothing_is_said_to_be_missing(tmp_path: Path) -> None:
    """Also the last records of logs that were rotated; in the end no byte waits, and none is listed as left out."""
    for seed in seeds(6):
        folder = tmp_path / f"{seed}"
        folder.mkdir()
        history = LogHistory(folder, random.Random(seed))
        for _ in range(12):
            history.happen()
        history.use("keep")
        for name in ("app.log", "web.log"):
            history.end(name, b"")
        history.run_to_the_end()
        final = history.run_to_the_end()
        lines = [line for path in (folder / "out").iterdir() for line in path.read_bytes().splitlines()]
        assert Counter(lines) == Counter(history.logged), f"seed {seed}: {history.splitter}"
        assert (final.left_out.ranges, final.waiting_bytes) == (0, 0), f"seed {seed}: {final.left_out}"


def test_a_copied_log_is_read_by_the_run_that_finds_out_what_it_is(tmp_path: Path) -> None:
    """Which is known when all windows of the log are committed: no later run must find it under the same name."""
    history = LogHistory(tmp_path, random.Random(0))
    history.splitter |= {"batch": "16MiB", "block": 8, "files": 1, "spread": ", blocks_threshold: 1"}
    history.use("wait")
    (tmp_path / "in" / "web.log").unlink()
    log = tmp_path / "in" / "app.log"
    log.write_bytes(b"one line of a log\nanother line of a log")

    def die(window: WindowJob) -> None:
        raise DagflowError("the machine is gone")

    history.run_with(die)
    append(log, b"\n")
    copy_and_truncate(log)
    history.run_with(die)
    assert history.run_to_the_end().left_out.ranges == 0
    lines = [line for path in (tmp_path / "out").glob("*") for line in path.read_bytes().splitlines()]
    assert {b"one line of a log", b"another line of a log"} <= {*lines}


def test_a_file_that_was_empty_is_not_listed(tmp_path: Path) -> None:
    """None of its bytes is missing, also if it is gone before it was to be read."""
    history = LogHistory(tmp_path, random.Random(0))
    (tmp_path / "in" / "web.log").unlink()
    log = tmp_path / "in" / "app.log"
    log.write_bytes(b"")
    history.run_with(lambda window: log.unlink())
    assert history.run_to_the_end().left_out.ranges == 0


@pytest.mark.parametrize("rotation", by_day(2, [rename_into_directory, copy_and_truncate, compress_at_once, mirror]))
def test_what_was_read_after_a_rotation_is_not_listed(tmp_path: Path, rotation: Callable[[Path], None]) -> None:
    """A version that was gone before any of it was read is known elsewhere by its fingerprint, also if it has grown."""
    history = LogHistory(tmp_path, random.Random(0))
    history.use("wait")
    log = tmp_path / "in" / "app.log"
    history.end("app.log", b"\n")

    def rotate_it(window: WindowJob) -> None:
        if log.exists() and not log.with_name("old").exists():
            append(log, b"more\n")
            rotation(log)
            log.with_name("old").mkdir(exist_ok=True)

    history.run_with(rotate_it)
    assert history.run_to_the_end().left_out.ranges == 0
    lines = [line for path in (tmp_path / "out").iterdir() for line in path.read_bytes().splitlines()]
    assert Counter(lines)[b"more"] == 1
    assert set(Counter(lines).values()) == {1}
