"""Columns that are proposed for files, with what speaks for them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from dagflow.engine.run import run
from dagflow.plan.load import load_app
from dagflow.runtime.local import InlineRuntime
from tests.cli.commands.inspected_app import invoke
from tests.nightly import by_day
from tests.testing.test_case_update import files_of_at_most

CSV = "id,n,d,x,f\n" + "".join(f"{n},{n},2026-01-0{n},{n},{n}.5\n" for n in range(1, 9)) + "9,many,,NA,7\n"
JSON = """\
{"id":1,"n":1,"l":[1],"s":{"a":1,"b":"x"},"t":"2026-01-01"}
{"id":2,"n":2.5,"m":1,"t":"2026-01-02"}
{"id":3,"m":2,"w":"text"}
{"id":4,"m":"many","w":"2026-01-01"}
"""
APP = """\
# Days.
name: days
attributes: {{checkpoint: journal}}
operators:
  splitter: {{class: FileSplitterInput, properties: {{files: in}}}}
  reader:
    class: BlockReader
    properties:
      # The files.
      {format}
  writer: {{class: RecordWriter, properties: {{path: out}}, partition: parallel}}
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  rows: {{from: reader.messages, to: writer.input}}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[Path]:
    """A working directory with files."""
    with contextlib.chdir(tmp_path):
        Path("in").mkdir()
        Path("in/a.csv").write_text(CSV)
        Path("lines.jsonl").write_text(JSON)
        yield tmp_path


def proposed(text: str) -> tuple[dict[str, str], dict[str, str]]:
    """The type and the comment of each column."""
    comments = {line.split(":")[0]: line.partition("# ")[2] for line in text.splitlines() if not line.startswith("#")}
    return yaml.safe_load(text), comments


@pytest.mark.parametrize(
    ("name", "text", "types"),
    [
        ("packages", "A: x\nN: 1\n\nA: y\nN: 2\n\n", {"A": "string", "N": "int64"}),
        (
            "a.xml",
            "<r><i id='1'><p>1.5</p><t>x</t><t>y</t></i><i id='2'><p>2</p></i></r>",
            {"@id": "int64", "p": "double", "t": "list<string>"},
        ),
        (
            "fixed.txt",
            "".join(f"{n:04d}name {n:>5}.5\n" for n in (1, 20, 300)),
            {
                "column_1": [0, 4, "string"],
                "column_2": [4, 8, "string"],
                "column_3": [8, 16, "double"],
            },
        ),
    ],
)
def test_columns_of_other_formats(name: str, text: str, types: dict[str, object]) -> None:
    """They are the same from the files, and from an app that reads them, in whichever form; a field has its place."""
    Path(name).write_text(text)
    code, out, _ = invoke("infer", name)
    assert (code, yaml.safe_load(out)) == (0, types)
    invoke("init", "app", "--from", name)
    with contextlib.chdir("app"):
        code, out, _ = invoke("infer", "app.yaml")
    assert (code, yaml.safe_load(out)) == (0, types)


def test_the_groups_of_a_regex_are_columns() -> None:
    """They are looked at as text."""
    Path("a.log").write_text("2026-01-01 10:00:00 a\n more\n2026-01-02 10:00:00 b\n")
    step = r"{type: regex, pattern: '\d{4}-', regex: '(?s)(?P<at>\S+ \S+) (?P<text>.*)'}"
    Path("app.yaml").write_text(
        f"name: a\nattributes: {{checkpoint: j}}\nsteps:\n  - files: a.log\n  - read: {step}\n  - write: out\n"
        "    format: parquet\n"
    )
    code, out, _ = invoke("infer", "app.yaml")
    assert (code, yaml.safe_load(out)) == (0, {"at": "timestamp[us]", "text": "string"})


def test_a_column_of_csv_has_a_type_that_all_of_its_values_have() -> None:
    """A comment has the share of each type and the place of the first exception; words for nothing are listed."""
    code, out, err = invoke("infer", "in")
    assert (code, err) == (0, "")
    types, comments = proposed(out)
    assert types == {"id": "int64", "n": "string", "d": "date32", "x": "int64", "f": "double"}
    place = CSV.index("9,many")
    assert comments["n"] == f"88.9 % int64, 11.1 % string; the first string is at in/a.csv:{place}"
    assert comments["d"] == "88.9 % date32, 11.1 % without a value"
    assert out.startswith("# Columns by dagflow infer: from all 9 records of 1 file\n")
    assert '# Words that stand for no value: give the format null_values: ["", NA]\n' in out


