"""Any history of a log that is rotated and read gives each line once, whichever of its names a location takes."""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path

from tests.operators.splitter.changes.renames.rotations import (
    compress_at_once,
    compress_later,
    copy_and_truncate,
    copy_truncate_and_compress,
    copy_with_date_inside_and_truncate,
    rename,
    rename_into_directory,
    rename_with_date,
    rename_with_date_inside,
)
from tests.properties.test_growing_files import append
from tests.strangers.fuzzing import seeds
from tests.strangers.test_logs_named_by_themselves import SUPERSEDE, OnlyLog

COPYING = [copy_and_truncate, copy_truncate_and_compress, copy_with_date_inside_and_truncate]
RENAMING = [rename, rename_with_date, rename_with_date_inside, rename_into_directory, compress_at_once, compress_later]


class RotatedLog:
    """A log, one way to rotate it, and the runs that read it.

    Args:
        folder: A directory to be made.
        dice: Chooses what happens.
    """

    def __init__(self, folder: Path, dice: random.Random) -> None:
        folder.mkdir()
        self.dice = dice
        self.rotation = dice.choice([*COPYING, *RENAMING])
        self.location = dice.choice(["app.log", "*.log", ""])
        deleted = dice.choice(["keep", "retract"])
        self.log = OnlyLog(
            folder,
            files=f"{folder}/in/{self.location}",
            unterminated=dice.choice(["wait", "keep"]),
            on_change=dice.choice([{"deleted": deleted}, {"deleted": deleted, **SUPERSEDE}]),
        )
        # So that a directory is never empty, as where a disk is not mounted.
        append(folder / "in" / "other.log", b"other\n")
        self.logged = [] if self.location == "app.log" else [b"other"]
        self.records: list[bytes] = []
        # A log from before the first run is read only where a location takes its name.
        append(self.log.path, b"before\n")
        self.rotation(self.log.path)
        for path in self.log.path.parent.rglob("app*"):
            os.utime(path, (1, 1))
        names = {path.name for path in self.log.path.parent.glob(self.location or "*")}
        self.logged += [b"before"] if names - {"app.log", "other.log"} else []
        # A copy is known only if a run has found the log under its name since the copy before.
        self.is_copied = self.is_begun = False
        self.write()
        self.run()

    def write(self) -> None:
        """Append lines that are all different; the last one may lack its end."""
        for _ in range(self.dice.randint(1, 3)):
            self.end()
            self.logged.append(b"%07d line" % len(self.logged))
            append(self.log.path, self.logged[-1])
            self.is_begun = True
        if self.log.properties["unterminated"] == "keep" or self.dice.random() < 0.5:
            self.end()

    def end(self) -> None:
        """End the last line of the log."""
        if self.is_begun:
            append(self.log.path, b"\n")
            self.is_begun = False

    def rotate(self) -> None:
        """Rotate the log, if it is there; a new one may begin at once."""
        path = self.log.path
        if not self.is_copied and path.exists() and path.stat().st_size:
            self.rotation(path)
            self.is_copied, self.is_begun = self.rotation in COPYING, False
            if self.dice.random() < 0.5:
                self.write()

    def run(self) -> None:
        """Read what is new; a file that is named by itself must be there."""
        if self.location == "app.log" and not self.log.path.exists():
            self.write()
        self.is_copied = False
        self.records += self.log.run()


def test_each_line_is_read_once(tmp_path: Path) -> None:
    """Lines of logs that no run has seen under their names, too, and last lines without a delimiter."""
    for seed in seeds(12):
        history = RotatedLog(tmp_path / f"{seed}", random.Random(seed))
        for _ in range(12):
            history.dice.choice([history.write, history.write, history.rotate, history.run, history.run])()
        history.write()
        history.end()
        history.run()
        history.run()
        if history.location != "app.log":
            history.log.properties["unterminated"] = "keep"
        history.run()
        assert Counter(history.records) == Counter(history.logged), f"seed {seed}: {history.log.properties}"
