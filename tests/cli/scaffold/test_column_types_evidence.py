"""The type of JSON values is one that the reader takes for all of them, or none."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagflow.api.records import RecordBatch
from dagflow.cli.scaffold.column_types import json_type
from operators.reader.columns.json_members import JsonMembers
from operators.reader.columns.types import ColumnType
from operators.reader.formats.base import ByteAccounting

NAMES = st.text("ab,:<>()[] \t", max_size=3)
NUMBERS = st.integers(-9, 9) | st.sampled_from([2**63, 10**38, 10**400, 0.5, float("inf")])
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text("1a", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)


@given(st.lists(VALUES, min_size=1, max_size=3) | st.lists(st.lists(VALUES, max_size=2), max_size=3))
def test_the_reader_takes_every_value_that_a_type_was_proposed_for(values: list[Any]) -> None:
    """A type refuses none of the values; members that it lacks are left out, with a reason."""
    found = json_type(values)
    assert found.name or found.untyped
    for value in values if found.name else ():
        record = json.dumps({"x": value}).replace("Infinity", "1e999").encode()
        members = JsonMembers({"x": ColumnType.of(found.name)}, ())
        assert len(members.parse(RecordBatch.from_records([record]), ByteAccounting()).raw)


@pytest.mark.parametrize(
    ("values", "name", "untyped"),
    [
        ([None, []], "list<string>", ()),
        ([{}], "", ("objects without members",)),
        ([{}, {"a (b)": 1}], "struct<a (b): int64>", ()),
        ([{"x,y": 1}], "", ("a name that no type can have, 'x,y'",)),
        (
            [{"a": 1, "b(": 1, "c": {}}],
            "struct<a: int64>",
            ("a name that no type can have, 'b('", "c: objects without members"),
        ),
        ([[1, "x"]], "", ("values of several types",)),
        ([1, True], "", ("values of several types",)),
        ([1, 0.5], "double", ()),
        ([float("inf")], "", ("numbers too large for a double",)),
        ([0.5, 10**400], "", ("numbers too large for a double",)),
        ([10**38], "", ("whole numbers of more than 38 digits",)),
        ([1 - 10**38], "decimal(38, 0)", ()),
    ],
)
def test_what_has_no_type_is_reported(values: list[Any], name: str, untyped: tuple[str, ...]) -> None:
    """It is never called text: the reader would refuse it."""
    found = json_type(values)
    assert (found.name, found.untyped) == (name, untyped)
