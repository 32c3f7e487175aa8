"""Cases in YAML of what an app makes of some files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dagflow.errors import SpecError
from dagflow.testing.app_cases import CaseFailure, failures_of, read_cases
from tests.nightly import IS_NIGHTLY, by_day
from tests.spec.apps import check

ROOT = Path(__file__).parents[2]
APP = ROOT / "apps" / "block_reader.yaml"


def with_filter(step: str) -> str:
    """The app with another step in the place of its filter, of the same name."""
    before, _, rest = APP.read_text().partition("class: RecordFilter")
    return f"{before}{step}\n    name: filter\n  - write: {rest.partition('- write: ')[2]}"


def failures(folder: Path, tests: str, app: Path = APP) -> list[str]:
    """What fails of the tests in a file, as 'line: message'."""
    file = folder / "test_app.yaml"
    file.write_text(f"app: {app}\ntests:\n{tests}")
    found: list[CaseFailure] = [failure for case in read_cases(str(file)) for failure in failures_of(case)]
    return [f"{failure.place.line}: {failure.message}" for failure in found]


@pytest.mark.parametrize("app", by_day(1, ["block_reader", "csv_to_json"]))
def test_the_cases_of_the_page_hold(tmp_path: Path, app: str) -> None:
    """The files that docs/testing.md shows pass; also in the app itself."""
    page = (ROOT / "docs" / "testing.md").read_text("utf-8")
    (text,) = re.findall(rf"```yaml\n# test_{app}.yaml\n(.*?)```", page, re.DOTALL)
    cases = text.partition("tests:\n")[2]
    assert failures(tmp_path, cases, ROOT / "apps" / f"{app}.yaml") == []
    own = tmp_path / "own.yaml"
    own.write_text((ROOT / "apps" / f"{app}.yaml").read_text() + "tests:\n" + cases)
    assert check(own) == []
    assert len(read_cases(str(own))) == cases.count("    files:")


def test_each_difference_is_shown_at_its_line(tmp_path: Path) -> None:
    """Output as a diff, counts with both figures, and a port that counts nothing."""
    found = failures(
        tmp_path,
        "  all wrong:\n"
        '    files: {data/logs/a.log: "one\\n.two\\n"}\n'
        '    output: {out/records: "one\\nthree\\n"}\n'
        "    records:\n"
        "      filter.output: 2\n"
        "      filter.input: 1\n"
        "    rejected: 4\n",
    )
    assert found[0].startswith("5: test 'all wrong': out/records is different\n    --- expected\n")
    assert found[0].endswith("\n     one\n    -three")
    assert found[1] == "7: test 'all wrong': 1 records left filter.output, not 2"
    assert found[2].startswith("8: test 'all wrong': no records are counted at 'filter.input'; there are counts of: ")
    assert found[3] == "9: test 'all wrong': 0 records were rejected, not 4"


def test_a_place_or_a_port_that_is_not_there_is_reported(tmp_path: Path) -> None:
    """With what there is; --update leaves it as it is."""
    cases = """\
  a:
    files: {data/logs/a.log: "one\\n"}
    output: {out/recrds: "one\\n"}
    rows: {out/rows: [{a: 1}]}
    schema: {reader.mesages: {record: binary}}
  b: {files: {data/lgs/a.log: "one\\n"}, rejected: 0}