def test_the_evidence_of_a_column_of_csv_names_the_type_of_the_column() -> None:
    """Also where a value by itself seems to be of another one; whole numbers and words for nothing have shares."""
    Path("in/a.csv").write_text(
        "amt,big,day,part,word\n1.50,12345678901234567890.5,13/02/2024,1.5,1.50\n"
        "2.25,1,01/02/2024,2,2.25\n3.75,2.5,02/03/2024,2.25,3.75\n4.25,2.5,02/03/2024,3,NA\n"
    )
    types, comments = proposed(invoke("infer", "in")[1])
    assert types["amt"] == types["word"] == "decimal(18, 2)"
    assert comments == {
        "amt": "100 % decimal(18, 2)",
        "big": "75.0 % decimal(38, 1), 25.0 % int64",
        "day": "100 % date32",
        "part": "50.0 % double, 50.0 % int64",
        "word": "75.0 % decimal(18, 2), 25.0 % string",
    }


def test_a_member_of_json_has_the_type_that_most_of_its_values_have() -> None:
    """Numbers go together; a text is a date only where all are; arrays and objects have inner types."""
    types, comments = proposed(invoke("infer", "lines.jsonl")[1])
    assert types == {
        "id": "int64", "n": "double", "l": "list<int64>", "s": "struct<a: int64, b: string>", "t": "date32",
        "m": "int64", "w": "string",
    }  # fmt: skip
    assert comments["n"] == "25.0 % int64, 25.0 % double, 50.0 % without a value"
    place = JSON.index('{"id":4')
    assert comments["m"].endswith(f"; the first string is at lines.jsonl:{place}")


UNTYPED = ['{"x,y":1}', "{}", '[1,"x"]', "1e999", "1" * 39, "1" * 5000]


@pytest.mark.parametrize("value", UNTYPED, ids=lambda value: value[:9])
def test_a_member_without_a_type_is_left_out_with_the_reason(value: str) -> None:
    """A type that refuses all records is worse than none: with what is proposed, none is refused."""
    Path("in/a.csv").unlink()
    Path("in/a.jsonl").write_text("".join(f'{{"id":{number},"z":{value}}}\n' for number in range(3)))
    Path("app.yaml").write_text(APP.format(format="format: json_lines"))
    assert invoke("infer", "app.yaml", "--write")[0] == 0
    text = Path("app.columns.yaml").read_text()
    assert yaml.safe_load(text) == {"id": "int64"} and "# z is left out, it has no type: " in text
    run(load_app("app.yaml"), runtime=InlineRuntime)
    assert "".join(path.read_text() for path in Path("out").glob("*")).count("\n") == 3


def test_values_beside_those_of_the_type_are_shown_with_their_place() -> None:
    """One value of no type, or a member of an object, does not leave out the column."""
    rows = ['{"z":1.5,"s":{"a":1,"b":{}}}', '{"z":1,"s":{}}', '{"z":1e999}']
    Path("lines.jsonl").write_text("\n".join(rows))
    types, comments = proposed(invoke("infer", "lines.jsonl")[1])
    assert types == {"z": "double", "s": "struct<a: int64>"}
    assert comments["z"].endswith(
        f"; the first value that no type takes is at lines.jsonl:{len(rows[0] + rows[1]) + 2}"
    )
    assert comments["s"].endswith("; without b: objects without members")


def test_dates_in_json_have_the_pattern_of_all_of_them() -> None:
    """Dates that have no pattern in common are text."""
    rows = '{"d":"31.12.2024","t":"2024-01-01","m":"2024-01-01"}\n{"d":"01.02.2024","t":"20240102"}\n'
    Path("lines.jsonl").write_text(rows)
    types, _ = proposed(invoke("infer", "lines.jsonl")[1])
    assert types == {"d": {"type": "date32", "format": "%d.%m.%Y"}, "t": "string", "m": "date32"}


