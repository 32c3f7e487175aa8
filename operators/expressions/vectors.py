"""Values of an expression for many records at once, and the failures of records without a value."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dagflow.api.columns.column_values import readable_value
from dagflow.frozen import frozen
from dagflow.late import compute as pc
from dagflow.storage.columns import parts_of
from operators.expressions.sql_types import TEXT, is_whole, name_of
from operators.expressions.syntax import Constant, ExpressionError, Node

Codes = npt.NDArray[np.int32]
Kernel = Callable[..., Any]
Why = Callable[..., str]


@frozen
class Vector:
    """The values of an expression.

    Attributes:
        values: An array of one value per record, or a scalar that stands for all of them.
        failures: For each record 0, or the number of the failure because of which it has no value, whatever stands
            in values; None where no record failed.
    """

    values: Any
    failures: Codes | None = None


@frozen
class _Failure:
    """A reason why values failed, and the arguments with which they did."""

    why: Why
    arguments: tuple[Any, ...]


class Rows:
    """The records that an expression is computed of."""

    def __init__(self, columns: pa.RecordBatch) -> None:
        self.columns = columns
        self._failures: list[_Failure] = []
        self._computed: dict[Callable[[Rows], Vector], Vector] = {}

    def __len__(self) -> int:
        return int(self.columns.num_rows)

    def reason(self, code: int, row: int) -> str:
        return self.reasons(np.where(np.arange(row + 1) == row, np.int32(code), np.int32(0)))[row]

    def reasons(self, failures: Codes) -> dict[int, str]:
        """Why records have no value, as clauses, by the position of each one that has a failure."""
        found: dict[int, str] = {}
        for code in np.unique(failures[failures != 0]).tolist():
            rows = np.flatnonzero(failures == code)
            failure = self._failures[code - 1]
            given = (_some(argument, rows) for argument in failure.arguments)
            found.update(zip(rows.tolist(), map(failure.why, *given), strict=True))
        return found

    def once(self, compute: Callable[[Rows], Vector]) -> Vector:
        """The values of an expression that is asked for them several times."""
        if compute not in self._computed:
            self._computed[compute] = compute(self)
        return self._computed[compute]

    def in_turn(self, first: Compute, before: Compute, steps: Sequence[Compute]) -> Vector:
        """The values of the last of several expressions, which read those of the one before it as before."""
        found = first(self)
        for step in steps:
            self._computed[before] = found
            found = step(self)
        self._computed.pop(before, None)
        return found

    def apply(self, kernel: Kernel, *arguments: Vector) -> Vector:
        """Compute values with a kernel that has one for any arguments."""
        values = kernel(*(argument.values for argument in arguments))
        return Vector(values, merged(*(argument.failures for argument in arguments)))

    def attempt(self, kernel: Kernel, why: Why, *arguments: Vector) -> Vector:
        """Compute values with a kernel that has none for some arguments.

        Args:
            kernel: Raises pyarrow.ArrowInvalid, or gives null, where one of the rows has no value.
            why: The reason, given the arguments of one record as Python's values.
            arguments: Arguments of the kernel; where one is null, the value is null.
        """
        inputs = tuple(argument.values for argument in arguments)
        if not any(isinstance(each, pa.Array) for each in inputs):
            inputs = (pa.repeat(inputs[0], len(self)), *inputs[1:])
        values = _each_possible(kernel, inputs)
        before = merged(*(argument.failures for argument in arguments))
        mask = _without_value(values, inputs)
        if mask is None:
            return Vector(values, before)
        self._failures.append(_Failure(why, inputs))
        found = np.where(mask, np.int32(len(self._failures)), np.int32(0))
        return Vector(values, merged(before, found))

    def choose(self, condition: Vector, chosen: Vector, other: Vector) -> Vector:
        """The values of chosen where a condition is true, else those of other; only values that are taken can fail."""
        truth = self.truth(condition.values)
        values = pc.if_else(truth, chosen.values, other.values)
        if condition.failures is chosen.failures is other.failures is None:
            return Vector(values)
        none = np.zeros(len(self), np.int32)
        picked = np.where(
            self.spread(truth).to_numpy(zero_copy_only=False),
            none if chosen.failures is None else chosen.failures,
            none if other.failures is None else other.failures,
        )
        return Vector(values, merged(condition.failures, picked))

    def truth(self, values: Any) -> Any:
        """Truth values without nulls: a null is not true."""
        return pc.fill_null(values, False)

    def spread(self, values: Any) -> Any:
        """The values as an array of one value per record."""
        return pa.repeat(values, len(self)) if isinstance(values, pa.Scalar) else values


def merged(*failures: Codes | None) -> Codes | None:
    found = [codes for codes in failures if codes is not None]
    if not found:
        return None
    first = found[0]
    for codes in found[1:]:
        first = np.where(first != 0, first, codes)
    return first if first.any() else None


def _without_value(values: Any, inputs: Sequence[Any]) -> npt.NDArray[np.bool_] | None:
    """Where the value is null and no argument is; None where there is no such row."""
    if not isinstance(values, pa.Array) or not values.null_count:
        return None
    arrays = [each for each in inputs if isinstance(each, pa.Array)]
    if len(arrays) == 1 and arrays[0].null_count == values.null_count:
        return None
    if any(isinstance(each, pa.Scalar) and not each.is_valid for each in inputs):
        return None
    mask = pc.is_null(values)
    for array in arrays:
        mask = pc.and_(mask, pc.is_valid(array))
    found: npt.NDArray[np.bool_] = mask.to_numpy(zero_copy_only=False)
    return found if found.any() else None


def _each_possible(kernel: Kernel, inputs: tuple[Any, ...]) -> Any:
    """The kernel's values, with null where it fails; divides the rows until those that fail are isolated."""
    try:
        return kernel(*inputs)
    except pa.ArrowInvalid:
        count = next(len(each) for each in inputs if isinstance(each, pa.Array))
        if count <= 1:
            return _null_like(kernel, inputs)
    parts = (tuple(_slice(each, part) for each in inputs) for part in parts_of(range(count)))
    return pa.concat_arrays([_each_possible(kernel, part) for part in parts])


