"""Names that tables take for one, because they differ in case only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa

from dagflow.errors import DagflowError
from operators.sink.tables.base import Table


def require_columns_apart(table: Table, names: Iterable[str], causes: Mapping[str, str]) -> None:
    """Refuse columns whose names differ in case only.

    Args:
        table: The table.
        names: The names of its columns.
        causes: Where the first record is that asked for a column, by column; as far as that is known.

    Raises:
        DagflowError: There are two.
    """
    for first, second in _alike(names):
        name = second if second in causes else first
        raise DagflowError(
            f"{table.name} cannot have both columns '{first}' and '{second}': case does not count"
            + _place(name, causes),
            hint="leave one of them out, or give it another name: let the columns of a JSON reader name those that are "
            "wanted, or a Select before the table drop or rename one",
        )


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
            raise DagflowError(
                f"{table.name} cannot have both members '{first}' and '{second}' in column '{column.name}': case does "
                f"not count{_place(column.name, causes)}",
                hint=f"leave one of them out: let the columns of a JSON reader give '{column.name}' as a struct<...> "
                "of the members that are wanted, or a Select before the table drop the column",
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
