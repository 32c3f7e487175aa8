"""Reads the text of an expression with sqlglot, as standard SQL."""

from __future__ import annotations

import math
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from functools import lru_cache
from typing import Any

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, TokenError

from dagflow.errors import MOST_LEVELS
from dagflow.suggestions import did_you_mean, nearest
from operators.column_names import shown_name
from operators.expressions.sql_trees import (
    ARITHMETIC,
    CHAINED,
    OPERATORS,
    TOO_DEEP,
    SqlDialect,
    note_positions,
    operands_of,
    position_of,
    require_read,
    steps_of,
)
from operators.expressions.sql_types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INTEGER,
    INTERVAL,
    MAX_DIGITS,
    NULL,
    TEXT,
    TIMESTAMP,
    is_number,
)
from operators.expressions.syntax import (
    Call,
    Case,
    Cast,
    ColumnName,
    Constant,
    ExpressionError,
    Node,
    OperatorChain,
    StructMember,
)

_CALLS_OF_A_LEVEL = 50
"""More than the calls by which sqlglot reads a level of nesting, which are within those of the level around it."""

_parsing = threading.Lock()
_TYPES: dict[str, pa.DataType] = {
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": INTEGER,
    "BIGINT": BIGINT,
    "FLOAT": pa.float32(),
    "DOUBLE": DOUBLE,
    "BOOLEAN": BOOLEAN,
    "TEXT": TEXT,
    "VARCHAR": TEXT,
    "DATE": DATE,
    "TIMESTAMP": TIMESTAMP,
    "TIMESTAMPNTZ": TIMESTAMP,
}
_TYPE_NAMES = "tinyint, smallint, int, bigint, real, double, decimal(9, 2), boolean, text, date, timestamp"
_SECONDS = {"SECOND": 1, "MINUTE": 60, "HOUR": 3600, "DAY": 86_400, "WEEK": 604_800}
_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
_PARTS = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND")
_CHANGING = ("now", "current_date", "current_time", "current_timestamp", "random", "rand", "uuid")


@lru_cache(maxsize=1024)
def parsed(text: str) -> Node:
    # Not parsed as a statement, which a column such as comment or set would begin.
    return Converter(text).node(parsed_as(text, exp.Condition))


def parsed_as(text: str, kind: Any = None) -> Any:
    """The tree of sqlglot for a whole text.

    Args:
        text: The text.
        kind: The class of sqlglot that it should be; None for a statement.
    """
    try:
        return _read(text, kind)
    except ExpressionError as error:
        if error.reason == TOO_DEEP:
            raise
        raise with_keyword(error, text, lambda other: _read(other, kind)) from None


def _read(text: str, kind: Any) -> Any:
    try:
        with _parsing, _deep_stack():
            found = sqlglot.parse_one(text, dialect=SqlDialect, into=kind)
    except TokenError:
        raise ExpressionError(
            "a quote or a comment is not closed; a quote in a text is written twice", text, len(text.rstrip())
        ) from None
    except ParseError as error:
        raise syntax_error(text, error, kind) from None
    except RecursionError:
        raise ExpressionError(TOO_DEEP, text, 0) from None
    note_positions(found, text)
    require_read(found, text)
    if kind is None and not isinstance(found, exp.Query):
        reason = "a query is expected, as select country, count(*) as n from input group by country"
        raise ExpressionError(reason, text, 0)
    return found


