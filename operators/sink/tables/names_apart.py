"""Names that tables take for one, because they differ in case only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

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


def _place(column: str, causes: Mapping[str, str]) -> str:
    return f"; the first record with '{column}' is at {causes[column]}" if causes.get(column) else ""


def _alike(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The pairs of names that differ in case only."""
    by_letters: dict[str, str] = {}
    for name in names:
        if (other := by_letters.setdefault(name.lower(), name)) != name:
            yield other, name
