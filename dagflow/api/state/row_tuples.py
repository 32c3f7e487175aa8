"""Tuples as rows of named values: how plans, and operators' states, keep many tuples of one class."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import msgspec

from dagflow.errors import ANOTHER_CHECKPOINT, JournalError


@dataclass(frozen=True, slots=True)
class RowTable:
    """Tuples of one class as rows of values.

    Attributes:
        version: The row_version of the class when the rows were written.
        fields: The names of a row's values, in order.
        rows: The values of each row. Values at the end of a row that are left out are the defaults of their fields.
    """

    version: int
    fields: list[str]
    rows: list[list[Any]]


class RowTuple(ABC):
    """Base of a tuple class that is kept as rows of named values, of which one row may stand for many tuples."""

    __slots__ = ()

    row_type: ClassVar[Any]
    """The NamedTuple of a row: text, numbers and flags. A field that is added later needs a default."""

    row_version: ClassVar[int] = 1
    """Version of row_type: raised when a field, or the default of one, gets another meaning."""

    @classmethod
    @abstractmethod
    def to_rows(cls, tuples: Iterable[Self]) -> Iterable[Any]:
        """The tuples, in order, as rows: sequences of the values of row_type."""

    @classmethod
    @abstractmethod
    def from_rows(cls, rows: Iterable[Any]) -> Iterator[Self]:
        """The tuples that to_rows was given; the rows are instances of row_type."""

    @classmethod
    def to_table(cls, tuples: Iterable[Self]) -> RowTable:
        """The tuples, in order, with the names of their values."""
        fields: tuple[str, ...] = cls.row_type._fields
        defaults = tuple(cls.row_type._field_defaults.values())
        rows = cls.to_rows(tuples)
        values = map(list, rows) if not defaults else _without_defaults(rows, len(fields) - len(defaults), defaults)
        return RowTable(cls.row_version, list(fields), list(values))

    @classmethod
    def from_table(cls, table: RowTable) -> Iterator[Self]:
        """The tuples that to_table was given.

        Raises:
            JournalError: The rows are of another version, or have other fields or values, than this program knows.
        """
        require_version(cls, table.version, cls.row_version)
        fields: tuple[str, ...] = cls.row_type._fields
        rows: Iterable[Any] = table.rows
        if tuple(table.fields) != fields:
            defaults: dict[str, Any] = cls.row_type._field_defaults
            require_fields(cls, table.fields, [name for name in fields if name not in defaults], defaults)
            named = (defaults | dict(zip(table.fields, row, strict=False)) for row in rows)
            rows = [[row[name] for name in fields] for row in named]
        try:
            typed = msgspec.convert(rows, list[cls.row_type])  # type: ignore[name-defined]  # known at run time only
        except msgspec.ValidationError as error:
            raise unknown_tuples(f"{cls.__name__} of another form than this program knows: {error}") from error
        return cls.from_rows(typed)


def _without_defaults(rows: Iterable[Any], required: int, defaults: tuple[Any, ...]) -> Iterator[list[Any]]:
    """Rows without the values at the end of each that are the defaults of their fields."""
    from_last = defaults[::-1]
    for row in rows:
        if row[required:] == defaults:
            yield list(row[:required])
            continue
        values = list(row)
        for default in from_last:
            if values[-1] != default:
                break
            values.pop()
        yield values


def require_version(kind: type, version: int, known: int) -> None:
    """Refuse tuples of a version that this program does not know."""
    if version != known:
        raise unknown_tuples(f"{kind.__name__} of version {version}, and this program knows version {known}")


def require_fields(kind: type, given: Iterable[str], required: Iterable[str], optional: Iterable[str] = ()) -> None:
    """Refuse tuples whose fields are others than this program knows."""
    names, needed = set(given), set(required)
    if unknown := sorted(names - needed.union(optional)):
        raise unknown_tuples(f"{kind.__name__} with a field '{unknown[0]}', which this program does not know")
    if missing := sorted(needed - names):
        raise unknown_tuples(f"{kind.__name__} without the field '{missing[0]}', which this program needs")


def unknown_tuples(what: str) -> JournalError:
    """The error for tuples of a checkpoint that this program cannot read."""
    return JournalError(
        f"the checkpoint holds {what}",
        url="journal",
        hint=f"run the version of dagflow that wrote it, or {ANOTHER_CHECKPOINT}",
    )