@contextmanager
def _deep_stack() -> Iterator[None]:
    """Room for sqlglot to read as many levels as are allowed, from wherever it is called."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(before + MOST_LEVELS * _CALLS_OF_A_LEVEL)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def members_of(node: Node, names: Iterable[Any]) -> Node:
    """A member of a struct, by the names that lead to it."""
    for name in names:
        node = StructMember(node.position, node, str(name.this))
    return node


class Converter:
    """Makes the tree of an expression from that of sqlglot."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._special: dict[type[exp.Expression], Callable[[Any, int], Node]] = {
            exp.Paren: lambda found, _: self.node(found.this),
            exp.Column: self.column,
            exp.Dot: self._dot,
            exp.Literal: self._literal,
            exp.Boolean: lambda found, at: Constant(at, bool(found.this), BOOLEAN),
            exp.Null: lambda _, at: Constant(at, None, NULL),
            exp.Neg: self._negative,
            exp.Not: lambda found, at: Call(at, "not", (self.node(found.this),)),
            exp.Is: self._is,
            exp.In: self._in,
            exp.Between: self._between,
            exp.Escape: self._escape,
            exp.Case: self._case,
            exp.If: self._if,
            exp.Cast: self._cast,
            exp.TryCast: self._cast,
            exp.Extract: self._extract,
            exp.Interval: self._interval,
            exp.AtTimeZone: lambda found, at: self._call(at, "at time zone", found.this, found.args["zone"]),
            exp.Substring: lambda found, at: self._call(
                at, "substring", found.this, found.args.get("start"), found.args.get("length")
            ),
            exp.StrPosition: lambda found, at: self._call(at, "strpos", found.this, found.args["substr"]),
            exp.Trim: self._trim,
            exp.Anonymous: self._anonymous,
            exp.Star: lambda _, at: Call(at, "*", ()),
        }

    def node(self, found: Any) -> Node:
        at = position_of(found)
        special = self._special.get(type(found))
        if special is not None:
            return special(found, at)
        name = OPERATORS.get(type(found))
        if name is None:
            raise self._unsupported(found, at)
        if found.args.get("negate"):
            return Call(at, "not", (self._call(at, name, found.this, found.expression),))
        if isinstance(found, CHAINED):
            return self._call(at, name, *operands_of(found))
        if isinstance(found, ARITHMETIC) and len(steps := steps_of(found)) > 1:
            calls = [self._call(0, OPERATORS[type(step)], step.expression) for step in steps]
            return OperatorChain(at, self.node(steps[0].this), tuple(calls))
        return self._call(at, name, found.this, found.expression)

    def error(self, reason: str, at: int) -> ExpressionError:
        return ExpressionError(reason, self.text, at)

    def _call(self, at: int, name: str, *arguments: Any) -> Call:
        return Call(at, name, tuple(self.node(argument) for argument in arguments if argument is not None))

    def _unsupported(self, found: Any, at: int) -> ExpressionError:
        if isinstance(found, exp.Query | exp.Subquery | exp.Values):
            return self.error("a query is no expression; only columns of the record can be used", at)
        if isinstance(found, exp.Window):
            return self.error("windows (over) are not available; Aggregate groups records", at)
        if isinstance(found, exp.Bracket | exp.JSONExtract | exp.JSONExtractScalar):
            return self.error("members of lists cannot be taken out; one of a struct is written customer.city", at)
        if isinstance(found, exp.Filter):
            return self.error("filter is not available; write sum(case when paid then price end)", at)
        if isinstance(found, exp.Block):
            return self.error("only one expression is expected; remove what is behind ';'", at)
        if isinstance(found, exp.Alias):
            return self.error("'as' is allowed only in cast(a as type) and try_cast(a as type)", at)
        # As a reader of SQL writes it: the parser's own names, such as bitwiserightshift for >>, say nothing.
        return self.error(f"{shown_name(found.sql())} is not available in expressions", at)

    def column(self, found: Any, at: int) -> Node:
        """A column, or a member of one."""
        first, *members = found.parts
        if isinstance(found.this, exp.Star):
            raise self.error(f"{first.name}.* is no value; name a column, or count(*) counts records", at)
        name = str(first.this)
        if name.lower() in _CHANGING and not first.args.get("quoted"):
            raise self._changing(name, at)
        return members_of(ColumnName(at, name), members)

    def _dot(self, found: Any, at: int) -> Node:
        if not isinstance(found.expression, exp.Identifier):
            raise self._unsupported(found, at)
        return members_of(self.node(found.this), [found.expression])

    def _changing(self, name: str, at: int) -> ExpressionError:
        reason = f"'{name}' gives something else each time, and a window that runs again must give the same"
        return self.error(reason, at)

    def _literal(self, found: Any, at: int) -> Node:
        text = str(found.this)
        if found.is_string:
            return Constant(at, text, TEXT)
        if "e" in text.lower():
            if math.isinf(float(text)):
                raise self.error(f"{text} is larger than any double", at)
            return Constant(at, float(text), DOUBLE)
        return self._number(Decimal(text), at)

    def _number(self, value: Decimal, at: int) -> Constant:
        _, digits, exponent = value.as_tuple()
        scale = -int(exponent)
        if scale <= 0 and -(1 << 63) <= value < 1 << 63:
            return Constant(at, int(value), INTEGER if -(1 << 31) <= value < 1 << 31 else BIGINT)
        if max(len(digits), scale) > MAX_DIGITS:
            raise self.error(f"a number has {MAX_DIGITS} digits at most", at)
        return Constant(at, value, pa.decimal128(max(len(digits), scale), max(scale, 0)))

    def _negative(self, found: Any, at: int) -> Node:
        argument = self.node(found.this)
        if isinstance(argument, Constant) and is_number(argument.type) and not isinstance(argument.value, float):
            # Unlike a minus, this does not round to the digits of Python's context.
            return self._number(Decimal(argument.value).copy_negate(), at)
        return Call(at, "negative", (argument,))

    def _is(self, found: Any, at: int) -> Node:
        argument, what = self.node(found.this), found.expression
        if isinstance(what, exp.Null):
            return Call(at, "is null", (argument,))
        return Call(at, "is not distinct from", (argument, self.node(what)))

    def _in(self, found: Any, at: int) -> Node:
        if found.args.get("query") is not None or not found.expressions:
            raise self.error("'in' takes a list of values, as in ('a', 'b')", at)
        return self._call(at, "in", found.this, *found.expressions)

    def _between(self, found: Any, at: int) -> Node:
        return self._call(at, "between", found.this, found.args["low"], found.args["high"])

    def _escape(self, found: Any, at: int) -> Node:
        like = found.this
        if type(like) not in OPERATORS:
            raise self._unsupported(like, at)
        call = self._call(at, OPERATORS[type(like)], like.this, like.expression, found.expression)
        return Call(at, "not", (call,)) if like.args.get("negate") else call

    def _case(self, found: Any, at: int) -> Node:
        branches = tuple((self.node(branch.this), self.node(branch.args["true"])) for branch in found.args["ifs"])
        default = found.args.get("default")
        otherwise = Constant(at, None, NULL) if default is None else self.node(default)
        return Case(at, None if found.this is None else self.node(found.this), branches, otherwise)

    def _if(self, found: Any, at: int) -> Node:
        default = found.args.get("false")
        otherwise = Constant(at, None, NULL) if default is None else self.node(default)
        return Case(at, None, ((self.node(found.this), self.node(found.args["true"])),), otherwise)

    def _cast(self, found: Any, at: int) -> Node:
        return Cast(at, self.node(found.this), self._type(found.args["to"], at), isinstance(found, exp.TryCast))

    def _type(self, found: Any, at: int) -> pa.DataType:
        name = str(getattr(found.this, "value", found.this))
        written = [each.this for each in found.expressions if isinstance(each, exp.DataTypeParam)]
        numbers = [int(each.name) for each in written if isinstance(each, exp.Literal) and each.name.isdecimal()]
        if name == "DECIMAL" and len(numbers) == len(found.expressions) <= 2:
            digits, scale = (*numbers, 0)[:2] if numbers else (10, 0)
            if not 1 <= digits <= MAX_DIGITS or scale > digits:
                reason = f"a decimal has 1 to {MAX_DIGITS} digits, and not more of them behind the point"
                raise self.error(reason, at)
            return pa.decimal128(digits, scale)
        if name not in _TYPES or found.expressions:
            kind = str(found.args.get("kind") or found.sql()).lower()
            hint = did_you_mean(kind, re.findall(r"[a-z]+(?:\([^)]*\))?", _TYPE_NAMES))
            raise self.error(f"there is no type {kind!r} to cast to{hint}; there are {_TYPE_NAMES}", at)
        return _TYPES[name]

    def _extract(self, found: Any, at: int) -> Node:
        part = str(found.this.name if isinstance(found.this, exp.Var | exp.Literal) else found.this.sql()).upper()
        if part not in _PARTS:
            names = ", ".join(_PARTS).lower()
            raise self.error(f"extract has no part '{part.lower()}'; it has {names}", at)
        return self._call(at, part.lower(), found.expression)

    def _interval(self, found: Any, at: int) -> Node:
        written = found.args.get("unit")
        unit = str(written.name if isinstance(written, exp.Var) else "").upper().removesuffix("S")
        number = str(found.this.this) if isinstance(found.this, exp.Literal) else ""
        if unit in _MONTHS:
            instead = _added_months(found, number, _MONTHS[unit])
            raise self.error(f"a {unit.lower()} has no fixed length; for a date write {instead}", at)
        if unit not in _SECONDS or not re.fullmatch(r"[+-]?[0-9]+", number):
            reason = "an interval is a whole number of seconds, minutes, hours, days or weeks, as interval '3' day"
            raise self.error(reason, at)
        micros = int(number) * _SECONDS[unit] * 1_000_000
        if not -(1 << 63) <= micros < 1 << 63:
            raise self.error("an interval is too long; it has 106751991 days at most", at)
        return Constant(at, micros, INTERVAL)

    def _trim(self, found: Any, at: int) -> Node:
        name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(found.args.get("position")).upper(), "trim")
        return self._call(at, name, found.this, found.args.get("expression"))

    def _anonymous(self, found: Any, at: int) -> Node:
        name, arguments = str(found.this).lower(), found.expressions
        if name in _CHANGING:
            raise self._changing(name, at)
        is_distinct = len(arguments) == 1 and isinstance(arguments[0], exp.Distinct)
        if is_distinct:
            arguments = arguments[0].expressions
        return Call(at, name, tuple(self.node(argument) for argument in arguments), is_distinct)


