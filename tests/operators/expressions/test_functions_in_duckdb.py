"""DuckDB computes what Arrow lacks, and what it cannot compute is refused as elsewhere."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa

from dagflow.plan.load import load_app
from dagflow.plan.placement import place
from dagflow.plan.render.explain import explain
from dagflow.testing.operators import run_operator
from operators.expressions.expression import Expression
from operators.expressions.vectors import Rows
from operators.transform.select import Select

APP = """
name: t
operators:
  splitter: {class: FileSplitterInput, properties: {files: in}}
  reader: {class: BlockReader, properties: {format: {type: csv, columns: [name]}}}
  select:
    class: Select
    properties:
      columns: {digest: "upper(md5(name))", ok: "upper(name)"}
    partition: parallel
  writer: {class: RecordWriter, properties: {path: out}, partition: parallel}
streams:
  blocks: {from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}
  lines: {from: reader.messages, to: select.input}
  out: {from: select.output, to: writer.input}
"""


def computed(text: str, **columns: Any) -> list[Any]:
    """The values of an expression."""
    rows = Rows(pa.RecordBatch.from_pydict(columns))
    values: list[Any] = rows.spread(Expression.of(text).bind(rows.columns.schema).compute(rows).values).to_pylist()
    return values


def test_records_keep_their_order_in_large_batches() -> None:
    """Each value is that of its record."""
    numbers = list(range(300_000))
    assert computed("hex(n)", n=numbers) == [f"{number:X}" for number in numbers]


def test_a_value_that_is_none_makes_its_record_a_reject() -> None:
    """The others go on, and the reason names the function and its arguments."""
    rows = [{"month": month, "day": day} for month, day in [(2, 29), (2, 30), (13, 1), (None, 1), (1, 1)]]
    done = run_operator(Select(columns={"at": "make_date(2024, month, day)"}), rows)
    assert [str(row["at"]) for row in done["output"]] == ["2024-02-29", "None", "2024-01-01"]
    reasons = [json.loads(reject)["reason"] for reject in done["errors"]]
    assert reasons == [
        "column 'at': make_date(2024, 2, 30) has no value",
        "column 'at': make_date(2024, 13, 1) has no value",
    ]


def test_written_arguments_and_nulls_are_taken() -> None:
    """As columns are."""
    assert computed("translate('abc', 'ab', t)", t=["x", None]) == ["xc", None]
    assert computed("md5(null)", t=[1, 2]) == [None, None]
    assert computed("add_months(date '2024-01-31', 1)", t=[1])[0].isoformat() == "2024-02-29"


def test_the_plan_says_what_duckdb_computes(tmp_path: Path) -> None:
    """Beside the operator."""
    (tmp_path / "app.yaml").write_text(APP)
    app = load_app(tmp_path / "app.yaml")
    shown = " ".join(explain(app, place(app)).split())
    assert "select (Select, partition: parallel); DuckDB computes md5(), Arrow the rest" in shown.replace("│ ", "")


def test_a_process_ends_without_a_word_about_what_it_holds() -> None:
    """Also one that has frozen its objects, as commands and tasks do."""
    program = """
import gc
import pyarrow as pa
from operators.expressions.expression import Expression
from operators.expressions.vectors import Rows
rows = Rows(pa.RecordBatch.from_pydict({"a": ["x"]}))
Expression.of("md5(a)").bind(rows.columns.schema).compute(rows)
gc.freeze()
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stderr == ""


def test_validate_names_the_package_where_it_is_missing(tmp_path: Path) -> None:
    """With the command that installs it, at the function's place in the app."""
    (tmp_path / "app.yaml").write_text(APP)
    program = """
import importlib.util, sys
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "duckdb" else found(name, *rest)
from tests.spec.apps import check
print(*check(sys.argv[1]), sep="\\n")
"""
    given = [sys.executable, "-c", program, str(tmp_path / "app.yaml")]
    printed = subprocess.run(given, check=True, capture_output=True, text=True).stdout
    assert "app.yaml:9:32: " in printed
    assert "md5() is computed by DuckDB, which is missing; install it with: pip install 'dagflow[sql]'" in printed
