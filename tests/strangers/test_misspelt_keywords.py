"""A misspelt keyword is named, with the keyword that is meant."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dagflow.errors import SpecError
from dagflow.plan.load import load_app
from dagflow.testing.operators import run_operator
from operators import Select, Sql
from operators.expressions.expression import Expression
from operators.expressions.syntax import ExpressionError

QUERIES = {
    "selct a, b from input": ("selct", "select"),
    "selct a form input wher a > 1": ("selct", "select"),
    "select a form input": ("form", "from"),
    "select a from input wher a > 1": ("wher", "where"),
    "select a, count(*) as n from input gruop by a": ("gruop", "group"),
    "select a, count(*) as n from input groupby a": ("groupby", "group by"),
    "select a from input oder by a limit 3": ("oder", "order"),
    "select a from input order by a dsc limit 3": ("dsc", "desc"),
    "select a from input order by a limt 3": ("limt", "limit"),
    "select a, count(*) as n from input group by a havng count(*) > 1": ("havng", "having"),
}
EXPRESSIONS = {
    "a = 1 adn b = 2": ("adn", "and"),
    "a lik 'x%'": ("lik", "like"),
    "a beetween 1 and 2": ("beetween", "between"),
    "case whn a then b end": ("whn", "when"),
    "case when a then b ese c end": ("ese", "else"),
    "nto a": ("nto", "not"),
    "a is nto null": ("nto", "not"),
    "extrct(year from a)": ("extrct", "extract"),
    "intervall '1' day": ("intervall", "interval"),
}


@pytest.mark.parametrize("query", QUERIES)
def test_a_misspelt_keyword_of_a_query_is_named(query: str) -> None:
    """With its column; a query that has no other mistake is read with the keyword that is suggested."""
    word, keyword = QUERIES[query]
    with pytest.raises(ExpressionError, match=f"'{word}' is not expected here; did you mean '{keyword}'\\?") as caught:
        Sql(query=query)
    assert caught.value.offset == query.index(word)
    if "form input wher" not in query:
        Sql(query=query.replace(word, keyword))


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_a_misspelt_keyword_of_an_expression_is_named(text: str) -> None:
    """The same for expressions."""
    word, keyword = EXPRESSIONS[text]
    with pytest.raises(ExpressionError, match=f"'{word}' is not expected here; did you mean '{keyword}'\\?"):
        Expression.of(text)
    Expression.of(text.replace(word, keyword))


@pytest.mark.parametrize(
    ("given", "whole"),
    [
        ("deleted: retract", "on_change: {deleted: retract}"),
        ("replaced: supersede", "on_change: {replaced: supersede}"),
    ],
)
def test_a_name_within_a_property_is_shown_where_it_belongs(tmp_path: Path, given: str, whole: str) -> None:
    """The message says how to write it, and that is valid."""
    app = "name: a\nsteps:\n  - files: in\n    {}\n  - read: lines\n  - write: out\n"
    (path := tmp_path / "app.yaml").write_text(app.format(given))
    name, _, value = given.partition(": ")
    whole = f"on_change: {{{given}}}"
    shown = re.escape(whole.replace(value, "…"))
    with pytest.raises(SpecError, match=f"has no property '{name}'; write it within 'on_change', as {shown}"):
        load_app(path)
    path.write_text(app.format(whole))
    load_app(path)


@pytest.mark.parametrize(("text", "what"), [("a b", "'b'"), ("a form", "'form'")])
def test_a_word_that_no_keyword_explains_is_not_blamed(text: str, what: str) -> None:
    """A suggestion is made only where the text can be read with it."""
    with pytest.raises(ExpressionError, match=f"^{what} is not expected here, at"):
        Expression.of(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("price > 1,5", "',' is not expected here; a decimal number has a point, as in 1.5"),
        ("price > 3, id > 2", "',' is not expected here; an expression gives one value: join conditions by and, or or"),
        ("id in 1,2", "',' is not expected here; an expression gives one value.*values of in stand in parentheses"),
        ("price > 1 and, id", "something is missing before ','"),
        ("> 1", "something is missing before '>'"),
        ("price = 2 and > 1", "something is missing before '>'"),
        ("AND brand + price > 1", "something is missing before 'AND', at column 1 "),
        ("!= 1", "something is missing before an operator"),
        ("price =< 1", "something is missing before '<'; write <="),
        ("(`it's` > 1", "'\\(' is not closed"),
        ("round(price + (id * 2", "'\\(' is not closed, at column 15"),
        ("selct price > 3", "'price' is not expected here; did you mean 'select'\\? this takes an expression"),
        ("select price from input", "'select' is not expected here; .* the step sql takes queries"),
        ("where price > 3", "'where' is not expected here; write the condition alone"),
        ("price > 1 && id = 2", "'&&' is not expected here; write and"),
        ("price => 1", "'=>' is not expected here; write >="),
        ("price ? 1 : 2", "':' is not expected here; write case when"),
        ("s:c", "':' is not expected here; write case when"),
        ("name endswith 'x'", "'endswith' is not expected here; write ends_with\\(text, part\\)"),
        ("name contains 'x'", "'contains' is not expected here; write contains\\(text, part\\)"),
        ("name = 'it's'", "not closed; a quote in a text is written twice"),
    ],
)
def test_what_is_no_expression_is_answered_with_what_is_meant(text: str, message: str) -> None:
    """The habits of other languages, of queries and of decimal commas."""
    with pytest.raises(ExpressionError, match=message):
        Expression.of(text)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("contains(name, 'x')", ["x", "yx"]),
        ("starts_with(name, 'x')", ["x"]),
        ("name like '%x%'", ["x", "yx"]),
        ("name = 'it''s'", ["it's"]),
    ],
)
def test_what_is_advised_in_place_of_it_does_what_was_meant(text: str, kept: list[str]) -> None:
    """With the functions that there are."""
    records = [{"name": name} for name in ("x", "yx", "it's")]
    assert [record["name"] for record in run_operator(Select(where=text), records)["output"]] == kept
