"""`--diff` of replay and run: what would change, with counts, samples and an exit code, and without a write."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

from dagflow.cli.main import command_line
from tests.nightly import by_day

APP = """\
name: orders
attributes: {checkpoint: journal}
steps:
  - files: in
  - read: {type: csv, columns: {id: int64, qty: int64, who: string}}
  - where: qty > 0
  - select: {qty: qty * 2}
  - table: delta:out/orders
operators:
  refused: {class: RecordWriter, properties: {path: out/refused}}
streams:
  rejects: {from: read.errors, to: refused.input}
"""
CHANGED = {"qty * 2": "qty * 3", "qty > 0": "qty > 5"}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with an app and two files, one of which has a record that is refused."""
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()
    Path("in/1.csv").write_text("id,qty,who\n1,5,a\n2,6,b\n3,x,c\n4,0,d\n")
    Path("in/2.csv").write_text("id,qty,who\n5,5,a\n6,7,b\n")
    written({})
    return tmp_path


def written(changes: dict[str, str]) -> None:
    """Write the app, with some texts changed."""
    text = APP
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    Path("app.yaml").write_text(text)


def command(*words: str) -> Result:
    """Run a command on the app in this process."""
    return CliRunner().invoke(command_line, [words[0], "app.yaml", "--local", "--workers", "1", *words[1:]])


def diff(*words: str) -> tuple[int, dict[str, Any]]:
    """The exit code and the JSON of a comparison."""
    done = CliRunner(catch_exceptions=False).invoke(
        command_line, [words[0], "app.yaml", "--local", "--workers", "1", "--diff", "--json", *words[1:]]
    )
    return done.exit_code, json.loads(done.stdout) if done.exit_code in (0, 3) else {"error": done.output}


def content() -> dict[str, bytes]:
    """All files below the directory, without what dagflow keeps for itself."""
    paths = (path for path in sorted(Path().rglob("*")) if path.is_file() and path.parts[0] != ".dagflow")
    return {str(path): path.read_bytes() for path in paths}


def rows() -> list[dict[str, Any]]:
    """The rows of the table, in order."""
    found = pa.table(deltalake.DeltaTable("out/orders").to_pyarrow_table()).to_pylist()
    return sorted(found, key=lambda row: (row["id"], row["qty"]))


def test_a_replay_shows_what_it_would_change_and_changes_nothing(folder: Path) -> None:
    """Each row with file and offset, though the table has neither; the replay then does what was shown."""
    command("run")
    assert diff("replay") == (0, {**diff("replay")[1], "changes": False})
    written(CHANGED)
    before = content()
    code, found = diff("replay")
    assert code == 3 and content() == before and not [*folder.glob(".dagflow/dagflow-*")]
    table = found["tables"][0]
    counts = {kind: table[kind] for kind in ("rows", "added", "removed", "changed", "columns", "identity")}
    assert counts == {
        **{"rows": 4, "added": 0, "removed": 2, "changed": 2, "columns": {"qty": 2}, "identity": "by file and offset"}
    }
    assert [(Path(each["file"]).name, each["offset"], each["before"]) for each in table["samples"]["removed"]] == [
        ("1.csv", 11, {"id": 1, "qty": 10, "who": "a"}),
        ("2.csv", 11, {"id": 5, "qty": 10, "who": "a"}),
    ]
    changed = table["samples"]["changed"][0]
    assert (changed["offset"], changed["columns"], changed["after"]["qty"]) == (17, ["qty"], 18)
    assert command("replay", "--window", "1").exit_code == 0
    assert [(row["id"], row["qty"]) for row in rows()] == [(2, 18), (6, 21)]
    assert diff("replay")[0] == 0


