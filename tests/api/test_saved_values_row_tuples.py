"""Tuples as rows: each value is found by its name, and what this program does not know is refused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pytest

from dagflow.api.saved_values import RowTable, RowTuple
from dagflow.errors import JournalError


class _Row(NamedTuple):
    name: str
    size: int
    note: str = "none"
    copies: int = 1


@dataclass(frozen=True)
class Thing(RowTuple):
    """A tuple that is one row."""

    name: str
    size: int
    note: str = "none"
    copies: int = 1

    row_type = _Row

    @classmethod
    def to_rows(cls, tuples: Iterable[Thing]) -> Iterable[Any]:
        """A row for each."""
        return (_Row(each.name, each.size, each.note, each.copies) for each in tuples)

    @classmethod
    def from_rows(cls, rows: Iterable[_Row]) -> Iterator[Thing]:
        """What to_rows was given."""
        return (cls(*row) for row in rows)


THINGS = [Thing("a", 1), Thing("b", 2, "some"), Thing("c", 3, "none", 0), Thing("d", 4, "", 5)]
TABLE = RowTable(
    1, ["name", "size", "note", "copies"], [["a", 1], ["b", 2, "some"], ["c", 3, "none", 0], ["d", 4, "", 5]]
)


def test_rows_have_their_names_once_and_end_before_their_defaults() -> None:
    """A value that differs from its default is kept, also where it is 0 or empty."""
    assert Thing.to_table(THINGS) == TABLE
    assert list(Thing.from_table(TABLE)) == THINGS


def test_values_are_found_by_name() -> None:
    """Rows of a program whose class had its fields in another order, or fewer, are read with the defaults."""
    moved = RowTable(1, ["size", "copies", "name"], [[1, 7, "a"], [2, 8, "b"]])
    assert list(Thing.from_table(moved)) == [Thing("a", 1, "none", 7), Thing("b", 2, "none", 8)]


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        (replace(TABLE, version=2), "Thing of version 2, and this program knows version 1"),
        (replace(TABLE, fields=[*TABLE.fields, "colour"]), "Thing with a field 'colour', which this program does not"),
        (replace(TABLE, fields=["name", "note", "copies"]), "Thing without the field 'size', which this program needs"),
        (replace(TABLE, rows=[["a", "1"]]), "Thing of another form than this program knows: Expected `int`, got `str`"),
        (replace(TABLE, rows=[["a"]]), "Thing of another form than this program knows: Expected `array` of length 2"),
    ],
    ids=["another version", "an unknown field", "a missing field", "a value of another type", "a missing value"],
)
def test_what_this_program_does_not_know_is_refused(table: RowTable, problem: str) -> None:
    """With the field, and with what to do."""
    with pytest.raises(JournalError, match=rf"the checkpoint holds {problem}.*\n *run the version of dagflow that"):
        Thing.from_table(table)
