"""Replays of windows whose rows are in a table, which die before each change of the disk and each transaction."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, write_deltalake

from dagflow import RecordBatch
from dagflow.engine import publishers
from dagflow.engine.run_setup import RunOptions
from dagflow.engine.window_replay import replay_windows
from dagflow.errors import DagflowError, JournalError, ReplacedFilesGoneError, StorageError
from dagflow.plan.logical import LogicalPlan
from dagflow.runtime.local import InlineRuntime
from dagflow.storage.backends.local import LocalPendingFiles
from dagflow.testing.faults import InjectedCrash, crashing_disk
from operators.sink.record_writer import RecordWriter
from tests.crash.restored import restored_afterwards
from tests.engine.dags import dag
from tests.engine.sample_app import TextSource, words
from tests.engine.table_app import (
    TEXTS,
    FaultyTable,
    FaultyWriter,
    changed_by_others,
    delta_app,
    delta_rows,
    iceberg_app,
    iceberg_rows,
    in_groups,
    upserting_app,
    with_faults,
    work,
)
from tests.engine.table_app import app as words_app
from tests.execution.sample_operators import SampleWords, TextSample
from tests.faulty import Faults
from tests.nightly import by_day, every, nightly

MOST_CALLS = 500
KINDS = {
    "delta": (delta_app, delta_rows),
    "iceberg": (iceberg_app, iceberg_rows),
    "delta-groups": (lambda root, texts: in_groups(delta_app(root, texts)), delta_rows),
    "iceberg-groups": (lambda root, texts: in_groups(iceberg_app(root, texts)), iceberg_rows),
}
FIRST, SECOND = TEXTS[:2], TEXTS[2:]
"""What the two windows read."""


class CapitalsWithoutE(SampleWords):
    """The app as it is today: words in capitals, and none that is an e."""

    @SampleWords.samples.each
    def read(self, sample: TextSample) -> Iterator[None]:
        """Emit a batch and pause."""
        self.records.emit(RecordBatch.from_records([word for word in sample.text.upper().split() if word != b"E"]))
        yield


def today(logical: LogicalPlan) -> LogicalPlan:
    """An app with louder lines."""
    lines = replace(logical.operators["lines"], operator=CapitalsWithoutE())
    return replace(logical, operators={**logical.operators, "lines": lines})


def loud(texts: list[bytes]) -> list[bytes]:
    """The words that it makes."""
    return [word for word in words([text.upper() for text in texts]) if word != b"E"]


def replay(logical: LogicalPlan, windows: list[int]) -> None:
    """Replay windows."""
    replay_windows(logical, RunOptions(), windows, runtime=InlineRuntime)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for nothing between two attempts."""
    monkeypatch.setattr(publishers, "FIRST_PAUSE_S", 0.0)
    with_faults(monkeypatch, Faults())


@pytest.mark.parametrize("kind", by_day(2, KINDS))
def test_a_replay_replaces_the_rows_of_its_window_alone(tmp_path: Path, kind: str) -> None:
    """The others stay; the next replay replaces what this one has made, and runs go on behind."""
    make, rows_of = KINDS[kind]
    work(make(tmp_path, TEXTS))
    replay(today(make(tmp_path, TEXTS)), [2])
    assert rows_of(tmp_path / "db") == sorted([*words(FIRST), *loud(SECOND)])
    replay(today(make(tmp_path, TEXTS)), [1])
    assert rows_of(tmp_path / "db") == loud(TEXTS)
    replay(make(tmp_path, TEXTS), [1, 2])
    work(make(tmp_path, [*TEXTS, b"h i"]))
    assert rows_of(tmp_path / "db") == words([*TEXTS, b"h i"])
    assert not list(tmp_path.rglob(".dagflow-pending/*"))