def test_rows_of_an_app_that_is_not_known_are_compared_as_a_whole() -> None:
    """The text of the app did not make the rows, and says so: with a column that tells rows apart, by that one."""
    command("run", "--set", "select.columns={qty: qty * 7}")
    table = diff("replay")[1]["tables"][0]
    assert (table["changed"], table["identity"]) == (4, "by 'id': rows do not say from where they are")
    written({"journal": "journal2", "out/orders": "new/orders", "out/refused": "new/refused"})
    Path("in/1.csv").write_text("id,qty,who\n1,1,a\n1,1,b\n")
    Path("in/2.csv").write_text("id,qty,who\n1,1,a\n1,1,b\n")
    command("run", "--set", "select.columns={qty: qty * 7}")
    table = diff("replay")[1]["tables"][0]
    assert (table["removed"], table["added"]) == (4, 4) and table["identity"].startswith("as a whole, so that")


def test_refused_records_that_would_come_back_are_shown() -> None:
    """With place, reason and bytes."""
    command("run")
    cast = "qty: cast(replace(qty, 'x', '3') as bigint) * 2"
    written({"qty: int64": "qty: string", "qty > 0": "qty <> '0'", "{qty: qty * 2}": f'{{qty: "{cast[5:]}"}}'})
    rejects = diff("replay")[1]["rejects"]
    assert (rejects["returning"]["count"], rejects["refused"]["count"]) == (1, 0)
    (record,) = rejects["returning"]["samples"]
    assert (record["offset"], record["record"]) == (23, "3,x,c")


@pytest.mark.nightly
def test_a_comparison_that_is_killed_has_changed_nothing(folder: Path) -> None:
    """What it leaves below .dagflow is removed by the next one."""
    Path("fatal.py").write_text(FATAL)
    text = APP.replace("  - where", "  - {class: fatal.Fatal}\n  - where")
    Path("app.yaml").write_text(text)
    words = [sys.executable, "-m", "dagflow", "replay", "app.yaml", "--diff", "--local", "--workers", "1"]
    subprocess.run([*words[:3], "run", "app.yaml", "--local", "--workers", "1", "-q"], check=True)
    before = content()
    killed = subprocess.run(words, env={**os.environ, "FATAL": "yes"}, check=False)
    assert killed.returncode == -signal.SIGKILL and content() == before
    assert len([*folder.glob(".dagflow/dagflow-*")]) == 2
    assert subprocess.run(words, check=False).returncode == 0
    assert content() == before and not [*folder.glob(".dagflow/dagflow-*")]


FATAL = """\
import os, signal
from dagflow import InputPort, Operator, OutputPort

class Fatal(Operator):
    input = InputPort()
    output = OutputPort()

    @input.batch
    def take(self, batch):
        if "FATAL" in os.environ:
            os.kill(os.getpid(), signal.SIGKILL)
        self.output.emit(batch)
"""


def test_rejects_belong_to_the_tables_behind_their_operators() -> None:
    """Each table has its own, and the whole has all of them once; a table of rejects has none."""
    Path("in/1.csv").write_text("id,qty,who\n1,5,a\n2,x,b\n3,7,c\n")
    Path("app.yaml").write_text(TWO_TABLES)
    assert command("run").exit_code == 0
    changed = TWO_TABLES.replace("type: csv", "type: csv, null_values: [x]").replace("id < 3", "id < 6")
    Path("app.yaml").write_text(changed)
    code, found = diff("replay")
    counts = {
        each["operator"]: [each["rejects"][kind]["count"] for kind in ("returning", "refused")]
        for each in found["tables"]
    }
    assert code == 3 and counts == {"all": [1, 0], "few": [3, 0], "refused": [0, 0], "wrong": [0, 0]}
    assert [found["rejects"][kind]["count"] for kind in ("returning", "refused")] == [3, 0]
    few = next(each for each in found["tables"] if each["operator"] == "few")["rejects"]["returning"]["samples"]
    assert [(each["offset"], each["operator"]) for each in few] == [(17, "read"), (23, "small"), (11, "small")]


TWO_TABLES = """\
name: orders
attributes: {checkpoint: journal}
steps:
  - files: in
  - read: {type: csv, columns: {id: int64, qty: int64, who: string}}
operators:
  all: {class: TableWriter, properties: {table: delta:out/all}}
  small: {class: Check, properties: {expect: id < 3}}
  few: {class: TableWriter, properties: {table: delta:out/few}}
  refused: {class: RecordWriter, properties: {path: out/refused}}
  wrong: {class: RecordWriter, properties: {path: out/wrong, format: json_lines}}
streams:
  rows: {from: read.messages, to: [all.input, small.input]}
  small: {from: small.output, to: few.input}
  rejects: {from: read.errors, to: refused.input}
  others: {from: small.errors, to: wrong.input}
"""


