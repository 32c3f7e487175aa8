"""Values that are written as YAML are read back as they were."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from dagflow.spec.problems import Problems
from dagflow.spec.yaml_parser import behind_key, flow, parse_text
from dagflow.spec.yaml_tree import Environment, plain

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


def read(text: str) -> Any:
    """A document as dagflow reads it."""
    problems = Problems()
    root = parse_text(text, "x.yaml", Environment({}), problems)
    assert root is not None and not problems, f"{problems.found} in {text!r}"
    return plain(root)


@given(VALUES)
@example("1e5")
@example("0o17")
@example("a: b")
@example("yes")
@example("0000-00-00")
@example("2024-01-01 25:00:00")
@example("0x_")
@example("[{" * 1000)
@example("- ? " * 1000)
@example("${HOME} and $${x}")
@example({"${HOME}": "${HOME}", "<<": 1, "": ""})
@example("\x85\u2028\x7f\ufeff")
@example("\ue0f1\ue0f2")
@example(-math.inf)
def test_a_value_in_one_line_is_read_back(value: Any) -> None:
    """Words that mean something, digits, variables and characters that YAML refuses are quoted."""
    assert read(f"a: [{flow(value)}]") == {"a": [value]}


@given(VALUES, st.sampled_from([0, 4]))
@example("one\ntwo\n", 0)
@example("one\n\n  two", 4)
@example("one\n\n", 4)
@example("-", 0)
@example(" one\n", 0)
@example("one\n \n", 0)
@example("a\n${HOME}\n# no comment\n", 0)
@example({"a" * 60: "b" * 60}, 4)
def test_a_value_behind_a_key_is_read_back(value: Any, indent: int) -> None:
    """Texts of several lines are blocks, lists have a line for each item."""
    key = f"{' ' * indent}k:{behind_key(value, indent)}\n{' ' * indent}l: 1\n"
    assert read(f"a:\n{key}" if indent else key) == ({"a": {"k": value, "l": 1}} if indent else {"k": value, "l": 1})
