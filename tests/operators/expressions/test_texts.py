"""Groups of patterns, and parts of texts with any characters."""

from __future__ import annotations

from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from operators.expressions.expression import Expression
from operators.expressions.syntax import ExpressionError
from tests.sql.cases import computed

SUBJECT = "a(]b(b=c=xy(aa-b"
PIECES = st.lists(
    st.sampled_from(
        [
            *("(", ")", "[", "]", "^", "a", "b", "=", ".", "\\Q", "\\E", "\\(", "\\[", "\\\\", "\\pL", "(?:", "(?i:"),
            *("(?P<n>", "[[:alpha:](]", "[[:^alpha:](]", "[]a(]", "[^]a(]", "[\\](]", "[[(]", "[[:(]", "+", "*?", "|"),
            *("(.)", "(b)", "(=)"),
        ]
    ),
    max_size=7,
).map("".join)


def extracted(pattern: str, group: int, subject: str = SUBJECT) -> Any:
    """What regexp_extract gives."""
    table = pa.RecordBatch.from_pydict({"s": [subject]})
    (found,) = computed(f"regexp_extract(s, '{pattern}', {group})", table)
    return found


def in_duckdb(pattern: str, group: int, subject: str = SUBJECT) -> Any:
    """What DuckDB gives, which has the same patterns."""
    return duckdb.execute("SELECT regexp_extract(?, ?, ?)", [subject, pattern, group]).fetchall()[0][0]


@pytest.mark.parametrize(
    ("pattern", "group", "wanted"),
    [
        (r"[[:alpha:](]+=(.)(.)", 2, "="),
        (r"[[:alpha:](]+=(.)", 1, "c"),
        (r"[[:^alpha:](]+(b)=", 1, "b"),
        (r"[]a(]b", 0, "]b"),
        (r"[^]a(](=)", 1, "="),
        (r"[\](]+(b)", 1, "b"),
        (r"[[:(](b)", 1, "b"),
        (r"\Q(\E(.)", 1, "]"),
        (r"(.)\Q(]b", 1, "a"),
        (r"\Q(]b", 0, "(]b"),
        (r"(?P<found>b)(=)", 2, "="),
        (r"(?P<found>b)(=)", 0, "b="),
        (r"(?<found>b)(=)", 1, "b"),
    ],
)
def test_a_group_is_found_whatever_brackets_hold(pattern: str, group: int, wanted: str) -> None:
    """Parentheses in character classes and in literal text open no groups."""
    assert extracted(pattern, group) == wanted
    if "(?<" not in pattern:
        assert in_duckdb(pattern, group) == wanted


@given(PIECES, st.integers(0, 3))
@example("[]a(]b", 1)
@example("[[:alpha:](]+=(.)(.)", 3)
def test_groups_are_those_that_duckdb_has(pattern: str, group: int) -> None:
    """For any pattern that RE2 takes; one that it does not take is a mistake at once."""
    try:
        wanted = in_duckdb(pattern, group)
    except duckdb.Error:
        with pytest.raises(ExpressionError, match=r"not a valid RE2 expression|groups, and number"):
            extracted(pattern, group)
        return
    try:
        assert extracted(pattern, group) == wanted
    except ExpressionError as error:
        # DuckDB gives an empty text for a group that there is not.
        assert "groups, and number" in str(error)
        assume(not wanted)


@given(st.text("\0ab", max_size=6), st.integers(-8, 8), st.integers(-1, 8))
@example("\0\0b", -5, 4)
def test_no_character_of_a_text_is_lost(text: str, start: int, count: int) -> None:
    """The part begins at a virtual place where the start is before the text."""
    first = start - 1 if start > 0 else (len(text) + start if start < 0 else 0)
    wanted = text[max(first, 0) : max(first + max(count, 0), 0)]
    assert computed(f"substring(s, {start}, {count})", pa.RecordBatch.from_pydict({"s": [text]})) == [wanted]


def test_each_character_has_a_case_by_itself() -> None:
    """As the docs say, where Spark looks at the characters beside it, or makes two of one."""
    table = pa.RecordBatch.from_pydict({"s": ["\u0130\u0391\u03a3", "\ufb01", "\u00df"]})
    assert computed("lower(s)", table) == ["i\u03b1\u03c3", "\ufb01", "\u00df"]
    assert computed("upper(s)", table) == ["\u0130\u0391\u03a3", "\ufb01", "\u1e9e"]


def test_a_pattern_is_refused_before_any_record_comes() -> None:
    """The number of groups is that of the pattern."""
    schema = pa.schema([("s", pa.string())])
    with pytest.raises(ExpressionError, match="has 1 groups, and number 2 is asked for"):
        Expression.of("regexp_extract(s, '[]a(](b)', 2)").bind(schema)
