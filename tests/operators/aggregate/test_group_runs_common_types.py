"""Tables put together: rows of several types have the one that all of them fit in."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from dagflow.engine.run import run
from dagflow.errors import DagflowError
from dagflow.plan.load import load_app
from dagflow.runtime.local import InlineRuntime
from operators.aggregate.group_runs import concatenated
from tests.engine.test_operator_state import until

MOST = (1 << 63) - 1


@pytest.mark.parametrize(
    ("whole", "value", "result"),
    [
        (pa.int64(), MOST, pa.decimal128(22, 2)),
        (pa.uint64(), 2 * MOST + 1, pa.decimal128(22, 2)),
        (pa.int8(), -128, pa.decimal128(9, 2)),
    ],
)
def test_whole_numbers_and_decimals_go_together(whole: pa.DataType, value: int, result: pa.DataType) -> None:
    """Whichever comes first, and however few digits the decimal has."""
    tables = [
        pa.table({"v": pa.array([value, None], whole)}),
        pa.table({"v": pa.array([Decimal("1.25")], pa.decimal128(9, 2)), "w": ["x"]}),
        pa.table({"w": ["y"]}),
    ]
    values = [value, None, Decimal("1.25"), None]
    assert concatenated(tables).column("v").to_pylist() == values
    assert concatenated(tables).column("w").to_pylist() == [None, None, "x", "y"]
    assert concatenated(tables).schema.field("v").type == result
    assert sorted(concatenated(tables[::-1]).column("v").to_pylist(), key=str) == sorted(values, key=str)


def test_numbers_of_more_digits_than_a_decimal_has_are_refused() -> None:
    """No digit is lost."""
    tables = [
        pa.table({"v": pa.array([MOST])}),
        pa.table({"v": pa.array([Decimal("0.1")], pa.decimal128(38, 30))}),
    ]
    with pytest.raises(ValueError, match=r"do not go together: .*; give the column one type"):
        concatenated(tables)
    with pytest.raises(ValueError, match=r"do not go together: .*; give the column one type"):
        concatenated([tables[0], pa.table({"v": ["text"]})])


APP = """\
name: sums
attributes: {checkpoint: journal}
operators:
  splitter: {class: FileSplitterInput, properties: {files: in, max_files_per_window: 1, batch_bytes: 0}}
  reader: {class: BlockReader, properties: {format: {type: csv, columns: {k: K, v: 'V'}}}}
  sums:
    class: Aggregate
    properties: {by: k, columns: {s: sum(v), m: min(v), a: avg(v)}, over: run}
    partition: parallel
  writer: {class: RecordWriter, properties: {path: out, format: csv}, partition: parallel}
streams:
  blocks: {from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}
  rows: {from: reader.messages, to: sums.input}
  results: {from: sums.output, to: writer.input}
"""


@pytest.mark.parametrize("types", [("int64", "decimal(9,2)"), ("decimal(9,2)", "int64")])
def test_a_result_holds_whole_numbers_and_decimals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, types: tuple[str, str]
) -> None:
    """A column that got another type in the middle of a run is summed whole."""
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()
    for number in range(4):
        Path("in", f"{number}.csv").write_text(f"k,v\n1,{number + 1}\n2,5\n")
    Path("app.yaml").write_text(APP.replace("K", "int64").replace("'V'", f"'{types[0]}'"))
    with pytest.raises(DagflowError, match="the lights went out"):
        run(load_app("app.yaml"), runtime=until(2))
    Path("app.yaml").write_text(APP.replace("K", "'decimal(9,2)'").replace("'V'", f"'{types[1]}'"))
    run(load_app("app.yaml"), runtime=InlineRuntime)
    (path,) = Path("out").glob("part-*")
    rows = [[float(value) for value in line.split(",")] for line in path.read_text().splitlines()[1:]]
    assert rows == [[1, 10, 1, 2.5], [2, 20, 5, 5]]