def test_columns_none_of_which_has_a_type_are_an_error() -> None:
    """A file of columns without one would be none."""
    Path("lines.jsonl").write_text('{"z":{}}\n')
    code, out, err = invoke("infer", "lines.jsonl")
    assert code == 1 and "no column has a type: z: objects without members" in err and not out


def test_a_sample_is_named_as_one() -> None:
    """Rows behind it are not looked at."""
    code, out, _ = invoke("infer", "in", "--rows", "8")
    assert code == 0 and out.startswith("# Columns by dagflow infer: from the first 8 records of 1 file\n")
    assert proposed(out)[0]["n"] == "int64"
    assert invoke("infer", "in", "--rows", "0")[1] == invoke("infer", "in")[1]


@pytest.mark.parametrize(
    ("format", "named"),
    [
        ("format: csv  # rows", "format: {type: csv, columns: app.columns.yaml}  # rows"),
        ("format: {type: csv, header: true}", "format: {type: csv, columns: app.columns.yaml, header: true}"),
        (
            "format:\n        type: csv  # rows\n        null_values: ['', NA]",
            "format:\n        type: csv  # rows\n        columns: app.columns.yaml\n        null_values: ['', NA]",
        ),
        ("format: {type: csv, columns: app.columns.yaml}", "format: {type: csv, columns: app.columns.yaml}"),
    ],
)
def test_an_app_names_the_file_of_columns_and_stays_as_it_was(format: str, named: str) -> None:
    """Also its comments; it is valid, and a second time changes nothing."""
    Path("app.yaml").write_text(APP.format(format=format))
    for _ in range(2):
        code, _, err = invoke("infer", "app.yaml", "--write")
        assert code == 0, err
        assert Path("app.yaml").read_text() == APP.format(format=named)
    assert proposed(Path("app.columns.yaml").read_text())[0]["d"] == "date32"
    assert invoke("validate", "app.yaml")[0] == 0
    if "NA" in named:
        run(load_app("app.yaml"), runtime=InlineRuntime)
        assert '"x":8,"f":8.5' in "".join(path.read_text() for path in Path("out").glob("*"))


def test_an_app_that_cannot_be_written_stays_as_it_was() -> None:
    """A disk on which there is room for the columns, and none for the app."""
    before = APP.format(format="format: csv") + "# A remark.\n" * 400
    Path("app.yaml").write_text(before)
    with files_of_at_most(4096):
        code, _, err = invoke("infer", "app.yaml", "--write")
    assert (code, Path("app.yaml").read_text()) == (1, before)
    assert "app.yaml: cannot write: File too large\n    raise the limit" in err
    assert invoke("infer", "app.yaml", "--write")[0] == 0


def test_a_format_of_a_writer_is_none_of_the_reader() -> None:
    """The reader may be of a class of the author's; where it has no columns, none are shown for the writer."""
    Path("app_ops.py").write_text(
        "print('imported')\nfrom operators.reader.block_reader import BlockReader\n\n\n"
        "class Rows(BlockReader):\n    'Rows.'\n"
    )
    for cls in ("BlockReader", "app_ops.Rows"):
        for form in ("csv", "json_lines"):
            text = APP.format(format="format: csv").replace("path: out", f"path: out, format: {form}")
            Path("app.yaml").write_text(text.replace("BlockReader", cls))
            code, out, err = invoke("infer", "app.yaml")
            assert code == 0, err
            assert proposed(out)[0]["d"] == "date32" and "imported" not in out
    text = text.replace("format: csv", "format: lines", 1)
    Path("app.yaml").write_text(text)
    code, _, err = invoke("infer", "app.yaml")
    assert (code, "app.yaml has 0 readers of the formats csv and json_lines" in err) == (1, True)
    Path("app.yaml").write_text(text.replace("class: RecordWriter", "class: RecordWritr"))
    code, _, err = invoke("infer", "app.yaml")
    assert (code, "RecordWriter" in err) == (2, True)


