"""Check passes on what is expected, and refuses, counts or ends the run for the rest."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from dagflow.engine.run import run
from dagflow.errors import DagflowError, OperatorError, RecordError
from dagflow.plan.load import load_app
from dagflow.runtime.local import InlineRuntime
from dagflow.testing.operators import OperatorHarness, run_operator
from operators.transform.check import Check

ROWS = [{"qty": 1, "price": 2}, {"qty": 0, "price": 3}, {"qty": None, "price": 4}, {"qty": 5, "price": 0}]


def test_records_that_fail_are_refused_with_the_expectation() -> None:
    """A null is not true, and what cannot be computed says why; each record is refused once."""
    found = run_operator(Check(expect=["qty > 0", "10 div price > 0"]), ROWS)
    assert found["output"] == [ROWS[0]]
    assert [json.loads(each)["reason"] for each in found["errors"]] == [
        "expected qty > 0",
        "expected qty > 0",
        "expected 10 div price > 0: 10 is divided by 0",
    ]


def test_records_that_fail_may_be_counted_and_passed_on() -> None:
    """By expectation, and each record once."""
    harness = OperatorHarness(Check(expect=["qty > 0", "price > 3"], on_fail="warn"))
    harness.window({"input": ROWS})
    assert harness.emitted["output"] == ROWS
    assert dict(harness.counters) == {"failed qty > 0": 2, "failed price > 3": 3, "failed": 4}


def test_one_expectation_needs_no_list() -> None:
    """As the other properties that take one or many."""
    assert run_operator(Check(expect="qty = 5"), ROWS)["output"] == [ROWS[3]]


@pytest.mark.parametrize(
    ("properties", "totals", "message"),
    [
        (
            {"max_failed": 2},
            {"input": 10, "output": 7, "rejected": 3, "failed": 3},
            "3 of 10 records are not as expected",
        ),
        ({"max_failed": "20%"}, {"input": 10, "output": 7, "rejected": 3, "failed": 3}, "and max_failed is 20%"),
        ({"max_failed": "20%", "on_fail": "warn"}, {"input": 10, "output": 10, "failed": 3}, "3 of 10 records"),
        ({"max_rejects": 2}, {"input": 10, "output": 7, "rejected": 3, "failed": 3}, "3 of 10 records were refused"),
    ],
)
def test_too_many_that_fail_end_the_run(properties: dict[str, Any], totals: dict[str, int], message: str) -> None:
    """A number, or a share of all records."""
    with pytest.raises(DagflowError, match=message):
        Check(expect="a > 0", **properties).check_limits(totals)
    Check(expect="a > 0", **properties).check_limits({"input": 99, "output": 98, "rejected": 1, "failed": 1})


APP = """\
name: check
operators:
  splitter: {{class: FileSplitterInput, properties: {{files: in}}}}
  reader: {{class: BlockReader, properties: {{format: {{type: csv, columns: {{qty: int32}}}}}}}}
  check: {{class: Check, properties: {{expect: [qty > 0], {properties}}}, partition: parallel}}
  writer: {{class: RecordWriter, properties: {{path: out, format: csv}}, partition: parallel}}
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  rows: {{from: reader.messages, to: check.input}}
  kept: {{from: check.output, to: writer.input}}
"""


@pytest.mark.parametrize("limit", ["50%", "null"])
def test_a_run_ends_at_the_first_record_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    """With file and offset; what the error advises is tried."""
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()
    Path("in/a.csv").write_text("qty\n1\n-3\n")
    Path("app.yaml").write_text(APP.format(properties="on_fail: fail"))
    with pytest.raises(RecordError, match=r"a\.csv offset 6: expected qty > 0") as caught:
        run(load_app("app.yaml"), runtime=InlineRuntime)
    assert caught.value.hint == "fix the record, or set on_fail to reject or warn"
    Path("app.yaml").write_text(APP.format(properties="on_fail: reject"))
    with pytest.raises(RecordError, match="add `rejects: DIRECTORY` to the app"):
        run(load_app("app.yaml"), runtime=InlineRuntime)
    Path("app.yaml").write_text(APP.format(properties="on_fail: warn, max_failed: 20%"))
    with pytest.raises(DagflowError, match="1 of 2 records are not as expected, and max_failed is 20%"):
        run(load_app("app.yaml"), runtime=InlineRuntime)
    Path("app.yaml").write_text(APP.format(properties=f"on_fail: warn, max_failed: {limit}"))
    run(load_app("app.yaml"), runtime=InlineRuntime)
    (output,) = Path("out").iterdir()
    assert output.read_text() == "qty\n1\n-3\n"


@pytest.mark.parametrize(
    ("expect", "message"),
    [
        ([], "at least 1 item"),
        (["unique(a, b)"], "unique(…) takes the name of one column, and is an expectation of its own"),
        (["Unique (a) and b > 0"], "unique(…) takes the name of one column, and is an expectation of its own"),
        (["unique(a"], "unique(…) takes the name of one column, and is an expectation of its own"),
        (["qty >"], "something is missing behind '>'"),
    ],
)
def test_what_is_no_expectation_is_refused(expect: list[str], message: str) -> None:
    """With what is expected instead."""
    with pytest.raises(ValidationError, match=re.escape(message)):
        Check(expect=expect)
    with pytest.raises(OperatorError, match="a condition is expected, and this is bigint"):
        run_operator(Check(expect="qty"), ROWS)
