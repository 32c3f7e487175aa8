"""Members that a table requires: types that keep them, and columns of such types."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from operators.sink.columns.nested_types import (
    exact_type,
    forbidden_nulls,
    joined_type,
    nullable_type,
    nulls_of,
    with_required,
)
from tests.nightly import by_day
from tests.operators.sink.tables.test_table_files_upserted_rows import KINDS, UpsertedTable
from tests.operators.sink.test_table_writer import columns

TEXT = pa.field("c", pa.string(), nullable=False)
STRUCT = pa.struct([pa.field("a", pa.int64(), nullable=False), pa.field("b", pa.struct([TEXT]), nullable=False)])
LIST = pa.list_(pa.field("item", pa.struct([TEXT]), nullable=False))
MAP = pa.map_(pa.string(), pa.field("value", pa.struct([TEXT]), nullable=False))
ALLOWED: list[tuple[pa.DataType, list[Any]]] = [
    (STRUCT, [{"a": 1, "b": {"c": "x"}}, None, {"a": 2, "b": {"c": ""}}]),
    (LIST, [[{"c": "x"}, {"c": "y"}], None, [], [{"c": "z"}]]),
    (MAP, [[("k", {"c": "x"})], None, [], [("l", {"c": "y"}), ("m", {"c": "z"})]]),
    (pa.struct([pa.field("l", LIST, nullable=False), pa.field("m", MAP)]), [None, {"l": [{"c": "x"}], "m": None}]),
    (pa.list_(LIST), [[[{"c": "x"}], None], None, [[]]]),
]
REFUSED: list[tuple[pa.DataType, Any, str]] = [
    (STRUCT, {"a": None, "b": {"c": "x"}}, "'n.a', and 1 "),
    (STRUCT, {"a": 1, "b": {"c": None}}, "'n.b.c', and 1 "),
    (STRUCT, {"a": 1}, "'n.b', and 1 "),
    (LIST, [None, {"c": "x"}, None], "'n.item', and 2 "),
    (LIST, [{"c": None}], "'n.item.c', and 1 "),
    (MAP, [("k", None)], "'n.value', and 1 "),
    (MAP, [("k", {"c": None})], "'n.value.c', and 1 "),
]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> UpsertedTable:
    """Each kind whose tables can require members."""
    return KINDS[request.param]


@pytest.mark.parametrize(("exact", "values"), ALLOWED)
def test_values_are_the_same_where_members_are_required(tmp_path: Path, exact: pa.DataType, values: list[Any]) -> None:
    """Values of slices as well, also where a list or struct is null, and in Parquet."""
    column = pa.array([*values, *values], nullable_type(exact))
    for start in range(len(values)):
        found = with_required(column.slice(start, len(values)), exact, "n")
        found.validate(full=True)
        assert forbidden_nulls(column.slice(start), pa.field("n", exact), "n") == {}
        assert found.type == exact and found.to_pylist() == [*values, *values][start : start + len(values)]
        pq.write_table(pa.table({"n": found}), tmp_path / "file")
        assert pq.read_table(tmp_path / "file")["n"].to_pylist() == found.to_pylist()
    assert nulls_of(2, exact).type == exact and nulls_of(2, exact).to_pylist() == [None, None]


@pytest.mark.parametrize(("exact", "value", "reason"), REFUSED)
def test_a_null_in_a_required_member_is_named(exact: pa.DataType, value: Any, reason: str) -> None:
    """With the way to it, and how many there are; what lies behind a null does not count."""
    column = pa.array([value], nullable_type(exact))
    with pytest.raises(ValueError, match=f"no null is allowed in {reason}"):
        with_required(column, exact, "n")
    assert forbidden_nulls(column, pa.field("n", exact), "n") == {0: reason.split("'")[1]}
    hidden = pa.StructArray.from_arrays([column], names=["h"], mask=pa.array([True]))
    assert with_required(hidden, pa.struct([pa.field("h", exact, nullable=False)]), "n").to_pylist() == [None]


@pytest.mark.parametrize("exact", [kind for kind, _ in ALLOWED])
def test_what_is_required_is_part_of_a_type(exact: pa.DataType) -> None:
    """The one of two types that requires less takes the values of both."""
    loose = nullable_type(exact)
    assert exact_type(exact, lambda leaf: leaf) == exact != loose

    def joined(kind: pa.DataType, other: pa.DataType) -> pa.DataType | None:
        return joined_type(kind, other, lambda one, another: None)

    assert joined(exact, loose) == joined(loose, exact) == loose and joined(exact, exact) == exact
    assert joined(exact, pa.int64()) is None and joined(pa.struct({"n": loose}), pa.list_(loose)) is None


@pytest.mark.parametrize("properties", by_day(1, [{}, {"upsert_by": "k"}, {"commit": {"every_millis": 0}}]))
def test_tables_that_require_members_take_records(
    tmp_path: Path, kind: UpsertedTable, properties: dict[str, Any]
) -> None:
    """Null structs as well, added and in the place of others; in the types of the table, which its readers expect."""
    schema = pa.schema([("k", pa.string()), ("n", STRUCT), ("m", pa.list_(STRUCT))])
    kind.make(tmp_path, pa.Table.from_pylist([{"k": "a"}, {"k": "b", "n": {"a": 1, "b": {"c": "x"}}, "m": []}], schema))
    given = pa.array([None, {"a": 2, "b": {"c": "y"}}], nullable_type(STRUCT))
    kind.write(tmp_path, columns(k=["c", "d"], n=given), columns(k=["e"]), **properties)
    found = kind.rows(tmp_path)
    assert found is not None
    values = dict(zip(found["k"].to_pylist(), found["n"].to_pylist(), strict=True))
    there, came = {"a": 1, "b": {"c": "x"}}, {"a": 2, "b": {"c": "y"}}
    assert values == {"a": None, "b": there, "c": None, "d": came, "e": None}


@pytest.mark.parametrize("properties", [{}, {"upsert_by": "k"}])
def test_records_that_lack_a_required_member_end_the_run(
    tmp_path: Path, kind: UpsertedTable, properties: dict[str, Any]
) -> None:
    """Nothing of their window is in the table."""
    kind.make(tmp_path, pa.Table.from_pylist([{"k": "a"}], pa.schema([("k", pa.string()), ("n", STRUCT)])))
    given = pa.array([{"a": 2, "b": {"c": None}}], nullable_type(STRUCT))
    with pytest.raises(Exception, match=r"column 'n\.b\.c': .* allows no null"):
        kind.write(tmp_path, columns(k=["c"], n=given), **properties)
    found = kind.rows(tmp_path)
    assert found is not None and found["k"].to_pylist() == ["a"]
