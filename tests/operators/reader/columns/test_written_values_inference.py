"""Which columns the objects at the beginning of a file decide."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.reader.columns.written_values import shapes_of, types_of

SHAPES = [
    ([{"a": 1}, {"a": None}], {"a": "int64"}),
    ([{"a": None}, {"a": True}, {"a": 1}], {"a": "bool"}),
    ([{"a": 1}, {"a": 1.5}, {"a": "x"}], {"a": "double"}),
    ([{"a": 2**53 + 1}, {"a": -(2**63)}], {"a": "int64"}),
    ([{"a": 1}, {"a": 2**63}], {"a": "decimal(38, 0)"}),
    ([{"a": 2**63}, {"a": 0.5}], {"a": "double"}),
    ([{"a": 10**38}], {"a": "double"}),
    ([{"a": "2024-01-01T10:00:00Z"}, {"a": "x"}], {"a": "string"}),
    ([{"a": "x"}, {"a": 1}, {"b": 1}], {"a": "string", "b": "int64"}),
    ([{"a": []}, {"a": [None, 1]}, {"a": [1.5]}], {"a": {"list": "double"}}),
    ([{"a": {"x": 1}}, {"a": {"y": "z"}}, {"a": [1]}], {"a": {"struct": {"x": "int64", "y": "string"}}}),
    ([{}, {"a": None}], {"a": None}),
    ([{}], None),
    ([], None),
]


@pytest.mark.parametrize(("objects", "shapes"), SHAPES)
def test_the_first_value_decides_and_numbers_widen(objects: list[Any], shapes: Any) -> None:
    """What contradicts it later does not count; text is never taken for a time."""
    assert shapes_of([json.dumps(each).encode() for each in objects], ()) == shapes


def test_members_that_are_there_twice_and_words_for_nothing_do_not_count() -> None:
    """The first make an object a reject; the others have no type."""
    assert shapes_of([b'{"a":1,"a":2}', b'{"a":"NA"}', b'{"a":1e999}', b'{"a":true}'], ["NA"]) == {"a": "bool"}


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("ab", max_size=1), inner, max_size=2),
    max_leaves=4,
)


@given(st.lists(st.dictionaries(st.sampled_from("abc"), VALUES, min_size=1), min_size=1, max_size=8))
def test_what_was_decided_survives_the_journal(objects: list[Any]) -> None:
    """It is plain JSON, from which the same types are made; a column without values is text."""
    shapes = shapes_of([json.dumps(each).encode() for each in objects], ())
    assert shapes is not None
    assert types_of(json.loads(json.dumps(shapes))) == types_of(shapes)
    assert list(shapes) == list(dict.fromkeys(name for each in objects for name in each))