def _added_months(found: Any, number: str, months: int) -> str:
    around = found.parent
    sign = -1 if isinstance(around, exp.Sub) else 1
    others = [each for each in (around.this, around.expression) if each is not found] if around is not None else []
    date = others[0].sql() if others and isinstance(others[0], exp.Column) else "date"
    count = str(sign * int(number) * months) if re.fullmatch(r"[+-]?[0-9]+", number) else "months"
    return f"add_months({date}, {count})"


_MEANT = {
    ",": "an expression gives one value: join conditions by and, or or; the values of in stand in parentheses",
    "&&": "write and",
    ":": "write case when condition then value else other end",
    "=>": "write >=",
    "=<": "write <=",
    "contains": "write contains(text, part), or text like '%part%'",
    "startswith": "write starts_with(text, part), or text like 'part%'",
    "endswith": "write ends_with(text, part), or text like '%part'",
    "where": "write the condition alone",
    "select": "this takes an expression, such as price > 3; the step sql takes queries",
}
"""What is meant by text that is no part of an expression."""

_LEFT_MISSING = re.compile(r"Required keyword: 'this' missing for <class '.*\.(\w+)'>")
"""What sqlglot says, at the end of the right operand, of an operator without a left one."""


def syntax_error(text: str, error: ParseError, kind: Any) -> ExpressionError:
    if not error.errors:
        return ExpressionError("the text is empty", text, 0)
    found = error.errors[0]
    highlight = str(found.get("highlight") or "")
    offset = _offset(text, int(found.get("line") or 1), int(found.get("col") or 1)) - len(highlight)
    # sqlglot's message names its own classes where an operator lacks an operand.
    description = str(found.get("description"))
    if left := _LEFT_MISSING.match(description):
        sign = next((sign for kind, sign in OPERATORS.items() if kind.__name__ == left[1]), None)
        signs = [token for token in SqlDialect().tokenize(text) if token.start < offset and token.text.lower() == sign]
        highlight, offset = (signs[-1].text, signs[-1].start) if signs else ("", offset)
        reason = f"something is missing before {highlight!r}" if signs else "something is missing before an operator"
    elif description.startswith("Required keyword"):
        is_before = highlight in {")", ","} or text[offset + len(highlight) :].strip()
        reason = f"something is missing {'before' if is_before else 'behind'} {highlight!r}"
    elif description == "Expecting )" and (opened := _unclosed(text)) is not None:
        reason, offset = "'(' is not closed", opened
    else:
        reason = f"{highlight!r} is not expected here"
    return ExpressionError(f"{reason}{_meant(text, highlight, offset, kind)}", text, max(0, offset))