def test_input_that_was_replaced_is_not_taken_for_removed_rows() -> None:
    """A replay is refused as well; the other windows can be compared where the table tells them apart."""
    written({"delta:out/orders": "delta:out/orders\n    metadata_columns: window", "files: in": FILES_APART})
    command("run")
    old = Path("in/2.csv").read_text()
    Path("in/2.csv").write_text(old + "7,")
    assert "put the version back that was read" in diff("replay")[1]["error"]
    assert diff("replay", "--window", "1")[0] == 0


FILES_APART = "files: in\n    max_files_per_window: 1\n    batch_bytes: 0"


def test_windows_that_a_table_does_not_name_are_compared_together() -> None:
    """The message says so, and all windows can be compared."""
    command("run")
    error = diff("replay", "--window", "1")[1]["error"]
    assert "does not say which of its rows are of which window\n    compare all windows, without --window" in error
    assert diff("replay")[0] == 0


@pytest.mark.nightly
def test_windows_that_are_no_longer_kept_are_not_taken_for_removed_rows() -> None:
    """The others can be compared where the table tells windows apart."""
    window = "delta:out/orders\n    metadata_columns: window\n    commit: {every_millis: 0}"
    written({"delta:out/orders": window, "files: in": FILES_APART, "journal}": "journal, retain_windows: 5}"})
    for number in range(80):
        Path(f"in/{number + 3}.csv").write_text("id,qty,who\n5,5,a\n")
    command("run")
    Path("in/last.csv").write_text("id,qty,who\n5,5,a\n")
    command("run")
    error = diff("replay")[1]["error"]
    assert "choose windows that are kept, with --window" in error
    assert diff("replay", "--window", f"{int(error.split('up to ')[1].split()[0]) + 1}-83")[0] == 0


@pytest.mark.parametrize("over", by_day(1, ["run", "all"]))
def test_totals_of_several_runs_are_compared_by_key(over: str) -> None:
    """`run --diff` shows what `run` does then; a replay of all windows ends each run where it ended."""
    text = APP[: APP.index("  - where")] + "  - aggregate: {total: sum(qty)}\n    by: who\n    over: OVER\n"
    written({})
    Path("app.yaml").write_text(text.replace("OVER", over) + "  - table: delta:out/orders\n    upsert_by: who\n")
    Path("in/1.csv").write_text("id,qty,who\n1,10,a\n2,6,b\n")
    Path("in/2.csv").unlink()
    assert diff("run")[1]["tables"][0]["added"] == 2
    assert command("run", "--diff", "-q").output == ""
    command("run")
    Path("in/2.csv").write_text("id,qty,who\n3,7,a\n4,1,c\n")
    before = content()
    code, found = diff("run")
    table = found["tables"][0]
    assert (code, table["added"], table["changed"], table["identity"]) == (3, 1, 1, "by who")
    assert table["samples"]["changed"][0]["after"] == {"who": "a", "total": 7 if over == "run" else 17}
    assert content() == before
    command("run")
    assert (diff("run")[0], diff("replay")[0]) == (0, 0)
    Path("app.yaml").write_text(Path("app.yaml").read_text().replace("sum(qty)", "sum(2 * qty)"))
    assert diff("replay")[1]["tables"][0]["columns"] == {"total": 3}


