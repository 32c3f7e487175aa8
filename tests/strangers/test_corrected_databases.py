"""A file of a table in a database is corrected: what the run advises works, and nothing else is advised."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import pytest
from click.testing import CliRunner, Result

from dagflow.cli.main import command_line

APP = """name: sales
steps:
  - files: in
  - read: {type: csv, columns: {id: int64, v: int64}}
  - table: "duckdb:shop.db#sales"
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a file of three rows."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.csv").write_text("id,v\n1,2\n2,3\n3,4\n")
    return tmp_path


def dagflow(*words: str) -> Result:
    """A command in this process."""
    return CliRunner().invoke(command_line, [*words, "--local", "--workers", "1"])


def rows(table: str) -> list[tuple[int, int]]:
    """What a table has."""
    with duckdb.connect("shop.db") as connection:
        return connection.sql(f"select id, v from {table} order by all").fetchall()


@pytest.mark.parametrize(
    ("option", "said", "left"),
    [
        ("", "1.csv was read again: 3 old rows stay beside the new ones (sales)", [(1, 2), (1, 9), (2, 3), (3, 4)]),
        (
            "upsert_by: [id]",
            "1.csv was read again: of 3 old rows, those stay whose keys no new one has (sales)",
            [(1, 9), (2, 3), (3, 4)],
        ),
    ],
)
def test_a_database_that_cannot_be_corrected_is_written_anew(
    folder: Path, option: str, said: str, left: list[tuple[int, int]]
) -> None:
    """The file got shorter; the table stays as it is, and another one is right."""
    app = folder / "app.yaml"
    app.write_text(f"{APP}    {option}\n")
    assert "    output: 3 rows in table duckdb:" in dagflow("run", "app.yaml").output
    (folder / "in" / "1.csv").write_text("id,v\n1,9\n")
    again = dagflow("run", "app.yaml").output
    assert said in again and "let the app name another table, and start over with --fresh" in again
    assert "supersede" not in again and rows("sales") == left
    app.write_text(app.read_text().replace("#sales", "#better"))
    assert dagflow("run", "app.yaml", "--fresh").exit_code == 0
    assert rows("better") == [(1, 9)] and rows("sales") == left


def test_the_choice_that_is_advised_is_one_that_the_app_can_make(folder: Path) -> None:
    """Where the table cannot be corrected, the run ends before the file is read."""
    app = folder / "app.yaml"
    app.write_text(APP)
    assert dagflow("run", "app.yaml").exit_code == 0
    (folder / "in" / "1.csv").write_text("id,v\n1,9\n")
    (choice,) = re.findall(r"on_change: {.*?}", dagflow("run", "app.yaml").output)
    app.write_text(APP.replace("in\n", f"in\n    {choice}\n"))
    assert dagflow("run", "app.yaml").exit_code == 0
    (folder / "in" / "1.csv").write_text("id,v\n1,8\n2,8\n")
    before = rows("sales")
    ended = dagflow("run", "app.yaml")
    assert ended.exit_code == 1 and "1.csv" in ended.output and rows("sales") == before


def test_a_table_to_be_written_anew_may_be_renamed(folder: Path) -> None:
    """As the refusal of --fresh says."""
    (folder / "app.yaml").write_text(APP)
    assert dagflow("run", "app.yaml").exit_code == 0
    assert "or rename or remove this one" in dagflow("run", "app.yaml", "--fresh").output
    with duckdb.connect("shop.db") as connection:
        connection.execute("alter table sales rename to sales_before")
    assert dagflow("run", "app.yaml", "--fresh").exit_code == 0
    assert rows("sales") == rows("sales_before")


def test_a_table_that_could_not_be_looked_at_is_no_valid_one_in_silence(folder: Path) -> None:
    """The app may be valid where its database is not."""
    (folder / "app.yaml").write_text(
        APP.replace("duckdb:shop.db#sales", "postgres:public.sales")
        + "    connection: postgresql://localhost:1/x?connect_timeout=1\n"
    )
    said = CliRunner().invoke(command_line, ["validate", "app.yaml"])
    assert said.exit_code == 0 and "the table of operator 'table' could not be looked at: " in said.output
