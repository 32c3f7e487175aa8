"""Real processes of runs into tables that are killed at random moments."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest
from deltalake import DeltaTable

from dagflow.journal.reader import read_state
from dagflow.storage.context import StorageContext
from tests.crash.killing import LOCALLY, KillCounts, RunProcess, Target, kill_until_done, watched
from tests.crash.kinds import KINDS, KilledApp, postgres_kind
from tests.operators.sink.tables.postgres_server import running_server

pytestmark = [pytest.mark.crash, pytest.mark.e2e]

APP = """\
name: killed-table
attributes: {checkpoint: journal, window_millis: 100}
operators:
  splitter: {class: FileSplitterInput, properties: {files: in, scan_interval_millis: 100, blocks_threshold: 5}}
  reader: {class: BlockReader, properties: {min_readers: 2, max_readers: 4}}
  table:
    class: TableWriter
    properties: {table: "delta:out", metadata_columns: file, commit: {every_millis: 900}}
    partition: parallel
streams:
  blocks: {from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}
  lines: {from: reader.messages, to: table.input}
"""

KILLS: list[Target] = ["driver", "worker", "driver", "daemon", "driver", "driver"]


def feed(folder: Path, first: int, count: int) -> None:
    """Move more files into the input."""
    for number in range(first, first + count):
        waiting = folder / "waiting"
        waiting.write_text("".join(f"{number} {line}\n" for line in range(number % 7 + 1)))
        waiting.rename(folder / "in" / f"{number:05}.txt")


def rows(folder: Path) -> Counter[bytes]:
    """The records of the table."""
    table = folder / "out"
    if not DeltaTable.is_deltatable(str(table)):
        return Counter()
    return Counter(DeltaTable(str(table)).to_pyarrow_table(columns=["record"])["record"].to_pylist())


def expected(files: int) -> Counter[bytes]:
    """What the first so many files hold."""
    return Counter(f"{number} {line}".encode() for number in range(files) for line in range(number % 7 + 1))


@pytest.mark.nightly
def test_a_table_that_is_followed_has_every_record_once(tmp_path: Path) -> None:
    """Driver, workers and their server die at any moment of a group; readers never see a record twice."""
    (tmp_path / "app.yaml").write_text(APP)
    (tmp_path / "in").mkdir()
    dice, files, killed = random.Random(7), 0, 0
    for target in [*KILLS, None]:
        run = RunProcess(tmp_path, "-q", "--follow", *LOCALLY)
        try:
            feed(tmp_path, files, 3)  # the first of them start the processes of tasks
            files += 3
            has_workers = run.wait_for(lambda: bool(run.pids("worker")))  # noqa: B023  # called within the loop
            assert has_workers, (tmp_path / "run.log").read_text()
            moment = time.monotonic() + dice.uniform(0.3, 2.5)
            while time.monotonic() < moment:
                feed(tmp_path, files, 3)
                files += 3
                run.wait_for(lambda: False, most_s=0.05)
            if target is not None:
                killed += run.kill(target, dice)
            if target != "driver":
                # A run goes on without a worker; what it has not yet merged it merges when it is stopped.
                run.wait_for(lambda: False, most_s=1.5)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(run.process.pid, signal.SIGTERM)
            run.end()
        finally:
            run.destroy()
        assert not rows(tmp_path) - expected(files), "a record is there twice"
    assert killed >= 5
    last = RunProcess(tmp_path, "-q", "--local")
    try:
        assert last.end() == 0, (tmp_path / "run.log").read_text()
    finally:
        last.destroy()
    assert rows(tmp_path) == expected(files)
    state = read_state(StorageContext.default().objects(str(tmp_path / "journal")))
    assert not state.held.waiting
    assert DeltaTable(str(tmp_path / "out")).version() + 1 < state.last_done / 2, "windows were no groups"
    assert not list((tmp_path / "out").rglob(".dagflow-pending/*"))
    assert "Traceback" not in (tmp_path / "run.log").read_text()


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["delta", "iceberg", "sqlite", "duckdb"])
def test_rows_and_newest_rows_of_keys_survive_kills(tmp_path: Path, name: str) -> None:
    """Three tables and files in one app: in groups, and with the newest row of each key in groups and without."""
    (kind,) = (kind for kind in KINDS if kind.name == name)
    _require_whole_after_kills(tmp_path, kind)


@pytest.mark.nightly
def test_tables_of_a_server_survive_kills(tmp_path: Path) -> None:
    """As above; a transaction of a killed driver may still be on its way when the next one begins."""
    with running_server() as server:
        _require_whole_after_kills(tmp_path, postgres_kind(server.address))


def _require_whole_after_kills(tmp_path: Path, kind: KilledApp) -> None:
    kind.make(tmp_path)
    counts = KillCounts()
    with watched(tmp_path):
        kill_until_done(tmp_path, 5, ["driver", "worker", "driver", "daemon"] * 2, counts, options=lambda _: LOCALLY)
    kind.require_whole(tmp_path)
    assert counts.middle >= 4, counts
