"""Yesterday's file was wrong, and here is the right one: what a stranger does, and sees in the table."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
from pathlib import Path

import duckdb
import pytest
from deltalake import DeltaTable

from tests.cli.processes import ENTRY, environment
from tests.crash.killing import LOCALLY, RunProcess, hurry, slow_operator

APP = """\
name: orders
attributes: {checkpoint: journal}
steps:
  - files: in
    ON_CHANGE
  - read: {type: csv, header: true, columns: {id: int64, amount: int64}}
  - class: slow_ops.Slow
  - table: delta:table
"""


def put(folder: Path, name: str, first: int, count: int, amount: int) -> None:
    """A file of orders, which takes the place of an earlier one at once."""
    lines = [f"{number},{amount}" for number in range(first, first + count)]
    (folder / "in").mkdir(exist_ok=True)
    (folder / "new").write_text("\n".join(["id,amount", *lines, ""]))
    (folder / "new").rename(folder / "in" / name)


def figures(folder: Path) -> tuple[int, int, int]:
    """Rows, ids and the sum of the amounts, as DuckDB finds them."""
    orders = DeltaTable(str(folder / "table")).to_pyarrow_dataset()
    with duckdb.connect() as connection:
        connection.register("orders", orders)
        query = "SELECT count(*), count(DISTINCT id), sum(amount)::BIGINT FROM orders"
        found: tuple[int, int, int] = connection.execute(query).fetchall()[0]
    return found


def dagflow(folder: Path, *arguments: str) -> str:
    """What a command prints; it ends with 0."""
    done = subprocess.run(
        [*ENTRY, *arguments], cwd=folder, env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two files that are loaded."""
    (tmp_path / "app.yaml").write_text(
        APP.replace("ON_CHANGE", "on_change: {replaced: supersede, truncated: supersede}")
    )
    (tmp_path / "slow_ops.py").write_text(slow_operator(tmp_path, 1.0))
    put(tmp_path, "monday.csv", 0, 1000, 1)
    put(tmp_path, "tuesday.csv", 1000, 1000, 1)
    hurry(tmp_path)
    return tmp_path


@pytest.mark.nightly
def test_a_corrected_file_whose_run_is_killed(folder: Path) -> None:
    """The table has the old rows, and after the next run the new ones; the summary says what was changed."""
    dagflow(folder, "run", "app.yaml", *LOCALLY)
    put(folder, "monday.csv", 0, 999, 3)
    (folder / "hurry").unlink()
    run = RunProcess(folder, *LOCALLY)
    assert run.wait_for(lambda: bool(run.pids("worker")))
    os.kill(run.process.pid, signal.SIGKILL)
    run.destroy()
    assert figures(folder) == (2000, 2000, 2000)
    hurry(folder)
    said = dagflow(folder, "run", "app.yaml", *LOCALLY)
    assert figures(folder) == (1999, 1999, 3997)
    assert re.search(r"monday\.csv was corrected: 1,000 rows out, 999 in \(\w+, version \d+\)", said)


@pytest.mark.nightly
def test_what_is_said_of_a_file_that_was_read_again_corrects_the_table(folder: Path) -> None:
    """The summary and the status count the old rows, and name a command that takes them out; then neither warns."""
    (folder / "app.yaml").write_text(APP.replace("    ON_CHANGE\n", ""))
    dagflow(folder, "run", "app.yaml", *LOCALLY)
    put(folder, "monday.csv", 0, 999, 3)
    said = dagflow(folder, "run", "app.yaml", *LOCALLY)
    assert figures(folder) == (2999, 2000, 4997)
    for text in (said, dagflow(folder, "status", "app.yaml")):
        assert "monday.csv was read again: 1,000 old rows stay beside the new ones (table)" in text
    (command,) = re.findall(r"`dagflow (replay [^`]* --superseded)`", said)
    corrected = dagflow(folder, *shlex.split(command))
    assert figures(folder) == (1999, 1999, 3997)
    for text in (corrected, dagflow(folder, "status", "app.yaml")):
        assert "monday.csv was corrected: 1,000 rows out (table, version 2)" in text
        assert "old rows" not in text
