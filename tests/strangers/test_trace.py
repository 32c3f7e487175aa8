"""`dagflow trace`: from a row to the bytes that it is from, and from bytes to the rows that they became."""

from __future__ import annotations

import gzip
import json
import re
import shlex
from pathlib import Path
from typing import Any

import deltalake
import pytest
from click.testing import CliRunner, Result

from dagflow.cli.main import command_line
from tests.nightly import by_day

APP = """\
name: orders
attributes: {checkpoint: journal}
steps:
  - files: in
  - read: {type: csv, columns: {id: int64, qty: int64, shop: string}}
  - where: qty > 0
  - select: {price: qty * 3}
  - OUTPUT
operators:
  refused: {class: RecordWriter, properties: {path: out/refused}}
streams:
  rejects: {from: read.errors, to: refused.input}
"""
TOTALS = """\
name: totals
attributes: {checkpoint: journal}
steps:
  - files: in
  - read: {type: csv, columns: {id: int64, qty: int64, shop: string}}
  - {class: Aggregate, by: shop, columns: {total: sum(qty)}, OVER}
  - table: delta:out/totals
    PROPERTIES
"""
FILES = {"1.csv": "1,5,a\n2,6,b\n3,x,c\n4,0,d\n", "2.csv": "5,5,a\n6,7,b\n7,7,c\n", "3.csv.gz": "8,1,b\n9,1,b\n"}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with three files; one record is refused, and one left out."""
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()
    for name, rows in FILES.items():
        put(name, rows)
    return tmp_path


def put(name: str, rows: str) -> None:
    """Put a file in place, as another one than an earlier one of its name."""
    content = f"id,qty,shop\n{rows}".encode()
    Path("new").write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    Path("new").rename(Path("in", name))


def run(text: str) -> None:
    """Write the app, and run it."""
    Path("app.yaml").write_text(text)
    done = dagflow("run app.yaml --local --workers 1 -q")
    assert done.exit_code == 0, done.output


def dagflow(words: str) -> Result:
    """Run a command in this process."""
    return CliRunner().invoke(command_line, shlex.split(words))


def traced(words: str) -> dict[str, Any]:
    """What a trace finds, as JSON."""
    done = dagflow(f"trace {words} --json")
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def places(row: dict[str, Any]) -> list[tuple[str, int | None, str | None, int]]:
    """The sources of a row: name of the file, offset, record and window."""
    return [(Path(each["file"]).name, each["offset"], each["record"], each["window"]) for each in row["sources"]]


def content() -> dict[str, bytes]:
    """All files below the directory, without what dagflow keeps for itself."""
    paths = (path for path in sorted(Path().rglob("*")) if path.is_file() and path.parts[0] != ".dagflow")
    return {str(path): path.read_bytes() for path in paths}


OUTPUTS = {
    "delta": ("table: delta:out/orders", "out/orders", "id = ID"),
    "csv": ("write: out/orders\n    format: csv", "out/orders", "id = 'ID'"),
    "json_lines": ("write: out/orders\n    format: json_lines", "out/orders", "id = ID"),
    "parquet": ("table: parquet:out/orders\n    partition_by: shop", "parquet:out/orders", "id = ID"),
    "files": ("write: out/orders\n    format: parquet", "out/orders", "id = ID"),
    "iceberg": (
        "table: iceberg:shop.orders\n    catalog: {type: sql, uri: 'sqlite:///c.db', warehouse: out/wh}",
        "iceberg:shop.orders",
        "id = ID",
    ),
    "partitioned": (
        "table: iceberg:shop.orders\n    partition_by: bucket(4, id)\n"
        "    catalog: {type: sql, uri: 'sqlite:///c.db', warehouse: out/wh}",
        "iceberg:shop.orders",
        "id = ID",
    ),
    "upsert": ("table: delta:out/orders\n    upsert_by: id", "delta:out/orders", "id = ID"),
    "sqlite": ("table: 'sqlite:c.db#orders'", "'sqlite:c.db#orders'", "id = ID"),
    "metadata": ("table: delta:out/orders\n    metadata_columns: [file, offset]", "out/orders", "id = ID"),
}


@pytest.mark.parametrize("kind", by_day(1, [*OUTPUTS]))
def test_a_row_leads_to_its_bytes_and_these_lead_to_the_row(folder: Path, kind: str) -> None:
    """Exactly, also in a compressed file, and nothing but a directory of its own is written."""
    step, table, where = OUTPUTS[kind]
    run(APP.replace("OUTPUT", step))
    before = content()
    found = traced(f'{table} --where "{where.replace("ID", "6")}"')
    (row,) = found["rows"]
    assert places(row) == [("2.csv", 18, "6,7,b", 1)] and row["is_of_record"]
    assert {name: str(value) for name, value in row["values"].items()} == {
        **{"id": "6", "qty": "7", "shop": "b", "price": "21"}
    }
    app = row["sources"][0]["app"]
    assert (Path(app["file"]).name, app["is_newest"]) == ("app.yaml", True) and "price: qty * 3" in app["text"]
    (row,) = traced(f'{table} --where "{where.replace("ID", "9")}"')["rows"]
    assert places(row) == [("3.csv.gz", 18, "9,1,b", 1)]
    for place, ids in (("in/2.csv:20", [6]), ("in/3.csv.gz:18", [9]), ("in/1.csv:26", [])):
        assert [int(row["values"]["id"]) for row in traced(f"{table} {place}")["rows"]] == ids
    assert content() == before and not [*folder.glob(".dagflow/dagflow-*")]


def test_bytes_without_a_row_say_why() -> None:
    """A refused record, one that an operator left out, and one of a version that was corrected."""
    run(APP.replace("OUTPUT", "table: delta:out/orders").replace("- files: in", SUPERSEDE))
    assert "'x' is no whole number" in traced("out/orders in/1.csv:24")["refused"]
    assert "an operator has left the record out" in dagflow("trace out/orders in/1.csv:32").output
    put("1.csv", "1,6,a\n")
    run(APP.replace("OUTPUT", "table: delta:out/orders").replace("- files: in", SUPERSEDE))
    found = traced("out/orders in/1.csv:12")
    assert [(each["state"], each["record"]) for each in found["sources"]] == [("corrected", None), ("read", "1,6,a")]
    assert [row["values"]["price"] for row in found["rows"]] == [18]
    assert places(traced('out/orders --where "id = 1"')["rows"][0]) == [("1.csv", 12, "1,6,a", 3)]
    Path("in/1.csv").unlink()
    run(APP.replace("OUTPUT", "table: delta:out/orders").replace("- files: in", SUPERSEDE))
    assert [each["state"] for each in traced("out/orders in/1.csv:12")["sources"]] == ["corrected", "corrected"]
    assert "its rows were taken out again" in dagflow("trace out/orders in/1.csv:12").output


def test_a_record_that_was_refused_at_first_leads_to_its_row_and_back() -> None:
    """A replay of rejects has read it again, and none of the records beside it."""
    app = APP.replace("OUTPUT", "table: delta:out/orders")
    run(app)
    mended = "qty: string, shop: string}}\n  - select: {qty: \"cast(replace(qty, 'x', '9') as int64)\"}"
    Path("app.yaml").write_text(app.replace("qty: int64, shop: string}}", mended))
    assert dagflow("rejects app.yaml replay --local --workers 1").exit_code == 0
    (row,) = traced('out/orders --where "id = 3"')["rows"]
    assert places(row) == [("1.csv", 24, "3,x,c", 3)] and row["is_of_record"]
    for offset, number in ((24, 3), (12, 1)):
        found = traced(f"out/orders in/1.csv:{offset}")
        assert [row["values"]["id"] for row in found["rows"]] == [number] and not found["refused"]


def test_a_row_in_a_file_that_another_program_has_made_is_traced() -> None:
    """The windows say what it is from, the newest first."""
    run(APP.replace("OUTPUT", "table: delta:out/orders"))
    put("4.csv", "10,1,a\n")
    run(APP.replace("OUTPUT", "table: delta:out/orders"))
    deltalake.DeltaTable("out/orders").optimize.compact()
    (row,) = traced('out/orders --where "id = 6"')["rows"]
    assert places(row) == [("2.csv", 18, "6,7,b", 1)]
    deltalake.DeltaTable("out/orders").vacuum(0, dry_run=False, enforce_retention_duration=False)
    put("5.csv", "11,1,a\n")
    run(APP.replace("OUTPUT", "table: delta:out/orders"))
    found = traced('out/orders --where "qty > 0" -n 2')
    assert (len(found["rows"]), found["count"]) == (2, 9)
    assert all(row["is_of_record"] for row in found["rows"])


SUPERSEDE = "- files: in\n    on_change: {replaced: supersede, truncated: supersede, deleted: retract}"


@pytest.mark.parametrize(
    ("over", "properties"),
    by_day(
        1,
        [
            ("over: window", "target_file_bytes: 128MiB"),
            ("over: run", "commit: {every_millis: 0}"),
            ("over: all", "upsert_by: shop"),
        ],
    ),
)
def test_the_row_of_an_aggregate_leads_to_the_files_with_its_group(over: str, properties: str) -> None:
    """No file without records of it is named, over windows and runs where the result is over these."""
    Path("in/1.csv").unlink()
    run(TOTALS.replace("OVER", over).replace("PROPERTIES", properties))
    (row,) = traced("out/totals --where \"shop = 'b'\"")["rows"]
    assert not row["is_of_record"] and [name for name, *_ in places(row)] == ["2.csv", "3.csv.gz"]
    (row,) = traced("out/totals --where \"shop = 'c'\"")["rows"]
    assert [name for name, *_ in places(row)] == ["2.csv"]
    put("4.csv", "10,100,c\n")
    run(TOTALS.replace("OVER", over).replace("PROPERTIES", properties))
    (row,) = traced("out/totals --where \"shop = 'c' and total >= 100\"")["rows"]
    assert [name for name, *_ in places(row)] == (["2.csv", "4.csv"] if "all" in over else ["4.csv"])
    rows = traced("out/totals --where \"shop = 'c'\"")["rows"]
    own = {tuple(name for name, *_ in places(row)) for row in rows}
    assert own == ({("2.csv", "4.csv")} if "all" in over else {("2.csv",), ("4.csv",)})
    assert "a result of several records" in dagflow("trace out/totals in/2.csv:20").output


def test_the_row_of_corrected_totals_leads_to_the_files_of_its_group() -> None:
    """As of totals that are not, and by the versions that are there now."""
    totals = (
        TOTALS.replace("OVER", "over: all").replace("PROPERTIES", "upsert_by: shop").replace("- files: in", SUPERSEDE)
    )
    Path("in/1.csv").unlink()
    run(totals)
    put("2.csv", "5,5,a\n7,8,c\n")
    run(totals)
    for shop, files in {"a": ["2.csv"], "b": ["3.csv.gz"], "c": ["2.csv"]}.items():
        (row,) = traced(f"out/totals --where \"shop = '{shop}'\"")["rows"]
        assert [name for name, *_ in places(row)] == files


def test_the_app_of_a_row_is_that_which_planned_its_window() -> None:
    """Its text is kept, and makes the row again, although the app has changed since."""
    run(APP.replace("OUTPUT", "table: delta:out/orders"))
    put("4.csv", "10,1,a\n")
    run(APP.replace("OUTPUT", "table: delta:out/orders").replace("qty * 3", "qty * 4").replace("qty > 0", "qty < 5"))
    (old,) = traced('out/orders --where "id = 6"')["rows"]
    (new,) = traced('out/orders --where "id = 10"')["rows"]
    assert (old["values"]["price"], new["values"]["price"]) == (21, 4)
    assert places(old) == [("2.csv", 18, "6,7,b", 1)] and places(new) == [("4.csv", 12, "10,1,a", 3)]
    assert [row["sources"][0]["app"]["is_newest"] for row in (old, new)] == [False, True]
    assert "which has changed since" in dagflow('trace out/orders --where "id = 6"').output


def test_a_table_whose_writer_has_another_name_since_is_traced() -> None:
    """By the app as it is now, both ways."""
    app = APP.replace("OUTPUT", "table: delta:out/orders")
    run(app)
    Path("app.yaml").write_text(app.replace("out/orders", "out/orders\n    name: orders"))
    assert places(traced('out/orders --where "id = 6"')["rows"][0]) == [("2.csv", 18, "6,7,b", 1)]


def test_what_cannot_be_traced_is_said_with_a_remedy() -> None:
    """An unknown column, table, file and byte; a condition that is none; and the remedies work."""
    run(APP.replace("OUTPUT", "table: delta:out/orders"))
    for words, said in {
        '--where "idd = 1"': "there is no column 'idd'; did you mean 'id'?",
        '--where "id ="': "something is missing behind '='",
        '--where "id = 99"': "has no row for which this is true: id = 99",
        "in/5.csv:3": "no window has read",
        "in/2.csv:999": "no record of .* has byte 999",
        "in/2.csv": "is no FILE:OFFSET, such as in/a.csv:4096",
        "": "give either --where",
    }.items():
        done = dagflow(f"trace out/orders {words}")
        assert done.exit_code in (1, 2) and re.search(said, str(done.exception) + done.output)
    done = dagflow('trace app.yaml --where "id = 1"')
    (named,) = re.findall(r"name one of them: table (\S+),", done.output)
    assert dagflow(f'trace {named} --where "id = 1"').exit_code == 0
    assert "in/2.csv" in dagflow("status app.yaml --files '*'").output
    Path("deep/er").mkdir(parents=True)
    Path("app.yaml").rename("deep/er/app.yaml")
    done = dagflow('trace out/orders --where "id = 1"')
    assert "name the app with --app" in done.output
    assert dagflow('trace out/orders --where "id = 1" --app deep/er/app.yaml').exit_code == 0
    assert (
        "does not write other; it writes table delta:"
        in dagflow("trace other in/1.csv:3 --app deep/er/app.yaml").output
    )
