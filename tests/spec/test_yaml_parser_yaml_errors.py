"""What is not YAML is explained where it begins."""

from __future__ import annotations

import pytest

from dagflow.spec.problems import Problems
from dagflow.spec.yaml_parser import parse_text
from dagflow.spec.yaml_tree import Environment

QUOTE = "the quote that begins here is"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a:\n\tb: 1\n", "2:1: not YAML: a tab is in the indentation"),
        ("a:\n  b: 1\n\tc: 2\n", "3:1: not YAML: a tab is in the indentation"),
        ("a:\n  b:\n  \tc: 1\n", "3:3: not YAML: a tab is in the indentation"),
        ("a: ${X}\nb: |\n\tx\n", "3:1: not YAML: a tab is in the indentation"),
        ('a: "x\nb: 1\nc: 2\n', f"1:4: not YAML: {QUOTE} not closed"),
        ('a: "x\nb: "y"\n', f"1:4: not YAML: {QUOTE} closed at line 2, column 4, where more text follows"),
        ("a: ['x\n  , 'y']\n", f"1:5: not YAML: {QUOTE} closed at line 2, column 5, where more text follows"),
        ("a: 'it's'\n", "1:8: not YAML: nothing may follow the closing quote"),
        ("a: {b: 1\nc: 2\n", "1:4: not YAML: the '{' is not closed: expected ',' or '}' at line 2, column 2"),
        ("a: [1,\n  2\n", "1:4: not YAML: the '[' is not closed: expected ',' or ']' before the end"),
        ("a: [\n", "1:4: not YAML: the '[' is not closed before the end"),
        ("a: {b: [1,\n", "1:8: not YAML: the '[' is not closed before the end"),
        ("a: {b: 1, c: [1, 2}\n", "1:19: not YAML: expected ',' or ']', as the '[' of column 14 is open"),
        ('a: {b: "x" c: 1}\n', "1:12: not YAML: expected ',' or '}', as the '{' of column 4 is open"),
        ("a:\n  b: 1\n c: 2\n", "3:2: not YAML: while parsing a block mapping from line 1 on"),
        ("a: b: c\n", "1:5: not YAML: mapping values are not allowed"),
        ("a: @x\n", "1:4: not YAML: while scanning for the next token"),
    ],
)
def test_a_mistake_is_named_where_it_was_made(text: str, message: str) -> None:
    """Not where the parser has noticed it, and in words of what was typed."""
    problems = Problems()
    assert parse_text(text, "a.yaml", Environment({"X": "y"}), problems) is None
    (problem,) = problems.found
    assert str(problem).startswith(f"a.yaml:{message}")
