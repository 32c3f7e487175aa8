"""An app that is written for files reads all of them."""

from __future__ import annotations

import contextlib
import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
import yaml
from pyarrow import parquet

from dagflow.api.transactions import targets_of
from dagflow.engine.run import run
from dagflow.plan.load import load_app
from dagflow.runtime.local import InlineRuntime
from dagflow.storage.context import StorageContext
from dagflow.testing.apps import run_app
from tests.cli.commands.inspected_app import invoke
from tests.nightly import by_day

ODD = '"order id",#no,"yes",größe,"a: b"\n1,x,y,"10",\n2,x,"{y}","",\n'


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[Path]:
    """A working directory."""
    with contextlib.chdir(tmp_path):
        yield tmp_path


def rows_of(app: Path) -> list[dict[str, object]]:
    """Run an app, and return what it has written; nothing may be refused."""
    with contextlib.chdir(app):
        run(load_app("app.yaml"), runtime=InlineRuntime)
        assert not [path for path in Path("rejects").glob("*") if path.is_file()]
        lines = [
            line for path in sorted(Path("out").glob("*")) if path.is_file() for line in path.read_text().splitlines()
        ]
    return [json.loads(line) for line in lines]


def test_without_files_an_app_for_a_sample_is_made(folder: Path) -> None:
    """It runs, and a preview of it is the next thing to do."""
    code, out, err = invoke("init", "orders")
    assert (code, err) == (0, "next: cd orders && dagflow preview app.yaml, and dagflow test\n")
    assert "    price: decimal(18, 2)" in out.splitlines()
    names = {path.name for path in (folder / "orders").iterdir()}
    assert names == {"app.yaml", "app.schema.json", "test_app.yaml", ".gitignore", "data"}
    assert (folder / "orders" / "app.yaml").read_text().startswith("# yaml-language-server: $schema=app.schema.json\n")
    schema = json.loads((folder / "orders" / "app.schema.json").read_text())
    assert "write.input" in schema["$defs"]["Targets"]["anyOf"][0]["enum"]
    assert "/out/" in (folder / "orders" / ".gitignore").read_text().splitlines()
    assert len(rows_of(folder / "orders")) == 3


TESTED: dict[str, tuple[str, str | bytes, str | None]] = {
    "orders.csv": ("--to=out", ODD, "rows"),
    "orders.csv.gz": ("--to=delta:out/table", gzip.compress(ODD.encode()), "rows"),
    "latin.csv": ("--to=parquet:../table", "a,b\nä,1\nö,2\n".encode("latin-1"), "rows"),
    "lines.log": ("--to=/no/such/place", "".join(f"line {n} ${{HOME}}: x\n" for n in range(9)), "output"),
    "raw.log": ("--to=delta:out", "some text\n" * 9, "rows"),
    "crlf.csv": ("--to=out", "a;b\r\n1;2\r\n3;4\r\n", "rows"),
    "_hidden.jsonl": ("--to=out", '{"a": 1}\n{"a": 2, "b": "x"}\n', "rows"),
    "long.log": ("--to=out", f"{'long ' * 1000}\n" * 4, None),
    "page.xml": ("--to=out", f"<all>{'<one>1</one>' * 9}</all>", "rows"),
    "orders.xml": ("--to=delta:out/table", "<x><o id='1'><a><b>2</b></a></o><o id='2'><c/><c/></o></x>", "rows"),
    "array.json": ("--to=out", '[\n{"a": 1},\n{"a": 2, "b": "x"}\n]', "rows"),
    "stacks.log": ("--to=out", "2026-01-01 10:00:00 a\n  at b\n2026-01-01 10:00:01 c\n" * 9, "output"),
}


