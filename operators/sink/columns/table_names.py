"""The names of a table's columns and of their members: which more the table can have."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence

import pyarrow as pa

from dagflow.api.columns.column_typing import type_name
from dagflow.errors import DagflowError
from operators.column_names import shown_name, why_no_name
from operators.rescued_values import RESCUED
from operators.sink.columns.nested_types import of_parts, parts_of

_METADATA = {"file": pa.string(), "offset": pa.int64(), "window": pa.int64()}
METADATA = {name: pa.field(f"_dagflow_{name}", kind) for name, kind in _METADATA.items()}
"""The columns that say where a record is from, by what metadata_columns calls them."""

MOST_NAMES = 1 << 14
"""Most columns of a table, members included, with which it gets another one: names that are data have no end."""

Path = tuple[str, ...]
"""The names of a column, and of members in it from the outside to the inside."""

Spelling = Callable[[Path], Hashable]
"""Gives what a kind of table distinguishes fields by; see Table.spelled."""

_OTHERS = "let the columns of a JSON reader name those that are wanted, or a Select before the table drop or rename one"


def lower_case(path: Path) -> Hashable:
    """Fields are distinguished by their names on each level, where case does not count."""
    return tuple(name.lower() for name in path)


class TableNames:
    """The names of a table's columns and of their members, and those that are kept for other columns.

    Args:
        spelled: Gives what the kind of table distinguishes fields by.
        kept: Columns that the app names, which come before others that are spelled alike.
        taken: Names that no column of the table may have, each with what the table cannot have then.

    Attributes:
        why_no_parts: Why the table has no structs, lists and maps; "" if it may have them.
        most_names: Most columns with which the table gets another one, members included.
        most_bytes: Most bytes of a name; None where only its characters are limited.
    """

    why_no_parts = ""
    most_names = MOST_NAMES
    most_bytes: int | None = None

    def __init__(
        self,
        spelled: Spelling,
        columns: Iterable[pa.Field] = (),
        kept: Iterable[str] = (),
        taken: Mapping[str, str] | None = None,
    ) -> None:
        self._spelled = spelled
        self._owners: dict[Hashable, Path] = {}
        self._taken = {spelled((name,)): why for name, why in (taken or {}).items()}
        # The columns of the table come first: a table of another program may have any.
        for column in columns:
            self.add(column)
        for name in (RESCUED, *(column.name for column in METADATA.values()), *kept):
            self._owners.setdefault(spelled((name,)), (name,))

    def add(self, column: pa.Field) -> None:
        for path in _paths((column.name,), column.type):
            self._owners.setdefault(self._spelled(path), path)

    def takes(self, column: pa.Field) -> bool:
        """Whether the table can have a column, which is then one of its names."""
        if self.why_not(column):
            return False
        self.add(column)
        return True

    def why_not(self, column: pa.Field) -> str:
        """Why the table cannot have a column, as what it cannot have; "" if it can."""
        own: dict[Hashable, Path] = {}
        if self.why_no_parts and parts_of(column.type):
            return f"{_shown((column.name,))} of {type_name(column.type)}: {self.why_no_parts}"
        for path in _paths((column.name,), column.type):
            if why := self._why_not_field(path, own):
                return why
            own[self._spelled(path)] = path
        return ""

    def _why_not_field(self, path: Path, own: Mapping[Hashable, Path]) -> str:
        if why := why_no_name(path[-1]):
            return f"{_shown(path)}: {why}"
        if self.most_bytes and len(path[-1].encode()) > self.most_bytes:
            return f"{_shown(path)}: a name has {self.most_bytes} bytes at most"
        key = self._spelled(path)
        if why := self._taken.get(key, ""):
            return why
        if key not in self._owners and self._is_full(own):
            return f"{_shown(path)}: it has {self.most_names:,} columns and members"
        other = own.get(key, self._owners.get(key, path))
        if other == path and key not in own:
            return ""
        if len(path) != len(other):
            columns = sorted({other[0], path[0]}, key=[other[0], path[0]].index)
            where = " and ".join(map(shown_name, columns))
            owner = "columns" if len(columns) > 1 else "column"
            return f"two fields called {shown_name('.'.join(path))}, one of which is a member, in {owner} {where}"
        names = f"{shown_name(other[-1])} and {shown_name(path[-1])}"
        if len(path) == 1:
            return f"both columns {names}: case does not count"
        return f"both members {names} in column {shown_name(path[0])}: case does not count"

    def _is_full(self, own: Mapping[Hashable, Path]) -> bool:
        return len(self._owners) + len(own) >= self.most_names

    def reduced(self, name: str, kind: pa.DataType, known: pa.DataType | None = None) -> pa.DataType | None:
        """The type of a column without members that the table cannot have; None if nothing is left of it.

        Members of its type in the table, where that is known, come before others that are spelled alike.
        """
        own: dict[Hashable, Path] = {}
        if known is not None:
            own = {self._spelled(path): path for path in _paths((name,), known)}
        return self._reduced((name,), kind, own)

    def _reduced(self, path: Path, kind: pa.DataType, own: dict[Hashable, Path]) -> pa.DataType | None:
        if self.why_no_parts and parts_of(kind):
            return None
        parts = []
        for part in parts_of(kind):
            step = (*path, _step(kind, part))
            key = self._spelled(step)
            is_free = own.get(key, step) == step and self._owners.get(key, step) == step and key not in self._taken
            is_free = is_free and (key in own or key in self._owners or not self._is_full(own))
            if pa.types.is_struct(kind) and (why_no_name(part.name) or not is_free):
                continue
            own[key] = step
            if (inner := self._reduced(step, part.type, own)) is not None:
                parts.append(part.with_type(inner))
        if not parts_of(kind):
            return kind
        is_whole = pa.types.is_struct(kind) or len(parts) == len(parts_of(kind))
        return of_parts(kind, parts) if parts and is_whole else None


def require_names(names: TableNames, table: str, new: Iterable[pa.Field], causes: Mapping[str, str]) -> None:
    """Refuse new columns that a table cannot have, with the places in causes; the others are taken note of."""
    for column in new:
        if why := names.why_not(column):
            raise refusal_of(table, column, why, causes.get(column.name, ""))
        names.add(column)


def refusal_of(table: str, column: pa.Field, why: str, at: str) -> DagflowError:
    """The error about a column that a table cannot have, for the reason that TableNames.why_not gives."""
    name = shown_name(column.name)
    text = f"{table} cannot have {why}" + (f"; the first record with {name} is at {at}" if at else "")
    if "member" in why and " in columns " not in why:
        return DagflowError(
            text,
            hint=f"leave one of them out: let the columns of a JSON reader give {name} as a struct<...> of the members "
            "that are wanted, or a Select before the table drop the column; on_new_column: rescue keeps the values",
        )
    return DagflowError(
        text, hint=f"leave one of them out, or give it another name: {_OTHERS}; on_new_column: rescue keeps the values"
    )


def _shown(path: Sequence[str]) -> str:
    owner = f" in column {shown_name(path[0])}" if len(path) > 1 else ""
    return f"a {'member' if owner else 'column'} {shown_name(path[-1])}{owner}"


def _step(kind: pa.DataType, part: pa.Field) -> str:
    """The name of a part of a nested type in a path, as Iceberg has it."""
    return str(part.name) if pa.types.is_struct(kind) or pa.types.is_map(kind) else "element"


def _paths(path: Path, kind: pa.DataType) -> Iterator[Path]:
    """The path of a field, and those of its members at any depth."""
    yield path
    for part in parts_of(kind):
        yield from _paths((*path, _step(kind, part)), part.type)
