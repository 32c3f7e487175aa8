"""Values of an expression for many records at once, and the failures of records without a value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dagflow.api.columns.json_values import readable_value
from dagflow.storage.columns import parts_of

Codes = npt.NDArray[np.int32]
Kernel = Callable[..., Any]
Why = Callable[..., str]


@dataclass(frozen=True, slots=True)
class Vector:
    """The values of an expression.

    Attributes:
        values: An array of one value per record, or a scalar that stands for all of them.
        failures: For each record 0, or the number of the failure because of which it has no value, whatever stands
            in values; None where no record failed.
    """

    values: Any
    failures: Codes | None = None


@dataclass(frozen=True, slots=True)
class _Failure:
    """A reason why values failed, and the arguments with which they did.

    Attributes:
        why: Gives the reason for the arguments of one record.
        arguments: Arrays or scalars.
    """

    why: Why
    arguments: tuple[Any, ...]


class Rows:
    """The records that an expression is computed of.

    Args:
        columns: The records.
    """

    def __init__(self, columns: pa.RecordBatch) -> None:
        self.columns = columns
        self._failures: list[_Failure] = []
        self._computed: dict[Callable[[Rows], Vector], Vector] = {}

    def __len__(self) -> int:
        return int(self.columns.num_rows)

    def reason(self, code: int, row: int) -> str:
        """Why a record has no value, as a clause.

        Args:
            code: As in Vector.failures.
            row: Position of the record.
        """
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
    """For each record the first of its failures."""
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
    """One null of the type that the kernel gives."""
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
