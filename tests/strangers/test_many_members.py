"""Objects of JSON that would make far too many columns."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from operators.reader.columns.json_members import members_of_type
from operators.reader.columns.json_records import MOST_CELLS
from operators.reader.formats import RECORD_FORMATS
from operators.reader.formats.base import ByteAccounting, Inferring
from operators.sink.columns.table_columns import TableColumns
from operators.sink.columns.table_names import MOST_NAMES
from operators.testing import URL, MemorySource, block_of


def read(objects: list[Any], **options: Any) -> tuple[list[dict[str, Any]], list[str]]:
    """The rows of a file with these objects, and why others were refused."""
    made = RECORD_FORMATS.make({"type": "json_lines", **options})
    content = b"".join(json.dumps(each).encode() + b"\n" for each in objects)
    source, block = MemorySource(content), block_of(content, 0, len(content))
    refused: list[bytes] = []
    accounting = ByteAccounting(URL, Counter(), refused.append)
    assert isinstance(made, Inferring)
    made.decide(made.decision(made.read(source, block, accounting)))
    rows: list[dict[str, Any]] = []
    for batch in made.read(source, block, accounting):
        parsed = accounting.parse(made, batch)
        rows += parsed.batch.to_arrow().to_pylist() if len(parsed.raw) else []
    return rows, [json.loads(each)["reason"] for each in refused]


@pytest.mark.parametrize("columns", ["infer", "as_found"])
@pytest.mark.parametrize("wide", [{}, {"a": {}}, {"a": [{}]}], ids=["beside each other", "in an object", "in an array"])
def test_an_object_with_too_many_members_is_refused(columns: str, wide: dict[str, Any]) -> None:
    """Before any column is made of it, wherever they are; the other objects are read."""
    members = {f"m{number}": 1 for number in range(20_000)}
    inside = wide.get("a", wide)
    (inside[0] if isinstance(inside, list) else inside).update(members)
    rows, [reason] = read([wide, {"n": 1}], columns=columns)
    assert rows == [{"n": 1}]
    assert reason in [f"it has {count} columns, more than max_columns, 16,384" for count in ("20,000", "20,001")]


def test_many_objects_of_an_array_have_few_members() -> None:
    """Members of the same name are one column."""
    rows, reasons = read([{"a": [{"b": 1}] * 20_000}], columns="as_found", max_columns=2)
    assert (len(rows[0]["a"]), reasons) == (20_000, [])
    assert read([{"a": 1, "b": 2, "c": 3}], columns="as_found", max_columns=2)[1] != []


@pytest.mark.parametrize("wide", [1, 3000], ids=["in one of many objects", "in all objects"])
def test_names_that_are_data_make_no_columns_of_nothing_but_nulls(wide: int) -> None:
    """A batch of objects with other names each has few rows; none is lost, wherever the bytes of a line are bad."""
    lines = [json.dumps({f"k{row}_{number}": 1 for number in range(3000 // wide)}) for row in range(wide)]
    content = "\n".join([*lines, "{", *["{}"] * (3000 - wide), ""]).encode()
    made = RECORD_FORMATS.make({"type": "json_lines", "columns": "as_found"})
    accounting = ByteAccounting(URL, Counter(), list[bytes]().append)
    shapes: list[tuple[int, int]] = []
    for batch in made.read(MemorySource(content), block_of(content, 0, len(content)), accounting):
        columns = made.parse(batch, accounting).columns
        shapes += [] if columns is None else [(columns.num_rows, columns.num_columns)]
    assert sum(rows for rows, _ in shapes) == 3000
    assert max(rows * columns for rows, columns in shapes) <= MOST_CELLS


def test_columns_are_inferred_of_so_many_members_at_most() -> None:
    """Objects with more are refused, as those with a new member are."""
    rows, [reason] = read([{"a": 1}, {"b": {"c": 1}}, {"d": 1}, {"a": 2}], columns="infer", max_columns=3)
    assert [row["a"] for row in rows] == [1, None, 2]
    assert "'d'" in reason


def test_a_table_gets_so_many_columns_at_most() -> None:
    """Members count as well; values under more names are rescued, and columns that are there grow."""
    known = pa.schema([pa.field(f"c{number}", pa.int32()) for number in range(MOST_NAMES - 10)])
    columns = TableColumns(
        "t", lambda kind: kind, known, on_new_column="add", takes_members=True, on_type_change="rescue"
    )
    found = pa.record_batch({f"n{number}": [{"x": 1, "y": 2}] for number in range(10)})
    fitted, rescued = columns.fit(found)
    assert (fitted.num_columns, len(rescued.values[0])) == (2, 8)
    assert sum(members_of_type(field.type) for field in columns.known) <= MOST_NAMES
