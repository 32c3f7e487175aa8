"""How sqlglot reads a text, and what is read of the tree that it makes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import sqlglot
from sqlglot import exp, parser, tokens

from dagflow.errors import MOST_LEVELS
from operators.expressions.syntax import ExpressionError

_MOST_STEPS = 50
"""For each token: sqlglot reads most of them twice at most, but names of types within each other all over again."""

_KEPT_PARSERS = ("CAST", "TRY_CAST", "EXTRACT", "POSITION", "SUBSTRING", "TRIM")
"""Functions with words between their arguments; all others are calls like any other."""


class SqlDialect(sqlglot.Dialect):
    """Standard SQL: text stands in single quotes, where a backslash is a character, and names in double ones."""

    NULL_ORDERING = "nulls_are_last"

    class Tokenizer(tokens.Tokenizer):
        """Takes names in backticks as well, as Spark does."""

        QUOTES: ClassVar[list[tuple[str, str] | str]] = ["'"]
        STRING_ESCAPES: ClassVar[list[str]] = ["'"]
        IDENTIFIERS: ClassVar[list[str | tuple[str, str]]] = ['"', "`"]

    class Parser(parser.Parser):
        """Leaves functions as they are written, so that what they mean is decided in one place, ours."""

        FUNCTIONS: ClassVar[dict[str, Callable[..., Any]]] = {}
        NO_PAREN_FUNCTIONS: ClassVar[dict[Any, Any]] = {}
        FUNCTION_PARSERS: ClassVar[dict[str, Callable[..., Any]]] = {
            name: parser.Parser.FUNCTION_PARSERS[name] for name in _KEPT_PARSERS
        }

        def reset(self) -> None:
            super().reset()
            self._steps = 0

        def _advance(self, times: int = 1) -> None:
            super()._advance(times)
            self._steps += 1
            if self._steps > _MOST_STEPS * (len(self._tokens) + 1):
                reason = "names of types stand within each other, as decimal(decimal(a)); they are no functions"
                raise ExpressionError(reason, self.sql, 0)


OPERATORS: dict[type[exp.Expression], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.IntDiv: "div",
    exp.Mod: "%",
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "is not distinct from",
    exp.NullSafeNEQ: "is distinct from",
    exp.And: "and",
    exp.Or: "or",
    exp.DPipe: "||",
    exp.Like: "like",
    exp.ILike: "ilike",
    exp.RegexpLike: "rlike",
}

# Also arguments with an error of their own where they are read, and arguments that change no result: a with that is
# materialized or recursive in name only, and `safe`, which sqlglot sets by itself.
READ: dict[type[exp.Expression], str] = {
    **dict.fromkeys(OPERATORS, "this expression negate"),
    exp.Alias: "this alias",
    exp.Anonymous: "this expressions",
    exp.AtTimeZone: "this zone",
    exp.Between: "this low high",
    exp.Boolean: "this",
    exp.CTE: "this alias materialized",
    exp.Case: "this ifs default",
    exp.Cast: "this to",
    exp.Column: "this table db catalog",
    exp.DPipe: "this expression safe",
    exp.DataType: "this expressions nested kind",
    exp.DataTypeParam: "this",
    exp.Distinct: "expressions",
    exp.Dot: "this expression",
    exp.Escape: "this expression",
    exp.Extract: "this expression",
    exp.From: "this",
    exp.Group: "expressions",
    exp.Having: "this",
    exp.Identifier: "this quoted",
    exp.If: "this true false",
    exp.In: "this expressions query unnest field",
    exp.Interval: "this unit",
    exp.Is: "this expression",
    exp.Join: "this on using method side kind",
    exp.Limit: "expression",
    exp.Literal: "this is_string",
    exp.Neg: "this",
    exp.Not: "this",
    exp.Null: "",
    exp.Order: "this expressions",
    exp.Ordered: "this desc nulls_first",
    exp.Paren: "this",
    exp.Star: "",
    exp.StrPosition: "this substr",
    exp.Subquery: "this alias",
    exp.Substring: "this start length",
    exp.Table: "this alias",
    exp.TableAlias: "this",
    exp.Trim: "this expression position",
    exp.TryCast: "this to safe",
    exp.Where: "this",
    exp.With: "expressions recursive",
}
_INSTEAD: dict[type[exp.Expression], str] = {
    exp.Between: "between {} is not available; write both bounds, as a between least(b, c) and greatest(b, c)",
    exp.Cast: "a cast takes a type alone; for a default write coalesce(try_cast(a as int), 0)",
    exp.Distinct: "distinct {} is not available; group by is, with min(…) or max(…) of other columns",
    exp.Group: "group by takes columns and expressions alone",
    exp.Limit: "limit takes a number alone, without percent, with ties or by",
    exp.Ordered: "order by takes expressions, asc, desc and nulls last alone",
    exp.Star: "* takes no exceptions; name the columns, or drop some in a Select behind",
    exp.Subquery: "{} is not available behind a table in from",
    exp.Table: "{} is not available behind a table in from",
    exp.TableAlias: "columns are named in the select list, not behind a table",
    exp.TryCast: "a cast takes a type alone; for a default write coalesce(try_cast(a as int), 0)",
}


CHAINED = (exp.And, exp.Or, exp.DPipe)
"""Operators that give the same in whatever order several of them are computed."""

ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod)
"""Operators that are computed from left to right."""

_BEGIN = "dagflow.begin"
TOO_DEEP = f"it is nested deeper than {MOST_LEVELS} levels; compute a part of it in a Select before"


def require_read(tree: Any, text: str) -> None:
    """Refuse arguments that sqlglot parsed and nothing reads, in a tree and all that it holds.

    Classes that nothing reads at all are refused where they are converted.
    """
    for found in tree.walk():
        read = READ.get(type(found))
        if read is None:
            continue
        for key, value in found.args.items():
            if value and key not in read.split():
                word = key.replace("_", " ").strip().removesuffix("s")
                reason = _INSTEAD.get(type(found), f"{{}} is not available in {type(found).__name__.lower()}")
                raise ExpressionError(reason.format(word), text, position_of(found))


def note_positions(tree: Any, text: str) -> None:
    """Note for a tree and all that it holds where it begins, and refuse a tree that is nested too deep."""
    depths: dict[int, int] = {}
    for found in reversed(list(tree.walk())):
        parts = [part for part in found.iter_expressions()]
        starts = [start for part in parts if (start := part.meta.get(_BEGIN)) is not None]
        if (own := found.meta.get("start")) is not None:
            starts.append(own)
        found.meta[_BEGIN] = min(starts, default=None)
        # The operands of a chain are taken side by side, however many there are.
        depths[id(found)] = max((depths[id(part)] + (not _goes_on(found, part)) for part in parts), default=0)
        if depths[id(found)] > MOST_LEVELS:
            raise ExpressionError(TOO_DEEP, text, position_of(found))


def _goes_on(found: Any, part: Any) -> bool:
    if isinstance(found, ARITHMETIC):
        return part is found.this and isinstance(part, ARITHMETIC)
    return type(part) is type(found) and isinstance(found, CHAINED)


def steps_of(found: Any) -> list[Any]:
    """The operators of a chain of arithmetic, from left to right."""
    steps = [found]
    while _goes_on(steps[-1], steps[-1].this):
        steps.append(steps[-1].this)
    return steps[::-1]


def operands_of(found: Any) -> list[Any]:
    """The operands of a chain of one operator, from left to right."""
    operands: list[Any] = []
    pending = [found]
    while pending:
        each = pending.pop()
        if each is found or _goes_on(found, each):
            pending += (each.expression, each.this)
        else:
            operands.append(each)
    return operands


def position_of(found: Any) -> int:
    """Where an expression begins: sqlglot notes it for names and values only, not for what holds them."""
    return found.meta.get(_BEGIN) or 0