"""
    found = failures(tmp_path, cases)
    assert found[0] == "5: test 'a': nothing was published in out/recrds; there is output in: out/records"
    assert found[1] == "6: test 'a': nothing was published in out/rows; there is output in: out/records"
    assert found[2].startswith(
        "7: test 'a': operator 'reader' has no port 'mesages'; did you mean 'messages'?\n    records"
    )
    assert "data/logs: no such file or directory" in found[3] and "/dev/shm" not in found[3]
    assert all(
        failure.actual is None for case in read_cases(str(tmp_path / "test_app.yaml")) for failure in failures_of(case)
    )


def test_a_case_may_state_that_a_run_fails(tmp_path: Path) -> None:
    """By a part of its message; another failure, or none, fails the case."""
    bad = "    set: {splitter.block_size: 0}\n"
    cases = [
        f"  a:\n{bad}    error: block_size\n",
        f"  a:\n{bad}    error: other words\n",
        f"  a:\n{bad}    rejected: 0\n",
        "  a:\n    files: {data/logs/x: a}\n    error: none\n",
    ]
    held, other, failed, whole = [failures(tmp_path, case) for case in cases]
    assert held == []
    assert other[0].startswith("5: test 'a': expected 'other words' in: ")
    assert failed[0].startswith("3: test 'a': the run failed: ")
    assert whole == ["5: test 'a': the run did not fail"]


CASE_OF_THREE = """\
  a: {set: {writer.file_name: part}, files: {data/logs/a: "1\\n2\\n3\\n"}, records: {reader.messages: 3}"""


ORDERS = """\
name: orders
operators:
  splitter: {class: FileSplitterInput, properties: {files: [in]}}
  reader: {class: BlockReader, properties: {format: {type: csv, columns: {id: int64, price: "decimal(9, 2)"}}}}
  rows: {class: RecordWriter, properties: {path: rows, format: FORMAT}, partition: parallel}
  rejects: {class: RecordWriter, properties: {path: rejects}, partition: parallel}
streams:
  blocks: {from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}
  records: {from: reader.messages, to: rows.input}
  refused: {from: reader.errors, to: rejects.input}
"""

ORDERS_CASE = """\
tests:
  a:
    files:
      in/a.csv: "id,price\\n1,2.5\\nx,1\\n2,\\n"
    rows:
      rows: [{id: 2}, {id: 1, price: PRICE}]
    schema: {reader.messages: {id: int64, price: "decimal(9, 2)"}}
    rejected: ["'x'"]
    cut: every
    kill: every
"""


@pytest.mark.parametrize("form", by_day(1, ["parquet", "json_lines", "{type: csv, compression: gzip}"]))
def test_rows_columns_and_reasons_are_compared(tmp_path: Path, form: str) -> None:
    """In any order, with numbers as their columns have them; cut at every size, and killed at every change."""
    file = tmp_path / "orders.yaml"
    case = ORDERS_CASE
    if form[0] == "{":
        # Text is all that CSV knows, and an empty field is no value that is missing.
        case = case.replace("{id: 2}", '{id: "2", price: ""}').replace("{id: 1,", '{id: "1",')
    case = case.replace("PRICE", "2.5" if form == "parquet" else '"2.50"')
    file.write_text(ORDERS.replace("FORMAT", form) + case)
    (right,) = read_cases(str(file))
    assert list(map(str, failures_of(right))) == []
    for line, wrong in [(16, "{id: 3}"), (17, "{reader.messages: {id: int64}}"), (18, "[]")]:
        lines = file.read_text().split("\n")
        key = lines[line - 1].partition(":")[0]
        lines[line - 1] = f"{key}: [{wrong}]" if line == 16 else f"{key}: {wrong}"
        (tmp_path / "wrong.yaml").write_text("\n".join(lines))
        (case_read,) = read_cases(str(tmp_path / "wrong.yaml"))
        assert [failure.place.line for failure in failures_of(case_read)] == [line]


CATALOG = "catalog: {type: sql, uri: 'sqlite:///catalog.db', warehouse: warehouse}"
TABLES = {
    "delta:rows": ("rows", "", "kill: every, " if IS_NIGHTLY else ""),
    "iceberg:shop.orders": ("rows", f", {CATALOG}", ""),
    "parquet:out/orders": ("out/orders", "", "kill: every, " if IS_NIGHTLY else ""),
}


@pytest.mark.parametrize("table", TABLES)
def test_rows_of_a_table_are_compared(tmp_path: Path, table: str) -> None:
    """As the table itself shows them, also after crashes; by the operator that writes them, or the location."""
    place, catalog, kill = TABLES[table]
    properties = f"{{table: '{table}', metadata_columns: [file, window]{catalog}}}"
    writer = f"{{class: TableWriter, properties: {properties}, partition: parallel}}"
    app = ORDERS.replace("{class: RecordWriter, properties: {path: rows, format: FORMAT}, partition: parallel}", writer)
    case = 'tests:\n  a: {files: {in/a.csv: "id,price\\n1,2.5\\n2,3\\n"}, KILLrows: {PLACE: ROWS}}\n'
    case = case.replace("KILL", kill).replace("PLACE", place)
    file = tmp_path / "orders.yaml"
    file.write_text(app + case.replace("ROWS", "[]"))
    (wrong,) = read_cases(str(file))
    (failure,) = failures_of(wrong)
    assert failure.actual is not None
    assert failure.actual.value == [{"id": 1, "price": "2.50"}, {"id": 2, "price": "3.00"}]
    rows = "[{id: 1, price: 2.5, _dagflow_file: in/a.csv}, {id: 2, price: 3, _dagflow_file: in/a.csv}]"
    file.write_text(app + case.replace("ROWS", rows))
    (right,) = read_cases(str(file))
    assert list(map(str, failures_of(right))) == []


def test_files_are_copied_and_generated(tmp_path: Path) -> None:
    """From a file beside the tests, whatever its bytes; or by repetition."""
    (tmp_path / "some.log").write_bytes(b"one\n\xff\n")
    cases = """\
  a:
    files:
      data/logs/a.log: {from: some.log}
      data/logs/b.log: {first: "# n\\n", repeat: "n {n}\\n", times: 1000}
    records: {reader.messages: 1003}
  b: {files: {data/logs/a.log: {from: other.log}}, rejected: 0}
  c: {files: {data/logs/a.log: {from: "other\\0log"}}, rejected: 0}
"""
    missing, impossible = failures(tmp_path, cases)
    assert missing == f"8: test 'b': {tmp_path}/other.log: No such file or directory"
    assert impossible == "9: test 'c': embedded null byte"


def test_a_cut_that_changes_records_is_reported(tmp_path: Path) -> None:
    """A regular expression that looks behind the end of a record, so that it depends on where a block begins."""
    (tmp_path / "my_ops.py").write_text(
        "from dagflow import InputPort, Operator, OutputPort\n\n\n"
        "class First(Operator):\n    input = InputPort()\n    output = OutputPort()\n\n"
        "    @input.batch\n    def take(self, batch):\n"
        "        for record in batch.to_pylist()[:1]:\n            self.output.emit(record)\n"
    )
    text = with_filter("class: my_ops.First")
    assert "my_ops" in text
    (tmp_path / "app.yaml").write_text(text)
    (tmp_path / "test_app.yaml").write_text(f"app: app.yaml\ntests:\n{CASE_OF_THREE}, cut: every}}\n")
    (case_read,) = read_cases(str(tmp_path / "test_app.yaml"))
    (failure,) = failures_of(case_read)
    assert "with blocks of 1 bytes other records are counted: filter.output (3, not 1)" in failure.message


def test_a_cut_may_change_how_many_parts_a_result_is_made_of(tmp_path: Path) -> None:
    """A group whose records lie in two blocks leaves the partitions in two parts."""
    text = with_filter("class: CountBy\n    by: record")
    assert "CountBy" in text
    (tmp_path / "app.yaml").write_text(text)
    rows = "{out/records: [{record: a, count: 2}, {record: b, count: 1}]}"
    files = '{data/logs/a.log: "a\\na\\nb\\n"}'
    case = f"{{files: {files}, set: {{writer.file_name: part}}, rows: {rows}, cut: every}}"
    (tmp_path / "test_app.yaml").write_text(f"app: app.yaml\ntests:\n  a: {case}\n")
    (case_read,) = read_cases(str(tmp_path / "test_app.yaml"))
    assert failures_of(case_read) == []


def test_a_death_that_changes_output_is_reported(tmp_path: Path) -> None:
    """An operator that remembers outside of its state which records it has seen."""
    (tmp_path / "seen_ops.py").write_text(
        "import pathlib\n\nfrom dagflow import InputPort, Operator, OutputPort\n\n\n"
        "class Once(Operator):\n    input = InputPort()\n    output = OutputPort()\n\n"
        "    @input.each\n    def take(self, record):\n"
        "        seen = pathlib.Path('seen') / record.decode()\n"
        "        if not seen.exists():\n            seen.parent.mkdir(exist_ok=True)\n            seen.touch()\n"
        "            self.output.emit(record)\n"
    )
    text = with_filter("class: seen_ops.Once")
    (tmp_path / "app.yaml").write_text(text)
    (tmp_path / "test_app.yaml").write_text(f"app: app.yaml\ntests:\n{CASE_OF_THREE}, kill: every}}\n")
    (case_read,) = read_cases(str(tmp_path / "test_app.yaml"))
    (failure,) = failures_of(case_read)
    assert re.search(r"after a crash before change \d+ of the disk, and another run, other files", failure.message)


def test_mistakes_in_a_file_are_reported_together(tmp_path: Path) -> None:
    """Unknown keys, wrong types, and tests that state nothing."""
    with pytest.raises(SpecError, match="has no 'outputs'; did you mean 'output'") as caught:
        failures(tmp_path, "  a: {outputs: x, rejected: no}\n  b: 3\n  c: {files: {a: 1}}\n")
    message = str(caught.value)
    assert "test_app.yaml:3:" in message and "'rejected': expected a whole number" in message
    assert "test 'b': expected a mapping" in message and "test 'c' states nothing" in message
    assert "'a' in 'files': expected text" in message
    with pytest.raises(SpecError, match="give from alone, or repeat and times") as caught:
        failures(tmp_path, "  a: {files: {a: {from: x, times: 2}}, cut: often, rows: {x: 3}, schema: {y: 2}}\n")
    message = str(caught.value)
    assert "'cut': expected every" in message and "'x' in 'rows': expected a list" in message
