"""Files that are written, corrected, appended to, renamed, deleted and brought back in any order, between runs."""

from __future__ import annotations

import contextlib
import os
import random
from pathlib import Path
from typing import Any

import pytest

from dagflow.engine import publishers
from dagflow.testing.faults import InjectedCrash, crashing_disk
from tests.engine.corrected_app import SUPERSEDE, all_lines, corrected_app, lines_of, write
from tests.engine.corrected_totals import BESIDE, lines_beside, totals_app, totals_in, totals_of_files
from tests.engine.corrected_totals import KINDS as TOTALS
from tests.engine.table_app import work
from tests.strangers.fuzzing import seeds
from tests.strangers.merged_tables import compact, forget

KINDS = ["delta", "delta-groups", "iceberg", "parquet", "files"]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for nothing between two attempts."""
    monkeypatch.setattr(publishers, "FIRST_PAUSE_S", 0.0)


class Partner:
    """Changes the files of a directory."""

    def __init__(self, root: Path, dice: random.Random) -> None:
        self.root = root
        self.dice = dice
        self.count = 0
        self.away: list[Path] = []
        self.touched: set[int] = set()
        (root / "in").mkdir()
        (root / "away").mkdir()

    def lines(self) -> str:
        """Lines that no other file has; none of a file that is empty."""
        self.count += 1
        return " ".join(f"{self.count}.{n}" for n in range(self.dice.randint(0, 9)))

    def change(self) -> str:
        """Do something, and say what."""
        there = sorted((self.root / "in").iterdir())
        kinds = [
            "new",
            "new",
            *(["replace", "replace", "append", "rewrite", "rename", "move", "touch"] if there else []),
        ]
        kind = self.dice.choice(kinds + (["bring"] if self.away else []))
        path = self.dice.choice(there) if there else self.root / "in" / "none"
        match kind:
            case "new":
                write(self.root, f"f{self.count}x", self.lines())
            case "replace":
                write(self.root, path.name, self.lines())
            case "append":
                with path.open("a") as file:
                    self.count += 1
                    file.write(f"{self.count}.0\n")
            case "rewrite":
                path.write_text("".join(f"{line}\n" for line in self.lines().split()))
            case "rename" if path.stat().st_ino not in self.touched:
                # A file that was touched and renamed between two scans need not be recognised.
                self.touched.add(path.stat().st_ino)
                path.rename(path.with_name(f"r{self.count}y{path.name[-3:]}"))
            case "move":
                if len(there) > 1:
                    self.away.append(path.rename(self.root / "away" / path.name))
            case "touch" if path.stat().st_ino not in self.touched:
                os.utime(path)
                self.touched.add(path.stat().st_ino)
            case "bring":
                back = self.away.pop()
                back.rename(self.root / "in" / back.name)
        return f"{kind} {path.name}"


def test_a_table_has_what_its_files_have(tmp_path: Path) -> None:
    """After each run, whatever has happened since the one before; nothing is read twice."""
    for seed in seeds(1):
        dice, root = random.Random(seed), tmp_path / str(seed)
        root.mkdir()
        kind, partner = dice.choice(KINDS), Partner(root, dice)
        rules: dict[str, Any] = {
            "on_change": {**SUPERSEDE, "deleted": "retract"},
            "blocks_threshold": dice.choice([1, 2, 50]),
            "batch_bytes": dice.choice([0, 1 << 20]),
        }
        done = []
        for _ in range(6):
            done.append([partner.change() for _ in range(dice.randint(1, 3))])
            work(corrected_app(root, kind, **rules))
            assert lines_of(root, kind) == all_lines(root), (kind, done)
            if kind.startswith(("delta", "iceberg")) and lines_of(root, kind) and not dice.randrange(3):
                compact(root, kind)
                if dice.randrange(2):
                    forget(root, kind)


@pytest.mark.nightly
def test_totals_are_those_of_the_files(tmp_path: Path) -> None:
    """After each run, with other partition counts, runs that die, and lines in another output."""
    for seed in seeds(12):
        dice, root = random.Random(seed), tmp_path / str(seed)
        root.mkdir()
        beside = dice.choice(BESIDE)
        kind = dice.choice(["delta", "delta-groups"] if beside else TOTALS)
        partner, done = Partner(root, dice), []
        rules: dict[str, Any] = {
            "on_change": {**SUPERSEDE, "deleted": "retract"},
            "blocks_threshold": dice.choice([1, 2, 50]),
            "batch_bytes": dice.choice([0, 1 << 20]),
        }
        for _ in range(6):
            done.append([partner.change() for _ in range(dice.randint(1, 3))])
            rules["partitions"] = dice.randint(1, 3)
            with crashing_disk(str(root), dice.randint(1, 300)), contextlib.suppress(InjectedCrash):
                work(totals_app(root, kind, beside, **rules))
            work(totals_app(root, kind, beside, **rules))
            assert totals_in(root, kind) == totals_of_files(root), (kind, beside, done)
            assert not beside or lines_beside(root, beside) == all_lines(root), (kind, beside, done)
