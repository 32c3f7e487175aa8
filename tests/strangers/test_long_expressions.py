"""Long expressions and queries take work by their length, and are refused in words where they are nested too deep."""

from __future__ import annotations

import functools
import operator
import pickle
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from dagflow.errors import MOST_LEVELS
from operators import Sql
from operators.expressions.expression import Expression
from operators.expressions.syntax import ExpressionError
from operators.expressions.vectors import Rows
from operators.sql.scope import SqlTable
from tests.sql.cases import computed
from tests.strangers.test_many_rejects import calls


def names(count: int) -> str:
    """Columns, with commas between them."""
    return ", ".join(f"c{number}" for number in range(count))


def sums(count: int, ending: str = "") -> str:
    """Expressions, with commas between them."""
    return ", ".join(f"a + {number}{ending.format(number)}" for number in range(count))


def steps(count: int) -> str:
    """A query of queries, each of the one before."""
    queries = (f"q{number + 1} as (select * from q{number})" for number in range(count))
    return f"with q0 as (select * from input), {', '.join(queries)} select * from q{count}"


LONG: list[Callable[[int], Any]] = [
    lambda count: Expression.of(" or ".join(f"a = {number}" for number in range(count))),
    lambda count: Expression.of(" || ".join(["a"] * count)),
    lambda count: Expression.of("case " + " ".join(f"when a = {n} then {n}" for n in range(count)) + " end"),
    lambda count: Sql(query=f"select {names(count)}, count(*) as n from input group by {names(count)}"),
    lambda count: Sql(query=f"select {sums(count, ' as c{}')}, count(*) as n from input group by {sums(count)}"),
    lambda count: Sql(query=f"select {names(count)} from input order by {names(count)} limit 5"),
    lambda count: Sql(query=f"select a, {names(count)} from input order by {sums(count)} limit 5"),
    lambda count: Sql(query=steps(3 * count)),
    lambda count: Sql(
        query=f"select r.b from input join r on {' and '.join(['input.a = r.a'] * 5 * count)}",
        tables={"r": SqlTable(table="csv:r.csv")},
    ),
]


@pytest.mark.parametrize("make", LONG)
def test_twice_the_length_takes_twice_the_work(make: Callable[[int], Any]) -> None:
    """Work is counted in calls of functions."""
    make(2)
    assert calls(lambda: make(100)) < 2.5 * calls(lambda: make(50))


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


@pytest.mark.parametrize("signs", ["+", "-", "*", "%", "+-", "-+*", "*+/"])
def test_arithmetic_of_any_length_is_computed_from_left_to_right(signs: str) -> None:
    """Whatever its operators are; with the types, and the failures, of its parts."""
    rows = pa.RecordBatch.from_pydict({"a": [3, None]})
    for count in (2, 7, 3000):
        steps = [f"{signs[index % len(signs)]} {1 + index % 2}" for index in range(count)]
        expected: Any = 3
        for step in steps[: 0 if "*" in signs or "/" in signs else None]:
            expected = {"+": operator.add, "-": operator.sub, "%": operator.mod}[step[0]](expected, int(step[2:]))
        if signs == "*" and count > 7:
            bound = Expression.of(" ".join(["a", *steps])).bind(rows.schema)
            table = Rows(rows)
            assert (failures := bound.compute(table).failures) is not None and failures[0] and not failures[1]
        elif "*" not in signs:
            assert computed(" ".join(["a", *steps]), rows) == [expected, None]


def test_a_key_that_begins_a_chain_is_found_in_it() -> None:
    """As in select a + b + 1 and group by a + b."""
    for query in ("select a + b + 1 as c", "select a + b - 1 as c", "select a + b - 1 - 2 * max(a) as c"):
        for key in ("a + b", "a + b - 1", "a, b"):
            if key in query or "," in key:
                Sql(query=f"{query} from input group by {key}")
    with pytest.raises(ExpressionError, match="column 'b' has many values in a group"):
        Sql(query="select a + b + 1 as c, count(*) as n from input group by a, b + 1")


def test_an_expression_of_many_levels_is_computed() -> None:
    """As many levels as are allowed are no trouble, each with a chain in it."""
    rows = pa.RecordBatch.from_pydict({"a": [1]})
    levels = MOST_LEVELS // 2 - 1
    assert computed("a + 1 + (" * levels + "a" + ")" * levels, rows) == [1 + 2 * levels]


NESTED = {
    "parentheses": "({})",
    "a call": "abs({})",
    "a sum": "1 + ({})",
    "a minus": "- {}",
    "a case": "case when b then {} else 0 end",
    "a case with an operand": "case {} when 1 then 1 end",
    "a condition of a case": "case when ({}) = 1 then 1 end",
    "a list": "if(({}) in (1, 2), 1, 0)",
    "bounds": "if(({}) between 1 and 2, 1, 0)",
    "a cast": "cast({} as bigint)",
    "a cast that may fail": "try_cast({} as int)",
    "nullif": "nullif({}, 99)",
}


def nested(form: str, times: int) -> str:
    """An expression within itself."""
    before, behind = form.split("{}")
    return before * times + "a" + behind * times


def below(frames: int, call: Callable[[], Any]) -> Any:
    """What a call gives that Python makes within many others."""
    return call() if frames == 0 else below(frames - 1, call)


@pytest.mark.parametrize("form", NESTED.values(), ids=NESTED)
def test_what_is_nested_is_computed_or_refused_with_its_limit(form: str) -> None:
    """Whatever is nested, and wherever it is read from; it is also sent to tasks."""
    rows = pa.RecordBatch.from_pydict({"a": [1], "b": [True]})
    expression = below(400, lambda: Expression.of(nested(form, 24)))
    found = below(400, lambda: pickle.loads(pickle.dumps(expression)).bind(rows.schema).compute(Rows(rows)))
    assert found.failures is None
    for times in (MOST_LEVELS + 1, 500):
        text = nested(form, times)
        with pytest.raises(ExpressionError, match=f"nested deeper than {MOST_LEVELS} levels"):
            below(400, functools.partial(Expression.of, text))


@pytest.mark.parametrize("form", NESTED.values(), ids=NESTED)
def test_one_level_more_takes_the_work_of_one_level(form: str) -> None:
    """No operand is read, or computed, for each place where it is needed."""
    rows = pa.RecordBatch.from_pydict({"a": [1], "b": [True]})

    def computes(times: int) -> None:
        Expression.of(nested(form, times)).bind(rows.schema).compute(Rows(rows))

    computes(2)
    assert calls(lambda: computes(12)) < 2.5 * calls(lambda: computes(6))


@pytest.mark.parametrize("form", ["struct({})", "decimal({})", "timestamp({})"])
def test_names_of_types_within_each_other_are_refused_in_time(form: str) -> None:
    """They would be read again and again, twice as often for each level."""
    text = nested(form, 12)

    def refuses() -> None:
        with pytest.raises(ExpressionError, match="names of types stand within each other"):
            Expression.of(text)

    assert calls(refuses) < 1_000_000
