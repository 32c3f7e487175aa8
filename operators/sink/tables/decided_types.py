"""Decides the types of columns by how many values have which, in an order that cuts and tasks do not change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from operators.found_values import DOUBLE, INT64, LARGE, Census, number_type, type_of_most
from operators.sink.tables.fitted_columns import is_wider
from operators.sink.tables.nested_types import WiderType
from operators.sink.tables.type_widening import common_type

First = tuple[tuple[bool, str, int], int]
"""The key of a place, see place_key(), and a position."""


def place_key(place: str) -> tuple[bool, str, int]:
    """A key that orders places by file and offset; unknown ones come last."""
    file, _, offset = place.rpartition(":")
    return not place, file, int(offset or 0)


@dataclass(slots=True)
class Proposal:
    """What a task has seen of columns that the driver decides about.

    Attributes:
        census: The values of columns that are new to the task, and those that do not fit into a known one, by column.
        firsts: Where a column has its first value: the key of the place, and the position in the record, by column.
        aside: The types for which values were put aside, by column; None where it had none.
        is_bare: Whether records had no column that a file can hold.
        rescued: How many values were rescued of a column of the table, by column.
        filled: Columns that have a value in a row.
    """

    census: dict[str, Census] = field(default_factory=dict)
    firsts: dict[str, First] = field(default_factory=dict)
    aside: dict[str, set[pa.DataType | None]] = field(default_factory=dict)
    is_bare: bool = False
    rescued: Counter[str] = field(default_factory=Counter)
    filled: set[str] = field(default_factory=set)

    def include(self, name: str, census: Census) -> None:
        """Count values of a column."""
        self.census.setdefault(name, Census()).include(census)

    def put_aside(self, name: str, kind: pa.DataType | None) -> None:
        """Note that values of a column were put aside."""
        self.aside.setdefault(name, set()).add(kind)

    def add(self, other: Proposal) -> None:
        """Include what another one has."""
        for name, census in other.census.items():
            self.include(name, census)
        for name, first in other.firsts.items():
            self.firsts[name] = min(first, self.firsts.get(name, first))
        for name, kinds in other.aside.items():
            self.aside.setdefault(name, set()).update(kinds)
        self.is_bare = self.is_bare or other.is_bare
        self.rescued.update(other.rescued)
        self.filled.update(other.filled)

    def is_met_by(self, types: Mapping[str, pa.DataType]) -> bool:
        """Whether values would be put aside with these types of columns as they were."""
        return all(kind == types.get(name) for name, kinds in self.aside.items() for kind in kinds)


def new_type(census: Census, *, is_key: bool = False) -> pa.DataType | None:
    """The type of a new column: that of most of its values, or a wider one that takes others; None for none.

    Args:
        census: The values.
        is_key: Whether rows are identified, or partitioned, by them.
    """
    census = census.of_keys() if is_key else census
    kind = type_of_most(census, _joined_numbers)
    if kind is None or pa.types.is_nested(kind):
        return kind
    others = Counter({written: 0 for written, _ in census.leaves})
    return _widest(kind, others)


def _joined_numbers(counts: Counter[pa.DataType]) -> pa.DataType:
    if {*counts} <= {INT64, LARGE, DOUBLE}:
        return number_type(counts)
    most = min(counts, key=lambda kind: (-counts[kind], str(kind)))
    return _widest(most, counts)


def _widest(kind: pa.DataType, others: Counter[pa.DataType]) -> pa.DataType:
    """A type that takes the values of others, as far as there is one."""
    before = None
    while kind != before:
        before = kind
        for other in sorted(others, key=str):
            if {kind, other} != {INT64, LARGE}:
                kind = common_type(kind, other) or (other if is_wider(other, kind) else kind)
    return kind


def wider_for(there: pa.DataType, census: Census, wider: WiderType | None, *, takes_members: bool) -> pa.DataType:
    """The type to which a column is widened for values that do not fit; its own where there is no wider one.

    Args:
        there: The type of the column.
        census: The values.
        wider: Gives wider types for values that are not nested; None where columns keep their types.
        takes_members: Whether structs get members that they lack, after their own and in the order of their names.
    """
    if pa.types.is_struct(there):
        parts = [
            part.with_type(wider_for(part.type, census.members[part.name], wider, takes_members=takes_members))
            if part.name in census.members
            else part
            for part in there
        ]
        own = {part.name for part in there}
        new = {name: new_type(member) for name, member in sorted(census.members.items()) if name not in own}
        more = [pa.field(name, kind) for name, kind in new.items() if kind is not None and takes_members]
        return pa.struct([*parts, *more])
    if pa.types.is_list(there):
        items = census.items
        return (
            there
            if items is None
            else pa.list_(pa.field("item", wider_for(there.value_type, items, wider, takes_members=takes_members)))
        )
    before = None
    while wider is not None and there != before:
        before = there
        for kind in sorted({narrowest for _, narrowest in census.leaves}, key=str):
            there = wider(there, kind) or there
    return there
