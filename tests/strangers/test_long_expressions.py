"""Long expressions and queries take work by their length, and are refused in words where they are nested too deep."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from operators import Sql
from operators.expressions.expression import Expression
from operators.expressions.expression_error import ExpressionError
from tests.sql.cases import computed
from tests.strangers.test_many_rejects import calls


def names(count: int) -> str:
    """Columns, with commas between them."""
    return ", ".join(f"c{number}" for number in range(count))


def sums(count: int, ending: str = "") -> str:
    """Expressions, with commas between them."""
    return ", ".join(f"a + {number}{ending.format(number)}" for number in range(count))


LONG: list[Callable[[int], Any]] = [
    lambda count: Expression.of(" or ".join(f"a = {number}" for number in range(count))),
    lambda count: Expression.of(" || ".join(["a"] * count)),
    lambda count: Expression.of("case " + " ".join(f"when a = {n} then {n}" for n in range(count)) + " end"),
    lambda count: Sql(query=f"select {names(count)}, count(*) as n from input group by {names(count)}"),
    lambda count: Sql(query=f"select {sums(count, ' as c{}')}, count(*) as n from input group by {sums(count)}"),
    lambda count: Sql(query=f"select {names(count)} from input order by {names(count)} limit 5"),
    lambda count: Sql(query=f"select a, {names(count)} from input order by {sums(count)} limit 5"),
]


@pytest.mark.parametrize("make", LONG)
def test_twice_the_length_takes_twice_the_work(make: Callable[[int], Any]) -> None:
    """Work is counted in calls of functions."""
    make(2)
    assert calls(lambda: make(200)) < 2.5 * calls(lambda: make(100))


@pytest.mark.parametrize(("text", "value"), [("a or b", True), ("a and not b", False), ("a || b", "x")])
def test_a_chain_of_any_length_is_computed(text: str, value: Any) -> None:
    """Thousands of conditions or texts in a row are no nesting."""
    left, operator, right = text.split(" ", 2)
    kind = "x" if operator == "||" else False
    rows = pa.RecordBatch.from_pydict({"a": [kind], "b": [kind if operator == "||" else True]})
    chain = f" {operator} ".join([left] * 3000 + [right])
    assert computed(chain, rows) == [value if operator != "||" else "x" * 3001]


def test_only_what_is_needed_of_a_chain_may_fail() -> None:
    """A later condition is not computed where an earlier one decides, wherever it stands in the chain."""
    rows = pa.RecordBatch.from_pydict({"a": [0, 1]})
    assert computed(" or ".join(["a = 0"] + ["1 / a > 0"] * 5), rows) == [True, True]
    assert computed(" and ".join(["a <> 0"] * 3 + ["1 / a > 0"] * 4), rows) == [False, True]


@pytest.mark.parametrize("text", ["+".join(["a"] * 1000), "(" * 1000 + "a" + ")" * 1000, "- " * 400 + "a"])
def test_an_expression_that_is_nested_too_deep_is_refused(text: str) -> None:
    """With a reason, long before Python would end the run."""
    with pytest.raises(ExpressionError, match=r"nested (too deep|deeper than 200 levels)"):
        Expression.of(text)


def test_an_expression_of_many_levels_is_computed() -> None:
    """As many levels as are allowed are no trouble."""
    rows = pa.RecordBatch.from_pydict({"a": [1]})
    assert computed("+".join(["a"] * 190), rows) == [190]