@every(16)
@pytest.mark.parametrize("kind", by_day(1, ["delta-groups", "delta", "iceberg"]))
def test_a_replay_that_dies_anywhere_is_done_once_or_not_at_all(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str, step: int
) -> None:
    """At every moment readers see the old rows or the new ones; where it was decided the next run finishes it."""
    make, rows_of = KINDS[kind]
    made = tmp_path / "made"
    work(make(made, TEXTS))
    old, new = words(TEXTS), sorted([*loud(FIRST), *words(SECOND)])
    seen = set()
    for at in range(1, MOST_CALLS, step):
        with restored_afterwards(made):
            with crashing_disk(str(made), at) as faults, contextlib.suppress(InjectedCrash):
                with_faults(monkeypatch, faults)
                replay(today(make(made, TEXTS)), [1])
            with_faults(monkeypatch, Faults())
            assert rows_of(made / "db") in (old, new), f"seen at {at}"
            work(make(made, TEXTS))
            assert rows_of(made / "db") in (old, new), f"died at {at}"
            seen.add(rows_of(made / "db") == new)
            assert not list(made.rglob(".dagflow-pending/*"))
        if not faults.has_struck:
            assert seen == {False, True}
            return
    pytest.fail("the replay never came through")


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_replay_whose_answer_is_lost_is_not_repeated(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str
) -> None:
    """The number in the table says that it is there."""
    make, rows_of = KINDS[kind]
    work(make(tmp_path, TEXTS))
    faults = with_faults(monkeypatch, Faults(1, "lost_reply"))
    replay(today(make(tmp_path, TEXTS)), [1, 2])
    assert (faults.calls, rows_of(tmp_path / "db")) == (1, loud(TEXTS))


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_files_that_another_program_has_changed_are_not_replaced(tmp_path: Path, kind: str) -> None:
    """Nothing changes; another table gets all records."""
    make, rows_of = KINDS[kind]
    work(make(tmp_path, TEXTS))
    changed_by_others(tmp_path / "db")
    with pytest.raises(ReplacedFilesGoneError, match=r"does not show \d of the files any more .* nothing was replaced"):
        replay(today(make(tmp_path, TEXTS)), [1])
    assert rows_of(tmp_path / "db") == sorted([*words(TEXTS), b"other"])
    work(make(tmp_path, [*TEXTS, b"h"]))
    assert rows_of(tmp_path / "db") == sorted([*words(TEXTS), b"h", b"other"])


@pytest.mark.parametrize("kind", nightly(["delta", "iceberg"], "iceberg"))
def test_a_decided_replay_is_taken_back_where_the_files_are_gone_by_then(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str
) -> None:
    """Another program writes all anew between decision and transaction: the run says so, and the next one goes on."""
    make, rows_of = KINDS[kind]
    work(make(tmp_path, TEXTS))
    with_faults(monkeypatch, Faults(1, "before"))
    with contextlib.suppress(InjectedCrash):
        replay(today(make(tmp_path, TEXTS)), [1])
    with_faults(monkeypatch, Faults())
    changed_by_others(tmp_path / "db")
    with pytest.raises(ReplacedFilesGoneError, match="it has none of the files that the replay has made"):
        work(make(tmp_path, [*TEXTS, b"h"]))
    work(make(tmp_path, [*TEXTS, b"h"]))
    assert rows_of(tmp_path / "db") == sorted([*words(TEXTS), b"h", b"other"])
    assert not list(tmp_path.rglob(".dagflow-pending/*"))