@pytest.mark.parametrize("output", by_day(1, ["table: delta:out/orders", "write: out/lines", "table: parquet:out/x"]))
def test_a_corrected_and_a_deleted_file_take_their_rows_along(output: str) -> None:
    """As the run does then; nothing is removed before."""
    changes = "files: in\n    on_change: {replaced: supersede, deleted: retract}"
    written({"files: in": changes, "table: delta:out/orders": output})
    command("run")
    Path("new").write_text("id,qty,who\n1,5,a\n2,60,b\n7,1,e\n")
    Path("new").rename("in/1.csv")
    before = content()
    code, found = diff("run")
    table = found["tables"][0]
    kinds = [table[kind] for kind in ("added", "removed", "changed")]
    assert code == 3 and kinds in ([1, 0, 1], [2, 1, 0]) and content() == before
    if table["changed"]:
        assert table["samples"]["changed"][0]["after"] == {"id": 2, "qty": 120, "who": "b"}
    command("run")
    assert (diff("run")[0], diff("replay")[0]) == (0, 0)
    Path("in/2.csv").unlink()
    before = content()
    table = diff("run")[1]["tables"][0]
    assert [table[kind] for kind in ("added", "removed", "changed")] == [0, 2, 0] and content() == before
    if output.startswith("table"):
        assert [Path(change["file"]).name for change in table["samples"]["removed"]] == ["2.csv", "2.csv"]
        assert "in/2.csv  id 5" in command("run", "--diff").stderr


def test_rows_with_another_place_in_a_corrected_file_are_the_same() -> None:
    """Also where the table has the places as columns."""
    changes = "files: in\n    on_change: {replaced: supersede}"
    origins = "table: delta:out/orders\n    metadata_columns: [file, offset]"
    written({"files: in": changes, "table: delta:out/orders": origins})
    Path("in/1.csv").write_text("id,qty,who\n" + "".join(f"{number},5,a\n" for number in range(10, 40)))
    command("run")
    Path("new").write_text(Path("in/1.csv").read_text().replace("12,5,a\n", "12,555,a\n").replace("10,5,a\n", ""))
    Path("new").rename("in/1.csv")
    table = diff("run")[1]["tables"][0]
    assert [table[kind] for kind in ("added", "removed", "changed")] == [0, 1, 1]
    assert [(table["samples"][kind][0]["offset"]) for kind in ("removed", "changed")] == [11, 18]


def test_a_corrected_record_is_a_changed_row_and_no_refused_one_any_more() -> None:
    """By a column that tells the rows of both versions apart, though most rows are the same; also once more."""
    written({"files: in": "files: in\n    on_change: {replaced: supersede, deleted: retract}"})
    Path("in/1.csv").write_text("id,qty,who\n" + "".join(f"{number},5,a\n" for number in range(10, 30)) + "3,x,c\n")
    command("run")
    for qty in (6, 7):
        Path("new").write_text(Path("in/1.csv").read_text().replace(f"11,{qty - 1},", f"11,{qty},").replace("x", "8"))
        Path("new").rename("in/1.csv")
        code, found = diff("run")
        table = found["tables"][0]
        assert (code, table["changed"], table["removed"], table["added"]) == (3, 1, 0, 7 - qty)
        assert table["identity"].startswith("by 'id'") and table["samples"]["changed"][0]["after"]["qty"] == 2 * qty
        assert [found["rejects"][kind]["count"] for kind in ("returning", "refused")] == [7 - qty, 0]
        done = command("run", "--diff")
        assert "left out window" not in done.output + done.stderr
        command("run")
        assert diff("run")[0] == 0


@pytest.mark.parametrize("kind", by_day(1, ["delta", "sqlite", "iceberg"]))
def test_totals_of_corrected_files_are_compared_with_those_of_the_run(kind: str) -> None:
    """Also a total that goes, in an app that writes the rows as well; a comparison changes nothing."""
    text = OF_TOTALS.replace("TOTALS", OUTPUTS.get(kind, "table: delta:out/totals").replace("\n", "\n  "))
    Path("app.yaml").write_text(text)
    Path("in/1.csv").write_text("id,qty,who\n1,5,a\n2,6,b\n9,1,z\n")
    command("run")
    assert diff("run")[0] == 0
    Path("new").write_text("id,qty,who\n1,8,a\n2,6,b\n3,4,c\n")
    Path("new").rename("in/1.csv")
    before = content()
    code, found = diff("run")
    tables = {each["operator"]: each for each in found["tables"]}
    totals = tables["totals"]
    assert (code, totals["rows"], totals["identity"], content() == before) == (3, 3, "by who", True)
    assert {kind: changed_of(totals, kind) for kind in ("added", "removed", "changed")} == {
        "added": [(None, {"who": "c", "total": 4})],
        "removed": [({"who": "z", "total": 1}, None)],
        "changed": [({"who": "a", "total": 10}, {"who": "a", "total": 13})],
    }
    rows = tables["rows"]
    assert [rows[kind] for kind in ("rows", "added", "removed", "changed")] == [5, 1, 1, 1]
    command("run")
    assert (diff("run")[0], diff("replay")[0]) == (0, 0)


