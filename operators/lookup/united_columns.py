"""The columns of a table that consists of files: all columns of all files, each in a type for the values of all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from dagflow.errors import DagflowError
from operators.expressions.sql_types import as_decimal, normal_type
from operators.sink.tables.nested_types import nulls_of, of_parts, parts_of, table_type
from operators.sink.tables.type_widening import common_type


class UnitedColumns:
    """Converts the rows of each file to the columns of all files.

    Args:
        table: Name of the table in messages.
        files: Name of each file in messages, and its columns.
    """

    def __init__(self, table: str, files: Iterable[tuple[str, pa.Schema]]) -> None:
        self._table = table
        self._types: dict[str, pa.DataType] = {}
        self._files: dict[str, str] = {}
        self._clashes: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        for file, schema in files:
            for field in schema:
                self._include(file, field)
                self._counts[field.name] = max(self._counts.get(field.name, 0), schema.names.count(field.name))

    def _include(self, file: str, field: pa.Field) -> None:
        name, kind = field.name, field.type
        there = self._types.setdefault(name, kind)
        if (united := _united(there, kind)) is None:
            first = self._files[name]
            self._clashes.setdefault(name, f"column '{name}' is {there} in {first} and {kind} in {file}")
        elif name not in self._files or united != there:
            self._types[name], self._files[name] = united, file

    @property
    def schema(self) -> pa.Schema:
        """The columns; a name occurs as often as in the file that has it most often."""
        fields = [[pa.field(name, kind)] * self._counts[name] for name, kind in self._types.items()]
        return pa.schema([field for same in fields for field in same])

    def require_united(self, names: Sequence[str]) -> None:
        """Refuse columns without a type for the values of all files.

        Raises:
            DagflowError: Two files have types of a column that no common type unites.
        """
        for name in names:
            if name in self._clashes:
                raise _refusal(f"{self._table}: {self._clashes[name]}")

    def fitted(self, file: str, rows: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
        """Rows of a file with some of the columns, with nulls for those that the file lacks.

        Args:
            file: Name of the file in messages.
            rows: The rows, with those of the columns that the file has.
            names: The columns.

        Raises:
            DagflowError: A value does not fit into the type of its column.
        """
        columns = [
            self._cast(file, name, rows.column(name)) if name in rows.schema.names else nulls_of(len(rows), kind)
            for name, kind in ((name, self._types[name]) for name in names)
        ]
        return pa.RecordBatch.from_arrays(columns, names=list(names))

    def _cast(self, file: str, name: str, values: pa.Array) -> Any:
        kind = self._types[name]
        if values.type == kind:
            return values
        try:
            return values.cast(kind)
        except pa.ArrowInvalid as error:
            raise _refusal(
                f"{self._table}: column '{name}' is {values.type} in {file}, with values that {kind} does not have, "
                f"the type that takes those of the other files: {error}"
            ) from error


def _refusal(message: str) -> DagflowError:
    return DagflowError(message, hint="write the files again, with one type in all of them")


def _united(kind: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """The type for the values of two types; None where there is none, or only one that rounds them."""
    if kind == other:
        return kind
    kind, other = table_type(kind, plain_type), table_type(other, plain_type)
    own, others = ({part.name: part.type for part in parts_of(each)} for each in (kind, other))
    if not own or not others or kind.id != other.id:
        return _united_values(kind, other)
    parts = []
    for name in {**own, **others}:
        if (found := _united(own.get(name, pa.null()), others.get(name, pa.null()))) is None:
            return None
        parts.append(pa.field(name, found))
    return of_parts(kind, parts)


def _united_values(kind: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    if (common := common_type(kind, other)) is not None:
        return common
    for digits, number in ((kind, other), (other, kind)):
        # Arrow would convert decimals to doubles, which rounds them, and gives whole numbers too few digits.
        if pa.types.is_decimal(digits) and not pa.types.is_null(number):
            return common_type(digits, as_decimal(normal_type(number))) if pa.types.is_integer(number) else None
    try:
        schemas = [pa.schema([pa.field("", each)]) for each in (kind, other)]
        return pa.unify_schemas(schemas, promote_options="permissive").field(0).type
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return None


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type of a column in records, without dictionaries and large types."""
    if pa.types.is_dictionary(kind):
        return plain_type(kind.value_type)
    plain: dict[pa.DataType, pa.DataType] = {
        pa.large_string(): pa.string(),
        pa.string_view(): pa.string(),
        pa.large_binary(): pa.binary(),
    }
    return plain.get(kind, kind)