def test_what_a_replay_has_made_goes_when_it_is_taken_back(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With the decision, and not with the next run, which may never come."""
    work(delta_app(tmp_path, TEXTS))

    def die(*arguments: object) -> None:
        raise InjectedCrash("died")

    with monkeypatch.context() as patch, contextlib.suppress(InjectedCrash):
        patch.setattr(LocalPendingFiles, "publish", die)
        replay(today(delta_app(tmp_path, TEXTS)), [1])
    assert list(tmp_path.rglob(".dagflow-pending/*/*"))
    changed_by_others(tmp_path / "db")
    with pytest.raises(ReplacedFilesGoneError, match="it has none of the files that the replay has made"):
        work(delta_app(tmp_path, TEXTS))
    assert not list(tmp_path.rglob(".dagflow-pending/*"))
    assert delta_rows(tmp_path / "db") == sorted([*words(TEXTS), b"other"])


@pytest.mark.parametrize("kind", nightly(["delta", "iceberg"], "iceberg"))
def test_an_older_copy_of_the_checkpoint_replays_nothing(tmp_path: Path, kind: str) -> None:
    """The table has a replay that the copy does not know of."""
    make, rows_of = KINDS[kind]
    work(make(tmp_path, TEXTS))
    shutil.copytree(tmp_path / "journal", tmp_path / "older")
    replay(today(make(tmp_path, TEXTS)), [1])
    shutil.rmtree(tmp_path / "journal")
    (tmp_path / "older").rename(tmp_path / "journal")
    with pytest.raises(JournalError, match=r"has replay 1 of operator 'table', .* ends with replay 0"):
        replay(make(tmp_path, TEXTS), [1])
    assert rows_of(tmp_path / "db") == sorted([*loud(FIRST), *words(SECOND)])


def test_rows_with_keys_are_not_replayed(tmp_path: Path) -> None:
    """A later window may have taken their place."""
    work(upserting_app(tmp_path, TEXTS))
    with pytest.raises(JournalError, match="with upsert_by, later windows may have taken the place of its rows"):
        replay(upserting_app(tmp_path, TEXTS), [1])


def test_a_replay_goes_on_when_the_app_has_its_table_again(tmp_path: Path) -> None:
    """Without it the files could not be replaced, and nothing is."""
    work(delta_app(tmp_path, TEXTS))
    with pytest.raises(JournalError, match="added files to the target of operator 'table', and the app has no such"):
        replay(words_app(tmp_path, TEXTS, table=RecordWriter(path=str(tmp_path / "out"))), [1])
    assert delta_rows(tmp_path / "db") == words(TEXTS)
    replay(today(delta_app(tmp_path, TEXTS)), [1, 2])
    assert delta_rows(tmp_path / "db") == loud(TEXTS)


def test_a_decided_replay_waits_for_its_table(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where the app names one meanwhile whose files cannot be replaced."""
    work(delta_app(tmp_path, TEXTS))
    with_faults(monkeypatch, Faults(1, "before"))
    with contextlib.suppress(InjectedCrash):
        replay(today(delta_app(tmp_path, TEXTS)), [1])
    with_faults(monkeypatch, Faults())
    with pytest.raises(JournalError, match=r"decided, and files of .* cannot be replaced"):
        work(words_app(tmp_path, TEXTS, table=FaultyTable(database=str(tmp_path / "other"))))
    work(delta_app(tmp_path, TEXTS))
    assert delta_rows(tmp_path / "db") == sorted([*loud(FIRST), *words(SECOND)])


def test_a_replay_of_two_tables_goes_on_when_the_second_is_restored(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The first has taken it, so it cannot be taken back where another program has changed the second meanwhile."""

    def make() -> LogicalPlan:
        operators: dict[str, Any] = {"source": TextSource(texts=TEXTS), "lines": (SampleWords(), 2)}
        operators |= {name: (FaultyWriter(table=f"delta:{tmp_path / name}"), "parallel") for name in "ab"}
        return dag(tmp_path, operators, ["source.out lines.samples", "lines.records a.input", "lines.records b.input"])

    work(make())
    with_faults(monkeypatch, Faults(2, "before"))
    with contextlib.suppress(InjectedCrash):
        replay(today(make()), [1])
    with_faults(monkeypatch, Faults())
    table = DeltaTable(str(tmp_path / "b"))
    version = table.version()
    write_deltalake(table, table.to_pyarrow_table(), mode="overwrite")
    with pytest.raises(
        StorageError, match=r"replay 1 is in the target of operator 'a', and table .*/b: it does not show"
    ):
        work(make())
    DeltaTable(str(tmp_path / "b")).restore(version)
    work(make())
    new = sorted([*loud(FIRST), *words(SECOND)])
    assert (delta_rows(tmp_path / "a"), delta_rows(tmp_path / "b")) == (new, new)


def test_a_table_that_is_not_started_over_can_be_replayed(tmp_path: Path) -> None:
    """--fresh says how: all windows in one transaction."""
    work(delta_app(tmp_path, TEXTS))
    with pytest.raises(DagflowError, match="windows 1 to 2") as refused:
        work(delta_app(tmp_path, TEXTS), RunOptions(fresh=True))
    assert refused.value.hint.endswith(f"or write its rows again: dagflow replay {tmp_path}/journal --window 1-2")
    version = DeltaTable(str(tmp_path / "db")).version()
    replay(today(delta_app(tmp_path, TEXTS)), [1, 2])
    assert (DeltaTable(str(tmp_path / "db")).version(), delta_rows(tmp_path / "db")) == (version + 1, loud(TEXTS))
