"""The text of rescued values."""

from __future__ import annotations

import json
from math import inf, nan
from typing import Any

import pytest

from operators.rescued_values import rescued_text, rescued_values


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (nan, "nan"),
        ([1.5, -inf], [1.5, "-inf"]),
        ({"a": {"b": nan}}, {"a": {"b": "nan"}}),
        ([("key", inf)], [["key", "inf"]]),
    ],
)
def test_numbers_that_json_lacks_are_text_wherever_they_are(value: Any, text: Any) -> None:
    """Other readers of JSON would refuse the whole text; also that of another origin is mended."""
    made = rescued_text({"x": value}, "file", 1, json.dumps({"y": value}))

    def refused(word: str) -> None:
        raise AssertionError(word)

    assert json.loads(made, parse_constant=refused)["x"] == text
    assert rescued_values(made)["x"] == text