def _unclosed(text: str) -> int | None:
    """Where the last parenthesis opens that is not closed."""
    opened: list[int] = []
    for token in SqlDialect().tokenize(text):
        if token.token_type.name == "L_PAREN":
            opened.append(token.start)
        elif token.token_type.name == "R_PAREN" and opened:
            opened.pop()
    return opened[-1] if opened else None


def _meant(text: str, highlight: str, offset: int, kind: Any) -> str:
    """What is meant by text that is not expected, behind a semicolon; "" where that is not known."""
    before = text[:offset].lower()
    if re.search(r"(?<!\bin )\b[\d.]+$", before) and re.match(r",\d", text[offset:]):
        return "; a decimal number has a point, as in 1.5"
    if kind is None:
        return ""
    if re.fullmatch(r"\w{4,}\s+", before) and nearest(before.strip(), ["select"]):
        return f"; did you mean 'select'? {_MEANT['select']}"
    meant = _MEANT.get(f"{before[-1:]}{highlight}") or _MEANT.get(highlight.lower())
    return f"; {meant}" if meant else ""


def _offset(text: str, line: int, column: int) -> int:
    starts = [0, *(match.end() for match in re.finditer("\n", text))]
    return starts[min(line, len(starts)) - 1] + column


_KEYWORDS = (
    *("select", "distinct", "from", "where", "group by", "order by", "having", "limit", "with", "as", "on", "using"),
    *("join", "left join", "group", "order", "by", "asc", "desc", "and", "or", "not", "in", "is", "null", "between"),
    *("like", "ilike", "case", "when", "then", "else", "end", "cast", "try_cast", "extract", "interval", "left"),
)
_MOST_WORDS = 50
_LEAST_LETTERS = 2


def with_keyword(error: ExpressionError, text: str, read: Callable[[str], object]) -> ExpressionError:
    """The error, or one that names a misspelt keyword: one with which the text can be read, or be read further."""
    try:
        words = [token for token in SqlDialect().tokenize(text) if token.token_type.name == "VAR"]
    except Exception:  # sqlglot refuses what is no SQL at all
        return error
    for word in words[:_MOST_WORDS]:
        keyword = nearest(word.text, _KEYWORDS) if len(word.text) >= _LEAST_LETTERS else None
        if keyword is None:
            continue
        try:
            read(f"{text[: word.start]}{keyword}{text[word.end + 1 :]}")
        except ExpressionError as other:
            # Other words may be misspelt as well.
            if other.offset <= max(error.offset, word.end) + len(keyword) - len(word.text):
                continue
        return ExpressionError(f"'{word.text}' is not expected here; did you mean '{keyword}'?", text, word.start)
    return error