@pytest.mark.parametrize("name", by_day(4, TESTED))
def test_a_test_that_passes_is_written(folder: Path, name: str) -> None:
    """From the first records, wherever the app publishes, and whatever bytes the file has."""
    to, content, stated = TESTED[name]
    (folder / "in").mkdir()
    (folder / "in" / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    assert invoke("init", "x", "--from", "in/*" if name[0] != "_" else f"in/{name}", to)[0] == 0
    (case,) = yaml.safe_load((folder / "x" / "test_app.yaml").read_text())["tests"].values()
    assert stated is None or case[stated]
    assert 1 <= case["records"]["read.messages"] <= 3 and case["rejected"] == 0
    with contextlib.chdir(folder / "x"):
        code, out, err = invoke("test")
    assert (code, out) == (0, "") and err.startswith("1 test passed, 0 failed")
    files = {path.name for path in (folder / "x").iterdir()}
    assert ("test_data" in files) == (name in ("latin.csv", "crlf.csv", "long.log"))


@pytest.mark.parametrize("to", by_day(1, ["out", "parquet:out/table", "delta:out/table"]))
def test_an_operator_of_ones_own_is_in_the_chain(folder: Path, to: str) -> None:
    """It passes on what it gets, with the types of its columns, and the test runs it."""
    (folder / "in.csv").write_text("day,price\n2026/01/02 10:00,1.50\n2026/01/03 11:30,20.25\n2026/01/03 12:00,0.75\n")
    code, _, err = invoke("init", "x", "--from", "in.csv", "--to", to, "--operator", "DropEmpty")
    assert (code, err.splitlines()[-1]) == (
        0,
        "next: cd x && dagflow preview app.yaml, edit my_ops.py, and dagflow test --update",
    )
    with contextlib.chdir(folder / "x"):
        assert invoke("test")[2].startswith("1 test passed, 0 failed")
        out = json.loads(invoke("preview", "app.yaml", "--json")[1])
        assert out["columns"] == {"day": "timestamp[us]", "price": "decimal(18, 2)"}


@pytest.mark.parametrize("name", by_day(1, ["a\nb.csv", "a\rb.csv", "a\udcffb.csv", "a\u2028b.csv"]), ids=ascii)
def test_a_file_may_have_any_name(folder: Path, name: str) -> None:
    """Its name stands in comments, and in the output on one line, as that of a file that is left out."""
    (folder / "in").mkdir()
    (folder / "in" / name).write_text("id,v\n1,2\n")
    (folder / "in" / f"z{name}.txt").write_text("one\n")
    for location in ("in", "in/a?b.csv"):
        code, out, err = invoke("init", f"{location[-3:]}x", "--from", location)
        assert code == 0, err
        assert f"    seen in the first 9 bytes of in/a{ascii(name[1])[1:-1]}b.csv\n" in out
        assert (f"left out by their names: in/za{ascii(name[1])[1:-1]}b.csv.txt" in out) == (location == "in")
    assert rows_of(folder / "csvx") == [{"id": 1, "v": 2}]
    with contextlib.chdir(folder / "csvx"):
        assert invoke("test")[2].startswith("1 test passed, 0 failed")


@pytest.mark.parametrize("command", [["init", "x", "--from"], ["infer"]], ids=lambda words: words[0])
def test_files_that_an_app_cannot_name_are_refused(folder: Path, command: list[str]) -> None:
    """YAML is text; they are found by the glob that the message names, and by the directory."""
    (folder / "in").mkdir()
    (folder / "in" / "a\udcffb.csv").write_text("id,v\n1,2\n")
    code, _, err = invoke(*command, "in/a\udcffb.csv")
    assert (code, "in/a\\udcffb.csv: the name is not UTF-8, and an app cannot hold it" in err) == (1, True)
    assert "as in 'a?b.csv', or name the directory" in err and not (folder / "x").exists()
    assert invoke(*command, "in/a?b.csv")[0] == 0


def test_an_operator_for_records_without_columns_takes_each(folder: Path) -> None:
    """Its records are bytes."""
    (folder / "in.log").write_text("some text\nand more of it\n\n")
    assert invoke("init", "x", "--from", "in.log", "--operator", "DropEmpty")[0] == 0
    with contextlib.chdir(folder / "x"):
        assert "record: bytes" in Path("my_ops.py").read_text()
        assert invoke("test")[2].startswith("1 test passed, 0 failed")


NO_NAMES = ["my op", "class", "None", "True", "False"]


@pytest.mark.parametrize("name", NO_NAMES)
def test_an_operator_needs_a_name_of_its_own(folder: Path, name: str) -> None:
    """Nothing is written otherwise, nor over a module that is there."""
    code, _, err = invoke("init", "x", "--operator", name)
    assert code == 1 and "a class has a name" in err
    assert not (folder / "x" / "app.yaml").exists()
    (folder / "my_ops.py").write_text("mine")
    code, _, err = invoke("init", ".", "--operator", "Mine")
    assert (code, (folder / "my_ops.py").read_text()) == (1, "mine")


def test_quotes_behind_backslashes_come_out_as_they_were_meant(folder: Path) -> None:
    """As MySQL exports them; a file that has none of them does not decide."""
    (folder / "a.csv").write_text("id,name\n1,x\n2,y\n")
    (folder / "b.csv").write_text('id,name\n3,"a \\"q\\" b"\n4,"x, \\"y\\""\n')
    assert invoke("init", "x", "--from", "?.csv")[0] == 0
    assert [row["name"] for row in rows_of(folder / "x")] == ["x", "y", 'a "q" b', 'x, "y"']


def test_the_line_that_gives_excel_the_delimiter_is_no_row(folder: Path) -> None:
    """Also behind a byte order mark; columns have their types."""
    (folder / "a.csv").write_text("\ufeffsep=;\r\nid;name\r\n1;x\r\n2;y\r\n")
    assert invoke("init", "x", "--from", "a.csv")[0] == 0
    assert rows_of(folder / "x") == [{"id": 1, "name": "x"}, {"id": 2, "name": "y"}]


@pytest.mark.parametrize("before", by_day(1, ["sep=;\n", "# by\n# me\n"]))
def test_files_with_other_lines_before_their_rows_are_reported(folder: Path, before: str) -> None:
    """What one of them has, and the others have not, would be skipped as a row of theirs."""
    (folder / "d1.csv").write_text(f"{before}1;x\n2;y\n")
    (folder / "d2.csv").write_text("5;x\n6;y\n7;z\n")
    lines = before.count("\n")
    code, _, err = invoke("init", "x", "--from", "d?.csv")
    assert code == 0
    assert f"warning: d2.csv has 0 lines before its rows, and skip_header is {lines}; give files" in err
    (folder / "d0.csv").write_text("8;v\n9;w\n")
    _, _, err = invoke("init", "y", "--from", "d?.csv")
    assert f"d1.csv has {'1 line' if lines == 1 else '2 lines'} before its rows, and skip_header is 0; give" in err


def test_files_with_their_columns_in_another_order_are_alike(folder: Path) -> None:
    """For a file with other columns, the message lists those that it has and those that it lacks."""
    for name, text in (("a", "n,m\n1,x\n2,y\n"), ("b", "m,n\nz,3\nw,4\n"), ("c", "n,o\n1,2\n3,4\n")):
        (folder / f"{name}.csv").write_text(text)
    code, _, err = invoke("init", "x", "--from", "?.csv")
    assert code == 0
    assert err.splitlines()[0] == (
        "warning: c.csv has other columns: it lacks m and has o as well; give files of one kind only, such as by a glob"
    )


def test_a_test_that_is_there_stays(folder: Path) -> None:
    """An existing test is not overwritten."""
    (folder / "test_app.yaml").write_text("mine")
    assert invoke("init", ".")[0] == 0
    assert (folder / "test_app.yaml").read_text() == "mine"


def test_an_app_is_written_once(folder: Path) -> None:
    """One that is there stays as it is."""
    (folder / "app.yaml").write_text("mine")
    code, _, err = invoke("init", ".")
    assert (code, err.startswith("app.yaml is there already, and stays as it is\n")) == (1, True)
    assert [path.name for path in folder.iterdir()] == ["app.yaml"]


def test_an_app_does_not_read_what_it_writes(folder: Path) -> None:
    """A directory with the app in it is refused, and files in it are not."""
    (folder / "a.csv").write_text("a,b\n1,2\n")
    code, _, err = invoke("init", "x", "--from", ".")
    assert (code, err.startswith("--from: x lies in "), (folder / "x").exists()) == (1, True, False)
    assert invoke("init", ".", "--from", "*.csv")[0] == 0
    assert rows_of(folder) == [{"a": 1, "b": 2}]


def test_an_app_reads_files_from_wherever_it_is_started(folder: Path) -> None:
    """Names of columns that YAML would take for something else are in quotes; a glob stays one."""
    (folder / "in").mkdir()
    (folder / "in" / "a.csv.gz").write_bytes(gzip.compress(ODD.encode()))
    (folder / "in" / "b.csv").write_text(ODD)
    assert invoke("init", "x", "--from", "in/*.csv*")[0] == 0
    app = yaml.safe_load((folder / "x" / "app.yaml").read_text())
    assert app["steps"][0]["files"] == [f"{folder}/in/*.csv*"]
    columns = {"order id": "int64", "#no": "string", "yes": "string", "größe": "int64", "a: b": "string"}
    assert app["steps"][1]["read"] == {"type": "csv", "columns": columns}
    rows = rows_of(folder / "x")
    assert rows[0] == {"order id": 1, "#no": "x", "yes": "y", "größe": 10, "a: b": ""}
    assert len(rows) == 4


def test_a_column_is_what_all_files_have(folder: Path) -> None:
    """A type that a later file, or a later row, contradicts becomes text, and the app says why."""
    (folder / "in").mkdir()
    (folder / "in" / "a.csv").write_text("n,m\n" + "1,1\n" * 50_000 + "1,late\n" * 1000)
    (folder / "in" / "b.csv").write_text("n,m\nx,2\n")
    code, out, _ = invoke("init", "x", "--from", "in")
    assert (code, out.splitlines()[-2:]) == (0, ["    n: string", "    m: string"])
    assert "# column 'n' (int64): 'x' is no whole number" in (folder / "x" / "app.yaml").read_text()


def test_objects_that_differ_stay_lines(folder: Path) -> None:
    """Inferred columns would refuse some of them."""
    (folder / "a.jsonl").write_text('{"a": 1}\n{"a": "x", "b": 1}\n')
    (folder / "b.jsonl").write_text('{"a": 1}\n{"a": 2}\n')
    for name, columns in (("a", None), ("b", "infer")):
        assert invoke("init", name, "--from", f"{name}.jsonl")[0] == 0
        format = yaml.safe_load((folder / name / "app.yaml").read_text())["steps"][1]["read"]
        assert (format.get("columns") if isinstance(format, dict) else None) == columns
    assert rows_of(folder / "b") == [{"a": 1}, {"a": 2}]


def test_records_with_columns_can_go_to_parquet(folder: Path) -> None:
    """As a table, which may be partitioned, or corrected, later; a target that is not known is refused."""
    (folder / "a.csv").write_text("n\tm\n1\t2024-02-29\n")
    assert invoke("init", "x", "--from", "a.csv", "--to", "parquet:out/table")[0] == 0
    with contextlib.chdir(folder / "x"):
        run(load_app("app.yaml"), runtime=InlineRuntime)
        (path,) = Path("out/table").glob("*.parquet")
        assert parquet.read_table(path).schema.names == ["n", "m"]
    assert invoke("init", "t", "--from", "a.csv", "--to", "delta:out/table")[0] == 0
    with contextlib.chdir(folder / "t"):
        run(load_app("app.yaml"), runtime=InlineRuntime)
        assert Path("out/table/_delta_log").is_dir()
    (folder / "a.txt").write_text("one\n")
    code, _, err = invoke("init", "y", "--from", "a.txt", "--to", "orc:out")
    assert (code, "table takes delta:PATH" in err, (folder / "y").exists()) == (1, True, False)


def test_a_document_that_is_cut_for_the_test_is_whole_json(folder: Path) -> None:
    """It has so many records of the one list, and no refused rest."""
    rows = [{"id": number, "t": 'a"}],b\\'} for number in range(50)]
    (folder / "w.json").write_text(json.dumps({"meta": {"x": [1]}, "items": rows, "end": 1}))
    assert invoke("init", "w", "--from", "w.json")[0] == 0
    cases = yaml.safe_load((folder / "w" / "test_app.yaml").read_text())["tests"]["the first records"]
    assert cases["rejected"] == 0 and json.loads(cases["files"]["in/w.json"])["items"] == rows[:3]


@pytest.mark.parametrize("to", ["sqlite:shop.db#t", pytest.param("duckdb:shop.db#t", marks=pytest.mark.nightly)])
def test_a_database_gets_the_types_that_text_in_json_shows(folder: Path, to: str) -> None:
    """A time is no text there, and the app says what becomes of members that the database cannot hold."""
    rows = [{"id": n, "at": "2026-11-20T08:15:47Z", "who": {"name": "x"}, "tags": ["a"], "t": "1"} for n in range(9)]
    (folder / "o.json").write_text(json.dumps(rows))
    assert invoke("init", "o", "--from", "o.json", "--to", to)[0] == 0
    with contextlib.chdir(folder / "o"):
        read, write = yaml.safe_load(Path("app.yaml").read_text())["steps"][1:]
        assert read["read"]["columns"] == {
            "id": "int64",
            "at": "timestamp[us, UTC]",
            "who": "struct<name: string>",
            "tags": "list<string>",
            "t": "string",
        }
        assert write.get("on_new_column") == ("rescue" if to.startswith("sqlite") else None)
        assert invoke("test")[2].startswith("1 test passed, 0 failed")
        assert run(load_app("app.yaml"), runtime=InlineRuntime).records["read.messages"] == 9


@pytest.mark.parametrize(
    ("to", "ignored"),
    [
        ("sqlite:shop.db#orders", "/shop.db*"),
        ("postgres:public.orders", "/.dagflow-postgres/"),
        pytest.param("duckdb:out/shop.db#orders", "/out/", marks=pytest.mark.nightly),
        pytest.param("iceberg:shop.orders", "/out/", marks=pytest.mark.nightly),
    ],
)
def test_records_can_go_to_any_table(folder: Path, to: str, ignored: str) -> None:
    """The test of the app passes at once, and reaches no server."""
    assert invoke("init", "x", "--to", to)[0] == 0
    with contextlib.chdir(folder / "x"):
        assert invoke("test")[2].startswith("1 test passed, 0 failed")
        assert Path(".gitignore").read_text().splitlines()[0] == ignored
        if not to.startswith("postgres"):
            assert run(load_app("app.yaml"), runtime=InlineRuntime).records["read.messages"] == 3
            tables = targets_of(load_app("app.yaml").instances, StorageContext.default())
            assert len(pa.table(tables["table"].rows())) == 3


@pytest.mark.parametrize(
    ("to", "message"),
    [
        ("", "--to: '' names no place"),
        ("parquet:", "--to: 'parquet:' names no place"),
        ("delta:", "--to: 'delta:' names no place"),
        ("sqlite:out/shop.db", "as in sqlite:out/shop.db#orders; got 'out/shop.db'"),
        ("duckdb:journal/shop.db#orders", "--to: the app has its checkpoint in journal/shop.db"),
        ("journal", "--to: the app has its checkpoint in journal"),
        ("delta:out/../journal/x", "--to: the app has its checkpoint in journal/x"),
        ("./rejects/", "--to: the app has its rejects in rejects"),
    ],
)
def test_a_target_that_no_run_could_use_is_refused(folder: Path, to: str, message: str) -> None:
    """An empty one would have been the root of the disk; nothing is written."""
    code, _, err = invoke("init", "x", "--to", to)
    assert (code, message in err, (folder / "x").exists()) == (1, True, False)


def test_what_comes_next_can_be_pasted_into_a_shell(folder: Path) -> None:
    """The name of a directory is in quotes where it has spaces."""
    assert "next: cd 'my app' && dagflow preview" in invoke("init", "my app")[2]


MIXED = {
    "a.csv": "n,m\n1,2\n",
    "b.CSV": "n,m\n3,4\n",
    "c.txt": "one\ntwo\nthree\n",
    "d/e.jsonl": '{"a": 1}\n',
    "f.pdf": "%PDF-1.7",
}


@pytest.mark.parametrize(
    ("named", "options", "records"),
    [
        ("csv", (), ['{"n":1,"m":2}', '{"n":3,"m":4}']),
        ("json_lines", ("--format", "json_lines"), ['{"a":1}']),
        ("lines", ("--format", "lines"), ["one", "two", "three"]),
    ],
)
def test_an_app_for_files_of_several_formats_reads_those_of_one(
    folder: Path, named: str, options: tuple[str, ...], records: list[str]
) -> None:
    """That which is asked for, or that of most files; the others are named, and left out by the ends of their names."""
    for name, text in MIXED.items():
        (folder / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "in" / name).write_text(text)
    code, out, err = invoke("init", "x", "--from", "in", *options)
    assert (code, out.splitlines()[0]) == (0, f"x/app.yaml: an app for the format {named}"), err
    assert "in/f.pdf (it is PDF, which no record format reads)" in out
    app = (folder / "x" / "app.yaml").read_text().replace(str(folder / "in"), "in")
    (folder / "x" / "app.yaml").write_text(app)
    outputs = run_app(folder / "x" / "app.yaml", {f"in/{name}": text for name, text in MIXED.items()})
    assert (sorted(outputs.text("out").split()), outputs.rejected) == (sorted(records), 0)


def test_files_of_several_kinds_are_distinguished(folder: Path) -> None:
    """Names that end alike are not told apart by a pattern; files that cannot be read, or are not there, are named."""
    (folder / "in").mkdir()
    for name, text in {"a.csv": "n,m\n1,2\n", "b.csv": "n,m\n3,4\n", "c.csv": "one\n"}.items():
        (folder / "in" / name).write_text(text)
    code, out, err = invoke("init", "x", "--from", "in")
    assert (code, out.splitlines()[0]) == (0, "x/app.yaml: an app for the format csv")
    assert "warning: in/c.csv seems to be something else (lines); give files of one kind only" in err
    code, _, err = invoke("init", "y", "--from", "in", "--format", "nope")
    assert (code, "--format: " in err, "there is no format 'nope'" in err) == (1, True, True)
    code, _, err = invoke("init", "y", "--from", "in", "--format", "regex")
    assert (code, "format 'regex' needs option 'pattern'\n    take --format lines, and write" in err) == (1, True)
    (folder / "in" / "a.csv").write_bytes(b"%PDF-1.7")
    for location, message in (("in/a.csv", "in/a.csv: it is PDF"), ("none", "none: no such file or directory")):
        code, _, err = invoke("init", "y", "--from", location)
        assert (code, message in err) == (1, True)