OF_TOTALS = """\
name: totals
attributes: {checkpoint: journal}
steps:
  - files: in
    on_change: {replaced: supersede}
  - read: {type: csv, columns: {id: int64, qty: int64, who: string}}
operators:
  sums: {class: Aggregate, properties: {by: who, columns: {total: sum(qty)}, over: all}}
  totals:
    class: TableWriter
    properties:
      TOTALS
      upsert_by: who
  rows: {class: TableWriter, properties: {table: delta:out/orders}}
streams:
  records: {from: read.messages, to: [sums.input, rows.input]}
  sums: {from: sums.output, to: totals.input}
"""


def changed_of(table: dict[str, Any], kind: str) -> list[tuple[Any, Any]]:
    """The sampled changes of one kind."""
    return [(each["before"], each["after"]) for each in table["samples"][kind]]


OUTPUTS = {
    "parquet": "table: parquet:out/orders",
    "files": "write: out/lines",
    "csv": "write: out/lines.csv",
    "sqlite": "table: sqlite:out/shop.db#orders",
    "iceberg": "table: iceberg:shop.x\n    catalog: {type: sql, uri: 'sqlite:///cat.db', warehouse: out/iceberg}",
}


@pytest.mark.parametrize("output", by_day(1, OUTPUTS))
def test_every_kind_of_output_is_compared(output: str) -> None:
    """Files of lines and of CSV are compared by line and by row; a new file is what a run would add."""
    written({"table: delta:out/orders": OUTPUTS[output]})
    command("run")
    assert diff("replay")[0] == 0
    written({"table: delta:out/orders": OUTPUTS[output], **CHANGED})
    table = diff("replay")[1]["tables"][0]
    assert table["removed"] + table["changed"] == 4 and table["added"] + table["changed"] == 2
    Path("in/3.csv").write_text("id,qty,who\n9,9,z\n")
    assert diff("run")[1]["tables"][0]["added"] == 1


def test_a_run_that_is_not_finished_is_not_compared() -> None:
    """`dagflow run` finishes it, and then it is."""
    written({"streams:\n  rejects: {from: read.errors, to: refused.input}\n": "", REFUSED: ""})
    assert command("run").exit_code == 1
    assert "an earlier run or replay is not finished" in diff("replay")[1]["error"]
    written({})
    assert command("run").exit_code == 0
    assert diff("replay")[0] == 0


REFUSED = "operators:\n  refused: {class: RecordWriter, properties: {path: out/refused}}\n"


def test_an_app_that_follows_is_compared_when_it_is_to_end() -> None:
    """A replay of its windows can be compared as it is."""
    written(
        {
            "files: in": "files: in\n    follow: true",
            "  - where: qty > 0": "  - aggregate: {qty: sum(qty)}\n    by: who",
        }
    )
    assert "let it end: --set SPLITTER.follow=false" in diff("run")[1]["error"]
    assert diff("run", "--set", "files.follow=false")[1]["tables"][0]["added"] == 3


def test_a_column_that_a_table_does_not_take_is_refused_as_by_a_replay() -> None:
    """The new table of the comparison would take it."""
    command("run")
    written({"qty: int64": "qty: string", "qty > 0": "qty is not null", "{qty: qty * 2}": "{q: qty}"})
    assert "'qty' is int64 there, and string in the records" in diff("replay")[1]["error"]


def test_a_query_can_be_tried_out() -> None:
    """`run --limit` relocates the app as well; it ended with a KeyError for an operator that is planned as several."""
    written({"where: qty > 0": "sql: select * from input where qty > 0"})
    assert command("run", "--limit", "3").exit_code == 0
