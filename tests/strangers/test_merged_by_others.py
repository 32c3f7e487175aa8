"""Tables whose files another program merges, changes or forgets, and whose rows are corrected afterwards."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import pytest

from dagflow.engine import publishers
from dagflow.errors import ReplacedFilesGoneError
from dagflow.plan.logical import grouped
from operators.reader.block_reader import BlockReader
from operators.sink.table_writer import TableWriter
from tests.engine.corrected_app import EDGES, SUPERSEDE, all_lines, corrected_app, lines_of, splitter, write
from tests.engine.dags import dag
from tests.engine.table_app import with_faults, work
from tests.faulty import InjectedPause
from tests.nightly import by_day
from tests.strangers.fuzzing import seeds
from tests.strangers.merged_tables import append, compact, forget, remove

KINDS = ["delta", "iceberg", "delta-groups", "iceberg-groups"]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for nothing between two attempts."""
    monkeypatch.setattr(publishers, "FIRST_PAUSE_S", 0.0)


def correct(root: Path, kind: str, name: str, lines: str) -> None:
    """Put another version of a file in place, and run."""
    write(root, name, lines)
    work(corrected_app(root, kind, on_change={**SUPERSEDE, "deleted": "retract"}))


@pytest.mark.parametrize("kind", by_day(2, KINDS))
@pytest.mark.parametrize("is_forgotten", [False, True])
def test_a_file_is_corrected_in_a_table_that_was_compacted(tmp_path: Path, kind: str, is_forgotten: bool) -> None:
    """Again and again, with files that were compacted twice; nothing but the rows of its old version leaves."""
    correct(tmp_path, kind, "a", "a1 a2 a3 a4 a5")
    correct(tmp_path, kind, "b", "b1 b2 a1")
    compact(tmp_path, kind)
    correct(tmp_path, kind, "c", "c1 c2 c3")
    compact(tmp_path, kind)
    for name, lines in [("a", "A1 A2"), ("b", "b1"), ("a", "a1 a2 a3"), ("c", "")]:
        if is_forgotten:
            forget(tmp_path, kind)
        correct(tmp_path, kind, name, lines)
        assert lines_of(tmp_path, kind) == all_lines(tmp_path)
        compact(tmp_path, kind)
    assert lines_of(tmp_path, kind) == all_lines(tmp_path)


@pytest.mark.parametrize("kind", by_day(1, KINDS))
def test_a_table_may_be_compacted_while_it_is_corrected(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str
) -> None:
    """After the last look at it: the transaction is made anew; in Iceberg the next run makes all of the correction."""
    correct(tmp_path, kind, "a", "a1 a2 a3 a4 a5")
    correct(tmp_path, kind, "b", "b1 b2 a1")
    faults = with_faults(monkeypatch, InjectedPause(1, lambda: compact(tmp_path, kind)))
    write(tmp_path, "a", "A1 A2")
    if kind.startswith("iceberg"):
        with pytest.raises(ReplacedFilesGoneError, match="run it again"):
            work(corrected_app(tmp_path, kind))
    work(corrected_app(tmp_path, kind))
    assert (faults.calls, lines_of(tmp_path, kind)) == (2, all_lines(tmp_path))


def test_each_of_two_tables_is_corrected_by_itself(tmp_path: Path) -> None:
    """One was compacted, and the files from before were removed in the other one."""

    def work_on_both() -> None:
        nodes: dict[str, Any] = {
            "splitter": splitter(tmp_path),
            "reader": (BlockReader(format="lines", max_readers=2), 2),
            **{name: (TableWriter(table=f"delta:{tmp_path / name / 'table'}"), "parallel") for name in "xy"},
        }
        edges = [EDGES[0], *(f"reader.messages {name}.input" for name in "xy")]
        work(grouped(dag(tmp_path, nodes, edges)))

    for lines in ("a1 a2 a3", "A1 A2", "A3"):
        write(tmp_path, "a", lines)
        write(tmp_path, "b", "b1 b2")
        work_on_both()
        for name in "xy":
            assert lines_of(tmp_path / name, "delta") == all_lines(tmp_path)
            compact(tmp_path / name, "delta")
        forget(tmp_path / "y", "delta")


class World:
    """An app and its table, to which other programs write as well; what the table must have is known.

    Attributes:
        rows: The rows of each file of the input that are in the table.
        others: The rows of other programs.
        is_known: Whether it is known where all rows are from: no program has changed or forgotten any.
    """

    def __init__(self, root: Path, kind: str, chance: random.Random) -> None:
        self.root, self.kind, self.chance = root, kind, chance
        self.rows: dict[str, list[str]] = {}
        self.others: list[str] = []
        self.is_known = True

    @property
    def expected(self) -> list[str]:
        """What readers of the table must see."""
        return sorted([*itertools.chain(*self.rows.values()), *self.others])

    def put(self) -> bool:
        """Write a file, a new one or another version of one, and run."""
        name = self.chance.choice("abcd")
        texts = ["x", "y", "1234567", *(f"{name}{number}" for number in range(6))]
        lines = self.chance.choices(texts, k=self.chance.choice([0, 1, 3, 7]))
        write(self.root, name, " ".join(lines))
        return self.run({**self.rows, name: lines})

    def retract(self) -> bool:
        """Delete a file, and run; the last one stays."""
        if len(self.rows) < 2:
            return True
        name = self.chance.choice(sorted(self.rows))
        (self.root / "in" / name).unlink()
        return self.run({other: lines for other, lines in self.rows.items() if other != name})

    def run(self, after: dict[str, list[str]]) -> bool:
        """Whether the run has corrected the table; it may refuse that only where something is not known any more."""
        try:
            work(corrected_app(self.root, self.kind, on_change={**SUPERSEDE, "deleted": "retract"}))
        except ReplacedFilesGoneError:
            assert not self.is_known
            return False
        self.rows = after
        return True

    def append(self) -> bool:
        """Another program adds a row."""
        self.others.append(self.chance.choice(["x", "other"]))
        append(self.root, self.kind, self.others[-1])
        return True

    def compact(self) -> bool:
        """Another program merges all files."""
        compact(self.root, self.kind)
        # Files of others cannot be put back in Iceberg.
        self.is_known &= not (self.others and self.kind.startswith("iceberg"))
        return True

    def forget(self) -> bool:
        """Another program removes the files of earlier versions."""
        forget(self.root, self.kind)
        self.is_known &= not self.others
        return True

    def remove(self) -> bool:
        """Another program deletes rows."""
        text = self.chance.choice(["x", "a1"])
        remove(self.root, self.kind, text)
        self.is_known &= text not in self.expected
        self.rows = {name: [line for line in lines if line != text] for name, lines in self.rows.items()}
        self.others = [line for line in self.others if line != text]
        return True


ACTIONS = [World.put] * 4 + [World.compact] * 3 + [World.retract, World.append, World.forget, World.remove]


@pytest.mark.parametrize("kind", by_day(2, KINDS))
def test_a_correction_beside_other_programs_is_exact_or_refused(tmp_path: Path, kind: str) -> None:
    """Whatever they do in between: each row is there as often as it must be, or nothing was changed."""
    for seed in seeds(2):
        root, chance = tmp_path / str(seed), random.Random(seed)
        world = World(root, kind, chance)
        world.put()
        for _ in range(chance.randrange(4, 12)):
            goes_on = chance.choice(ACTIONS)(world) if lines_of(root, kind) else world.put()
            assert lines_of(root, kind) == world.expected
            if not goes_on:
                break
