"""How the state of operators, and tuples, are written into a checkpoint, and read again unchanged."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, ClassVar, NoReturn, Self

import msgspec
from msgspec import msgpack

from dagflow.api.partitioning import instant_of
from dagflow.errors import ANOTHER_CHECKPOINT, JournalError, cut_text, text_of
from dagflow.frozen import frozen

_MAX_SHOWN = 200


@frozen
class Difference:
    """A part of a value that is not restored unchanged.

    Attributes:
        path: The part, as "counts[3]"; "" for the value itself.
        given: Its original value.
    """

    path: str
    given: Any
    restored: Any

    def __str__(self) -> str:
        given, restored = shown(self.given), shown(self.restored)
        part = f"{self.path} " if self.path else ""
        return f"{part}{given} would come back as {restored}"


def difference(given: Any, restored: Any, path: str = "") -> Difference | None:
    """The first part of a value that differs after it was written and read; None where all parts are equal.

    A NaN is equal to a NaN, unless it is a key or in a set. Times with time zones are equal if they are the same
    instant.
    """
    if _are_equal(given, restored):
        return None
    parts = _parts(given, restored)
    if parts is None:
        return Difference(path.removeprefix("."), given, restored)
    for name, one, other in parts:
        if (found := difference(one, other, path + name)) is not None:
            return found
    return None


def _are_equal(given: Any, restored: Any) -> bool:
    try:
        if given == restored:
            return True
    except Exception:  # the class may be an author's
        return False
    if isinstance(given, float | Decimal) and isinstance(restored, float | Decimal):
        return bool(given != given and restored != restored)
    if isinstance(given, datetime) and isinstance(restored, datetime) and (instant := instant_of(given)) is not None:
        return instant == instant_of(restored)
    return False


def _parts(given: Any, restored: Any) -> Iterable[tuple[str, Any, Any]] | None:
    """Parts that are compared one by one; None where there are none."""
    for kind in (list, tuple):
        if isinstance(given, kind) and isinstance(restored, kind) and len(given) == len(restored):
            return [(f"[{at}]", *both) for at, both in enumerate(zip(given, restored, strict=True))]
    if isinstance(given, Mapping) and isinstance(restored, Mapping) and given.keys() == restored.keys():
        return [(f"[{shown(key)}]", value, restored[key]) for key, value in given.items()]
    if type(given) is not type(restored):
        return None
    if is_dataclass(given):
        names = [each.name for each in fields(given) if each.compare]
    elif isinstance(given, msgspec.Struct):
        names = [*given.__struct_fields__]
    else:
        # A class without a comparison of its own gives nothing to compare.
        return [] if getattr(type(given), "__eq__", None) is object.__eq__ else None
    return [(f".{name}", getattr(given, name), getattr(restored, name)) for name in names]


def shown(value: Any) -> str:
    """A value as Python shows it, cut where it is long; its type where its class cannot be shown."""
    try:
        return cut_text(repr(value), _MAX_SHOWN)
    except Exception:  # the class may be an author's
        return f"a {type(value).__name__}"


def shown_type(kind: Any) -> str:
    """A type as an author writes it."""
    return kind.__name__ if isinstance(kind, type) else str(kind)


def encode_values(values: Mapping[Any, Any], value_type: Any) -> bytes:
    """The values of a mapping as MessagePack; decode_values() returns equal ones.

    Raises:
        ValueError: A value cannot be written, or differs when it is read; the message has its key.
    """
    held = list(values.values())
    try:
        data = msgpack.encode(held)
        restored = decode_values(data, value_type)
    except Exception:  # the class of a value may be an author's
        for key, value in values.items():
            _require_kept(key, value, value_type)
        raise
    if not _are_equal(held, restored):
        for key, value, other in zip(values, held, restored, strict=True):
            if not _are_equal(value, other) and (found := difference(value, other)) is not None:
                _refuse(key, value_type, str(found))
    return data


def decode_values(data: bytes | msgspec.Raw, value_type: Any) -> list[Any]:
    """The values that were given to encode_values()."""
    values: list[Any] = msgpack.decode(data, type=list[value_type])
    return values


def _require_kept(key: Any, value: Any, value_type: Any) -> None:
    try:
        msgpack.decode(msgpack.encode(value), type=value_type)
    except Exception as error:  # the class of the value may be an author's
        _refuse(key, value_type, f"{shown(value)}: {text_of(error)}")


def _refuse(key: Any, value_type: Any, why: str) -> NoReturn:
    raise ValueError(
        f"self.state has a value for key {shown(key)} that value_type = {shown_type(value_type)} does not keep, {why}; "
        "let value_type say what all values are"
    )


@frozen
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
        """The tuples that to_table was given; a JournalError says what in them this program does not know."""
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
        f"the checkpoint holds {what}", hint=f"run the version of dagflow that wrote it, or {ANOTHER_CHECKPOINT}"
    )
