"""Expressions as properties of operators."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import field, replace
from typing import Annotated, Any

import pyarrow as pa
from pydantic import PlainValidator, WithJsonSchema

from dagflow.frozen import frozen
from dagflow.late import compute as pc
from dagflow.suggestions import did_you_mean
from operators.expressions import logic
from operators.expressions.casting import cast, fitted, lenient_cast
from operators.expressions.functions import AGGREGATES, FUNCTIONS, OPERATORS, Function, is_installed
from operators.expressions.sql_types import BOOLEAN, MAX_DIGITS, name_of, normal_type
from operators.expressions.syntax import (
    Alias,
    Call,
    Case,
    Cast,
    ColumnName,
    Constant,
    ExpressionError,
    Node,
    OperatorChain,
    StructMember,
    columns_in,
    walk,
)
from operators.expressions.vectors import Bound, CallSite, Rows, Vector, shared, typed


@frozen
class Expression:
    """An expression of SQL over the columns of records."""

    text: str
    tree: Node = field(repr=False, compare=False)

    @classmethod
    def of(cls, value: object) -> Expression:
        if isinstance(value, cls):
            return value
        return cls(*text_and_tree(value))

    def columns(self, known: Collection[str]) -> list[str]:
        """The names of the columns that it reads; see columns_in."""
        return columns_in(self.tree, known)

    def bind(self, schema: pa.Schema) -> Bound:
        return bind(self.text, self.tree, schema)

    def bind_condition(self, schema: pa.Schema) -> Bound:
        """Check against columns that it is true, false or null."""
        bound = self.bind(schema)
        if bound.type != BOOLEAN and not pa.types.is_null(bound.type):
            reason = f"a condition is expected, and this is {name_of(bound.type)}; compare it with something"
            raise ExpressionError(reason, self.text, 0)
        return bound if bound.type == BOOLEAN else typed(bound, BOOLEAN)

    def __str__(self) -> str:
        return self.text


def text_and_tree(value: object, *, aggregates: bool = False) -> tuple[str, Node]:
    """The text of an expression in an app, and its tree."""
    # Late: an operator without expressions needs no parser, and a task gets the tree.
    from operators.expressions.parsing import parsed

    if not isinstance(value, str | int | float):
        raise ValueError(f"expected an expression, as price * qty; got {value!r}")
    # YAML's true and false are SQL's.
    text = str(value).lower() if isinstance(value, bool) else str(value)
    tree = parsed(text)
    check_functions(text, tree, aggregates=aggregates)
    return text, tree


def _optional(value: object) -> Expression | None:
    return None if value is None else Expression.of(value)


_SCHEMA: dict[str, Any] = {
    "type": ["string", "number", "boolean"],
    "description": "an expression of SQL, as price * qty",
}

ExpressionText = Annotated[Expression, PlainValidator(Expression.of), WithJsonSchema(_SCHEMA)]
"""A property that is an expression."""

OptionalExpression = Annotated[Expression | None, PlainValidator(_optional), WithJsonSchema(_SCHEMA)]
"""A property that is an expression, or not given."""


_TOO_LONG = f"it has more than {MAX_DIGITS} digits"


def check_functions(text: str, tree: Node, *, aggregates: bool = False) -> None:
    """Refuse functions that do not exist, and wrong numbers of arguments, without knowing any columns."""
    parts = tree.parts
    if isinstance(tree, Call):
        if aggregates and tree.name in AGGREGATES:
            parts = tuple(part for part in parts if not (isinstance(part, Call) and part.is_star))
        else:
            _function_of(text, tree)
    for part in parts:
        check_functions(text, part, aggregates=aggregates)


def _function_of(text: str, call: Call) -> Function:
    if call.is_star:
        raise ExpressionError("'*' is allowed only in count(*)", text, call.position)
    if call.name in AGGREGATES:
        reason = (
            f"{call.name}() combines records, and here each one is computed for itself; use the columns of Aggregate"
        )
        raise ExpressionError(reason, text, call.position)
    function = OPERATORS.get(call.name) or FUNCTIONS.get(call.name)
    if function is None:
        hint = did_you_mean(call.name, (*FUNCTIONS, *AGGREGATES)) or "; docs/expressions.md lists those that there are"
        raise ExpressionError(f"there is no function '{call.name}'{hint}", text, call.position)
    if function.is_in_duckdb and not is_installed():
        reason = f"{call.name}() is computed by DuckDB, which is missing; install it with: pip install 'dagflow[sql]'"
        raise ExpressionError(reason, text, call.position)
    count = len(call.arguments)
    if call.is_distinct or count < function.least or (function.most is not None and count > function.most):
        raise ExpressionError(f"{call.name} is used as {function.usage}", text, call.position)
    return function


def bind(text: str, tree: Node, schema: pa.Schema) -> Bound:
    try:
        return Binder(text, schema).bind(tree)
    except ExpressionError as error:
        declared = [field.name for field in schema if not is_undeclared(field)]
        for name in columns_in(tree, schema.names):
            if name in schema.names and is_undeclared(schema.field(name)):
                hint = did_you_mean(name, declared)
                reason = f"column '{name}' has no type where it is read, and so is {name_of(schema.field(name).type)}"
                raise ExpressionError(f"{error.reason}; {reason}{hint}", text, error.offset) from None
        raise


def is_undeclared(field: pa.Field) -> bool:
    """Whether it is not known before records come that a column exists."""
    return bool(field.metadata) and b"dagflow.undeclared" in field.metadata


class Binder:
    """Gives expressions their types."""

    def __init__(self, text: str, schema: pa.Schema) -> None:
        self._text = text
        self._schema = schema
        self._kinds: dict[type[Node], Callable[[Any], Bound]] = {
            ColumnName: self._column,
            StructMember: self._member,
            Constant: _constant,
            Call: self._call,
            OperatorChain: self._chain,
            Cast: self._cast,
            Case: self._case,
            Alias: self._alias,
        }

    def bind(self, node: Node) -> Bound:
        return self._kinds[type(node)](node)

    def _column(self, node: ColumnName) -> Bound:
        index = self._schema.get_field_index(self._name(node))
        stored = self._schema.field(index).type
        kind = normal_type(stored)

        def compute(rows: Rows) -> Vector:
            column = rows.columns.column(index)
            if pa.types.is_decimal256(stored):
                fit = Vector(column)
                return rows.attempt(lambda values: fitted(values, kind), lambda _: _TOO_LONG, fit)
            return Vector(column if stored == kind else pc.cast(column, kind))

        return Bound(node, kind, compute)

    def _member(self, node: StructMember) -> Bound:
        struct = self.bind(node.argument)
        names = [field.name for field in struct.type] if pa.types.is_struct(struct.type) else []
        if node.name not in names:
            hint = did_you_mean(node.name, names) or f"; there are {', '.join(names)}"
            if not names:
                hint = f" in {name_of(struct.type)}; put a name that has a point in double quotes"
            raise ExpressionError(f"there is no member '{node.name}'{hint}", self._text, node.position)
        kind = normal_type(struct.type.field(node.name).type)
        return Bound(
            node,
            kind,
            lambda rows: rows.apply(lambda value: pc.struct_field(value, node.name).cast(kind), struct.compute(rows)),
        )

    def _name(self, node: ColumnName) -> str:
        names = self._schema.names
        found = [name for name in (node.name, *node.others) if name in names]
        if not found:
            hint = did_you_mean(node.name, names) or f"; there are {', '.join(names)}"
            raise ExpressionError(f"there is no column '{node.name}'{hint}", self._text, node.position)
        if len(found) > 1:
            reason = f"'{node.name}' is a column of several tables; say which, as {found[-1]}"
            raise ExpressionError(reason, self._text, node.position)
        if names.count(found[0]) > 1:
            raise ExpressionError(f"there are several columns '{found[0]}'", self._text, node.position)
        return found[0]

    def _call(self, node: Call) -> Bound:
        function = _function_of(self._text, node)
        arguments = [self.bind(argument) for argument in node.arguments]
        name = f"'{node.name}'" if node.name in OPERATORS else f"{node.name}()"
        return function.bind(CallSite(self._text, node, name), *arguments)

    def _chain(self, node: OperatorChain) -> Bound:
        """Each operator reads what the one before it has computed: calls within each other would be too many."""

        def before(rows: Rows) -> Vector:
            return rows.once(before)

        first = found = self.bind(node.first)
        steps = []
        for step in node.steps:
            left = found if found.constant is not None else replace(found, compute=before)
            site = CallSite(self._text, replace(step, position=node.position), f"'{step.name}'")
            found = OPERATORS[step.name].bind(site, left, self.bind(step.arguments[0]))
            steps.append(found.compute)
        return Bound(node, found.type, lambda rows: rows.in_turn(first.compute, before, steps))

    def _cast(self, node: Cast) -> Bound:
        change = lenient_cast if node.is_lenient else cast
        site = CallSite(self._text, node, "cast")
        # A cast is no written constant, even if it changes nothing: 1 has one digit, and cast(1 as int) has ten.
        return replace(change(site, self.bind(node.argument), node.type), node=node)

    def _case(self, node: Case) -> Bound:
        branches = [(self.bind(condition), self.bind(value)) for condition, value in node.branches]
        if node.operand is not None:
            operand, equals = shared(self.bind(node.operand)), logic.comparison("=")
            site = CallSite(self._text, node, "'='")
            branches = [(equals(site, operand, condition), value) for condition, value in branches]
        return logic.case(CallSite(self._text, node, "case"), branches, self.bind(node.default))

    def _alias(self, node: Alias) -> Bound:
        if found := next((name for name in node.columns if name in self._schema.names), None):
            reason = (
                f"'{found}' is a column, which group by means, and an entry of the select list is called so as well"
            )
            raise ExpressionError(f"{reason}; give the entry another name with as", self._text, node.position)
        return self.bind(node.argument)


def _constant(node: Constant) -> Bound:
    scalar = pa.scalar(node.value, node.type)
    return Bound(node, node.type, lambda rows: Vector(scalar))


def functions_in_duckdb(trees: Iterable[Node]) -> list[str]:
    """The functions of expressions that DuckDB computes, each once."""
    calls = [part for tree in trees for part in walk(tree) if isinstance(part, Call)]
    found = [call.name for call in calls if (known := FUNCTIONS.get(call.name)) and known.is_in_duckdb]
    return list(dict.fromkeys(found))