def test_a_module_is_no_reader() -> None:
    """Whatever it gives to one in it: that one has no place in the app where it could name columns."""
    Path("read.yaml").write_text(
        "inputs: {blocks_metadata_input: r.blocks_metadata_input}\noutputs: {messages: r.messages}\n"
        "properties: {format: r.format}\noperators: {r: {class: BlockReader}}\n"
    )
    text = APP.format(format="format: csv").replace("class: BlockReader", "module: read.yaml")
    Path("app.yaml").write_text(text)
    assert invoke("validate", "app.yaml")[0] == 0
    code, _, err = invoke("infer", "app.yaml")
    assert (code, "app.yaml has 0 readers of the formats csv and json_lines" in err) == (1, True)


def test_columns_that_the_app_declares_stay() -> None:
    """Following the advice, the app gets a file of them."""
    declared = APP.format(format="format: {type: csv, columns: {id: int64}}")
    Path("app.yaml").write_text(declared)
    code, _, err = invoke("infer", "app.yaml", "--write")
    assert code == 1 and "the app declares columns itself" in err and Path("app.yaml").read_text() == declared
    assert invoke("infer", "app.yaml")[0] == 0
    Path("app.yaml").write_text(declared.replace("{id: int64}", "app.columns.yaml"))
    assert invoke("infer", "app.yaml", "--write")[0] == invoke("validate", "app.yaml")[0] == 0


@pytest.mark.parametrize("mark", ["\n", "\udcff"], ids=ascii)
def test_a_record_that_is_refused_is_shown_in_one_comment(mark: str) -> None:
    """The name of its file may have a line end in it, or bytes that are no UTF-8."""
    Path(f"in/b{mark}c.csv").write_text("id,n,d,x,f\n1\n")
    code, out, err = invoke("infer", "in")
    assert code == 0, err
    assert "# 1 record refused, such as in/b?c.csv:11: " in out and proposed(out)[0]["n"] == "string"


def test_a_file_of_others_is_not_written_over() -> None:
    """One of ours is; moved away as the advice says, it is written."""
    assert invoke("infer", "in", "--write")[0] == invoke("infer", "in", "--write")[0] == 0
    Path("columns.yaml").write_text("id: int64\n")
    code, _, err = invoke("infer", "in", "--write")
    assert code == 1 and "columns.yaml is there already" in err and Path("columns.yaml").read_text() == "id: int64\n"
    Path("columns.yaml").rename("mine.yaml")
    assert invoke("infer", "in", "--write")[0] == 0


@pytest.mark.parametrize(
    ("before", "after"),
    by_day(
        2,
        [
            ("n: string", "n: int64 "),
            ("\nid:", "\n# The key.\nid:"),
            ("of 1 file;", "of 1 file, and mine;"),
            ("; checksum ", "; checksum 0"),
            ("d: date32", "d: string  # \udcff"),
        ],
    ),
)
def test_a_file_that_was_edited_is_not_written_over(before: str, after: str) -> None:
    """Nor one without a checksum; where it was moved away, as the advice says, one is written."""
    Path("app.yaml").write_text(APP.format(format="format: csv"))
    assert invoke("infer", "app.yaml", "--write")[0] == 0
    file = Path("app.columns.yaml")
    written = file.read_text()
    assert written.count(before) == 1
    file.write_text(written.replace(before, after), errors="surrogateescape")
    edited = file.read_bytes()
    code, _, err = invoke("infer", "app.yaml", "--write")
    assert code == 1 and "is there already" in err and "it was edited since" in err and file.read_bytes() == edited
    file.rename("mine.yaml")
    assert invoke("infer", "app.yaml", "--write")[0] == 0 and file.read_text() == written
    file.write_text(written.partition("; checksum ")[0] + "\n" + written.partition("\n")[2])
    code, _, err = invoke("infer", "app.yaml", "--write")
    assert code == 1 and "dagflow infer has not written it, or it was edited since" in " ".join(err.split())


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("a.log", "some line\nother line\n", "records of the format lines have no columns"),
        ("empty.csv", "", "there is no file with anything in it"),
        ("a.yaml", APP.format(format="format: lines"), "has 0 readers of the formats csv and json_lines"),
        ("b.yaml", "a: [", "not YAML"),
    ],
)
def test_what_has_no_columns_is_an_error(name: str, text: str, reason: str) -> None:
    """The error says why."""
    Path(name).write_text(text)
    code, out, err = invoke("infer", name)
    assert code != 0 and reason in err and not out
