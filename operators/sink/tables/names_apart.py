"""Checks for names that a table treats as one, because they differ in case only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa

from dagflow.errors import DagflowError
from operators.sink.tables.base import Table
from operators.sink.tables.nested_types import parts_of

_OTHERS = "let the columns of a JSON reader name those that are wanted, or a Select before the table drop or rename one"


def require_columns_apart(table: Table, names: Iterable[str], causes: Mapping[str, str]) -> None:
    """Refuse columns whose names differ in case only.

    Args:
        table: The table.
        names: The names of its columns.
        causes: Place of the first record that asked for a column, by column, as far as that is known.

    Raises:
        DagflowError: Two names differ in case only.
    """
    for first, second in _alike(names):
        name = second if second in causes else first
        raise DagflowError(
            f"{table.name} cannot have both columns '{first}' and '{second}': case does not count"
            + _place(name, causes),
            hint=f"leave one of them out, or give it another name: {_OTHERS}",
        )


def without_alike(columns: pa.Schema) -> pa.Schema:
    """Columns without those whose names differ in case only from that of an earlier one."""
    later = {second for _, second in _alike(columns.names)}
    return pa.schema([column for column in columns if column.name not in later])


def require_members_apart(table: Table, columns: pa.Schema, causes: Mapping[str, str]) -> None:
    """Refuse columns with members whose names differ in case only.

    Args:
        table: The table.
        columns: Its columns.
        causes: As for columns.

    Raises:
        DagflowError: A column has two such members.
    """
    for column in columns:
        for first, second in _members_alike(column.type):
            text = f"{table.name} cannot have both members '{first}' and '{second}' in column '{column.name}'"
            raise _members_error(f"{text}: case does not count", column.name, causes)


def require_paths_apart(
    table: Table, columns: pa.Schema, partition_names: Mapping[str, str], causes: Mapping[str, str]
) -> None:
    """Refuse columns whose names are those of members, as `a.b` for member b of column a, or of partitions.

    Args:
        table: The table.
        columns: Its columns.
        partition_names: The name of each partition field with its description, without fields that are called as their
            column.
        causes: As for columns.

    Raises:
        DagflowError: Two fields, one of which is a member, have one name, or a field has the name of a partition.
    """
    owners: dict[str, str] = {}
    for column in columns:
        for path in _paths(column.name, column.type):
            if path in partition_names:
                raise DagflowError(
                    f"{table.name} cannot have a column '{path}' and be partitioned by {partition_names[path]}, which "
                    f"it calls '{path}', too{_place(column.name, causes)}",
                    hint=f"leave the column out, or give it another name: {_OTHERS}",
                )
            if path in owners:
                raise _path_error(table, path, owners[path], column.name, causes)
            owners[path] = column.name


def _path_error(table: Table, path: str, first: str, second: str, causes: Mapping[str, str]) -> DagflowError:
    """The error of two columns, or of one, with two fields of one name, one of which is a member."""
    text = f"{table.name} cannot have two fields called '{path}', one of which is a member, in "
    if first == second:
        return _members_error(f"{text}column '{first}'", first, causes)
    name = second if second in causes else first
    return DagflowError(
        f"{text}columns '{first}' and '{second}'{_place(name, causes)}",
        hint=f"leave one of them out, or give it another name: {_OTHERS}",
    )


def _members_error(text: str, column: str, causes: Mapping[str, str]) -> DagflowError:
    """The error of two members of one column."""
    return DagflowError(
        f"{text}{_place(column, causes)}",
        hint=f"leave one of them out: let the columns of a JSON reader give '{column}' as a struct<...> of the members "
        "that are wanted, or a Select before the table drop the column",
    )


def _place(column: str, causes: Mapping[str, str]) -> str:
    return f"; the first record with '{column}' is at {causes[column]}" if causes.get(column) else ""


def _alike(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The pairs of names that differ in case only."""
    by_letters: dict[str, str] = {}
    for name in names:
        if (other := by_letters.setdefault(name.lower(), name)) != name:
            yield other, name


def _members_alike(kind: pa.DataType) -> Iterator[tuple[str, str]]:
    """The pairs of names of members, at any depth of a type."""
    parts = [kind.field(index) for index in range(kind.num_fields)]
    if pa.types.is_struct(kind):
        yield from _alike(part.name for part in parts)
    for part in parts:
        yield from _members_alike(part.type)


def _paths(name: str, kind: pa.DataType) -> Iterator[str]:
    """The names of a column and of its members, at any depth, as Iceberg has them."""
    yield name
    for part in parts_of(kind):
        step = part.name if pa.types.is_struct(kind) or pa.types.is_map(kind) else "element"
        yield from _paths(f"{name}.{step}", part.type)
