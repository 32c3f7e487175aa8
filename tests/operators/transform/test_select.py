"""Select computes columns, keeps what a condition is true for, and refuses what cannot be computed."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pydantic import ValidationError

from dagflow.api.records import LINE_FEED, Origin, RecordBatch
from dagflow.engine.run import run
from dagflow.errors import OperatorError, RecordError, SpecError
from dagflow.plan.load import load_app
from dagflow.runtime.local import InlineRuntime
from dagflow.testing.operators import run_operator
from operators.transform.select import Select

ROWS = [
    {"name": "nut", "price": 2, "qty": 3},
    {"name": "bolt", "price": 5, "qty": 0},
    {"name": None, "price": 7, "qty": 1},
]


def selected(**properties: Any) -> list[Any]:
    return run_operator(Select(**properties), ROWS)["output"]


def test_columns_are_added_behind_or_take_the_place_of_one() -> None:
    """Each expression sees the columns as they came."""
    found = selected(columns={"price": "price * qty", "name": "upper(name)", "rest": "10 - price"})
    assert [list(row) for row in found] == [["name", "price", "qty", "rest"]] * 3
    assert found[0] == {"name": "NUT", "price": 6, "qty": 3, "rest": 8}


def test_where_keeps_what_it_is_true_for() -> None:
    """A null is not true, and a record that is left out needs no value."""
    assert [row["name"] for row in selected(where="name <> 'bolt'")] == ["nut"]
    assert [row["each"] for row in selected(where="qty <> 0", columns={"each": "price / qty"})] == [2 / 3, 7.0]


def test_columns_are_kept_dropped_and_renamed() -> None:
    """What is computed stays, whatever is kept."""
    assert selected(keep="qty", columns={"n": "length(name)"})[0] == {"qty": 3, "n": 3}
    assert selected(drop=["qty", "price"])[0] == {"name": "nut"}
    assert selected(rename={"qty": "count"})[0] == {"name": "nut", "price": 2, "count": 3}
    assert selected(rename={"price": "old"}, columns={"price": "0"})[0] == {
        "name": "nut",
        "old": 2,
        "qty": 3,
        "price": 0,
    }


def test_a_record_without_a_value_is_refused_with_its_place() -> None:
    """The others go on, in order, and know where they come from; the reject names the column and the computation."""
    block = type("Block", (), {"url": "in/a.csv"})()
    origin = Origin((block,), np.array([0, 10, 30]), 100)
    batch = RecordBatch(pa.RecordBatch.from_pylist(ROWS), delimiters=LINE_FEED, origin=origin)
    operator = Select(columns={"each": "price / qty"})
    kept: list[Any] = []
    refused: list[Any] = []
    operator.output.connect(kept.append)
    operator.errors.connect(refused.append)
    operator.compute(batch)
    assert kept[0].offsets().tolist() == [100, 130]
    (reject,) = map(json.loads, refused[0].to_pylist())
    assert json.loads(base64.b64decode(reject.pop("raw"))) == ROWS[1]
    assert reject == {
        "url": "in/a.csv",
        "offset": 110,
        "length": -1,
        "reason": "column 'each': 5.0 is divided by 0",
    }


def test_a_record_is_refused_once_whatever_fails_of_it() -> None:
    """The first column that has no value is named; what where refuses is not computed any more."""
    found = run_operator(Select(where="1 / qty > 0", columns={"a": "price / qty", "b": "price % qty"}), ROWS)
    assert [json.loads(each)["reason"] for each in found["errors"]] == ["where: 1.0 is divided by 0"]
    found = run_operator(Select(columns={"a": "price / qty", "b": "price % qty"}), ROWS)
    assert [json.loads(each)["reason"] for each in found["errors"]] == ["column 'a': 5.0 is divided by 0"]


def test_a_mistake_in_the_columns_of_records_names_the_nearest() -> None:
    """The columns of records are known when they come."""
    with pytest.raises(OperatorError, match="there is no column 'prize'; did you mean 'price'\\?, at column 5 of"):
        selected(columns={"x": "1 + prize"})
    with pytest.raises(
        OperatorError, match="'\\+' takes numbers, and this is text; cast it, or give the column a type"
    ):
        selected(columns={"x": "name + 1"})
    with pytest.raises(OperatorError, match="a condition is expected, and this is bigint"):
        selected(where="qty")
    with pytest.raises(OperatorError, match="drop: there is no column 'prise'; did you mean 'price'\\?"):
        selected(drop="prise")
    with pytest.raises(OperatorError, match="two columns would be called 'qty'"):
        selected(rename={"name": "qty"})


def test_raw_records_have_no_columns() -> None:
    """The error names the operator that makes some."""
    with pytest.raises(OperatorError, match="put a Parse before this operator"):
        run_operator(Select(where="a > 1"), [b"1"])


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({}, "give columns, where, keep, drop or rename"),
        ({"keep": "a", "drop": "b"}, "give keep or drop, not both"),
        ({"rename": {"a": "b"}, "drop": "a"}, "rename: 'a' is dropped as well"),
        ({"where": [1]}, "expected an expression"),
    ],
)
def test_properties_that_contradict_themselves_are_refused(properties: dict[str, Any], message: str) -> None:
    """An operator that does nothing is a mistake, too."""
    with pytest.raises((ValueError, ValidationError), match=message):
        Select(**properties)


APP = """\
name: select
operators:
  splitter: {{class: FileSplitterInput, properties: {{files: in}}}}
  reader: {{class: BlockReader, properties: {{format: {{type: csv, columns: {{qty: int32}}}}}}}}
  select:
    class: Select
    properties:
      where: {where}
      columns:
        more: {more}
    partition: parallel
  writer: {{class: RecordWriter, properties: {{path: out, format: csv}}, partition: parallel}}
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  rows: {{from: reader.messages, to: select.input}}
  kept: {{from: select.output, to: writer.input}}