def _null_like(kernel: Kernel, inputs: tuple[Any, ...]) -> Any:
    kind = kernel(*(_slice(each, range(0)) for each in inputs)).type
    return pa.nulls(1, kind)


def _slice(values: Any, rows: range) -> Any:
    return values.slice(rows.start, len(rows)) if isinstance(values, pa.Array) else values


def _some(values: Any, rows: npt.NDArray[np.int64]) -> list[Any]:
    if isinstance(values, pa.Scalar):
        return [readable_value(values)] * len(rows)
    taken = values.take(pa.array(rows))
    try:
        return [*taken.to_pylist()]
    except (ValueError, OverflowError):
        return [*map(readable_value, taken)]


def with_equal_keys(keys: pa.Table, names: Sequence[str]) -> pa.Table:
    """Give equal values of columns equal bits, by which they are grouped: one zero and one NaN."""
    for index, field in enumerate(keys.schema):
        if field.name in names and (pa.types.is_float32(field.type) or pa.types.is_float64(field.type)):
            column = keys.column(index)
            # Adding zero makes a negative zero a positive one.
            same = pc.if_else(pc.is_nan(column), pa.scalar(math.nan, field.type), pc.add(column, 0.0))
            keys = keys.set_column(index, field, same.cast(field.type))
    return keys


Compute = Callable[[Rows], Vector]


@frozen
class Bound:
    """An expression with its type."""

    node: Node
    type: pa.DataType
    compute: Compute

    @property
    def constant(self) -> Any:
        """The value of a written constant, else None."""
        return self.node.value if isinstance(self.node, Constant) else None


@frozen
class CallSite:
    """A place in an expression where a function is used."""

    text: str
    node: Node
    name: str

    def error(self, reason: str, where: Bound | None = None) -> ExpressionError:
        """A mistake at an argument, or at the function itself."""
        return ExpressionError(reason, self.text, (self.node if where is None else where.node).position)

    def require(
        self, argument: Bound, fits: Callable[[Any], bool], what: str, kind: pa.DataType | None = None
    ) -> Bound:
        """The argument, where it has a type that the function takes.

        Args:
            argument: The argument.
            fits: Whether the function takes a type.
            what: The types that it takes, in words.
            kind: The type of a null without a type; None leaves it without one.
        """
        if pa.types.is_null(argument.type):
            return argument if kind is None else typed(argument, kind)
        if not fits(argument.type):
            hint = ""
            if argument.type == TEXT:
                hint = "; cast it, or give the column a type where it is read"
            raise self.error(f"{self.name} takes {what}, and this is {name_of(argument.type)}{hint}", argument)
        return argument

    def text_of(self, argument: Bound) -> Bound:
        return self.require(argument, pa.types.is_string, "text", TEXT)

    def written_text(self, argument: Bound, what: str) -> str:
        """The text of an argument that must be written in the expression."""
        if not isinstance(argument.constant, str):
            raise self.error(f"{what} of {self.name} must be a text in quotes, not computed", argument)
        return argument.constant

    def written_number(self, argument: Bound, what: str) -> int:
        """The whole number of an argument that must be written in the expression."""
        value = argument.constant
        if not (isinstance(value, int) and is_whole(argument.type)):
            raise self.error(f"{what} of {self.name} must be a whole number, not computed", argument)
        return value


def typed(null: Bound, kind: pa.DataType) -> Bound:
    """A null constant with a type."""
    scalar = pa.scalar(None, kind)
    return Bound(null.node, kind, lambda rows: Vector(scalar))


def shared(value: Bound) -> Bound:
    """An expression that others read several times, and that is computed once: nested ones would double the work."""
    return Bound(value.node, value.type, lambda rows: rows.once(value.compute))


def applied(site: CallSite, kind: pa.DataType, kernel: Callable[..., Any], *arguments: Bound) -> Bound:
    """An expression whose kernel has a value for all arguments."""
    return Bound(site.node, kind, lambda rows: rows.apply(kernel, *(each.compute(rows) for each in arguments)))


def attempted(site: CallSite, kind: pa.DataType, kernel: Callable[..., Any], why: Why, *arguments: Bound) -> Bound:
    """An expression whose kernel has no value for some arguments; see Rows.attempt."""
    return Bound(site.node, kind, lambda rows: rows.attempt(kernel, why, *(each.compute(rows) for each in arguments)))


Argument = Callable[[CallSite, Bound], Any]
"""Checks an argument: gives the expression that is computed, or the value of one that must be written."""


def function(kind: pa.DataType, kernel: Callable[..., Any], *arguments: Argument) -> Callable[..., Bound]:
    """A function whose kernel has a value for all arguments, and takes the written ones behind the computed ones."""

    def bind(site: CallSite, *given: Bound) -> Bound:
        checked = [check(site, argument) for check, argument in zip(arguments, given, strict=False)]
        computed = [argument for argument in checked if isinstance(argument, Bound)]
        written = [argument for argument in checked if not isinstance(argument, Bound)]
        return applied(site, kind, lambda *values: kernel(*values, *written), *computed)

    return bind


def written_text(what: str) -> Argument:
    return lambda site, argument: site.written_text(argument, what)