"""


def test_without_a_stream_for_rejects_the_run_ends_at_the_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error has file and offset, nothing is published; with another expression the run goes on."""
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()
    Path("in/a.csv").write_text("qty\n1\n3000\n")
    Path("app.yaml").write_text(APP.format(where="qty > 0", more="qty * 1000000"))
    with pytest.raises(RecordError, match=r"a\.csv offset 6: column 'more': 3000 \* 1000000 does not fit int"):
        run(load_app("app.yaml"), runtime=InlineRuntime)
    assert not Path("out").exists()
    Path("app.yaml").write_text(APP.format(where="qty > 0", more="qty * cast(1000000 as bigint)"))
    run(load_app("app.yaml"), runtime=InlineRuntime)
    (output,) = Path("out").iterdir()
    assert output.read_text() == "qty,more\n1,1000000\n3000,3000000000\n"


def test_records_are_taken_aside_when_the_port_is_connected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the error says: the window runs again, and each record is in the one place or in the other."""
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()
    Path("in/a.csv").write_text("qty\n1\n3000\n2\n")
    text = APP.format(where="qty > 0", more="qty * 1000000")
    Path("app.yaml").write_text(text)
    with pytest.raises(RecordError, match="add `rejects: DIRECTORY` to the app, and run again"):
        run(load_app("app.yaml"), runtime=InlineRuntime)
    writer = "  rejects: {class: RecordWriter, properties: {path: refused}, partition: parallel}\nstreams:"
    stream = "  refused: {from: select.errors, to: rejects.input}\n"
    Path("app.yaml").write_text(text.replace("streams:", writer) + stream)
    run(load_app("app.yaml"), runtime=InlineRuntime)
    (kept,), (refused,) = Path("out").iterdir(), Path("refused").iterdir()
    assert kept.read_text() == "qty,more\n1,1000000\n2,2000000\n"
    assert [json.loads(line)["offset"] for line in refused.read_text().splitlines()] == [6]


@pytest.mark.parametrize(
    ("written", "place", "message"),
    [
        ("upr(name)", "10:15", "there is no function 'upr'; did you mean 'upper'?"),
        ('"1 + upr(name)"', "10:20", "there is no function 'upr'"),
        ("'concat(''a'', upr(name))'", "10:30", "there is no function 'upr'"),
        ('"a \\"b\\" "', "10:19", "'\"b\"' is not expected here"),
        ("|\n          1 +\n          upr(name)", "12:11", "there is no function 'upr'"),
        (">-\n          1 +\n          2 +\n            upr(name)", "13:13", "there is no function 'upr'"),
        ("1 +\n          upr(name)", "11:11", "there is no function 'upr'"),
        ("cast(a as itn)", "10:20", "there is no type 'itn' to cast to; did you mean 'int'?"),
        ('"\\x75pr(name)"', "10:15", "there is no function 'upr'"),
        ("a >", "10:17", "something is missing behind '>'"),
        (
            "sum(a)",
            "10:15",
            "sum() combines records, and here each one is computed for itself; use the columns of Aggregate",
        ),
        ("now()", "10:15", "'now' gives something else each time"),
    ],
)
def test_a_mistake_is_reported_at_its_place_in_the_app(tmp_path: Path, written: str, place: str, message: str) -> None:
    """Line and column are those of the character, however the text is written in YAML."""
    (tmp_path / "app.yaml").write_text(APP.format(where="true", more=written))
    with pytest.raises(SpecError, match=re.escape(message)) as caught:
        load_app(tmp_path / "app.yaml")
    (problem,) = caught.value.problems
    assert f"{problem.line}:{problem.column}" == place
    assert problem.message.startswith(f"operator 'select' (Select), property 'columns.more': {message}")
