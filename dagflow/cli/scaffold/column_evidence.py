"""Gathers what the values of columns are, with the record by which each was seen first."""

from __future__ import annotations

import functools
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dagflow.cli.scaffold.column_types import ColumnGuess, guess_column

_TEMPORAL = ("date32", "timestamp", "time")
_MEMBER = re.compile(r"[^,<>:\s](?:[^,<>:]*[^,<>:\s])?")
_INT64 = 1 << 63


@dataclass(slots=True)
class ColumnEvidence:
    """The values of one column.

    Attributes:
        name: Its name.
        kinds: How many values have each type.
        first: Where the first value of each type is, as `file:offset`.
        values: The values that are there.
        is_text: Whether all of them were written as text, as in CSV, so that text takes what has no other type.
    """

    name: str
    is_text: bool
    kinds: Counter[str] = field(default_factory=Counter)
    first: dict[str, str] = field(default_factory=dict)
    values: list[Any] = field(default_factory=list)

    def add(self, value: Any, place: str) -> None:
        """Take in a value; of a missing one nothing is known."""
        if value is None or (self.is_text and value == ""):
            return
        kind = _kind_of_text(value) if self.is_text else _kind_of(value)
        self.kinds[kind] += 1
        self.first.setdefault(kind, place)
        self.values.append(value)

    def guess(self, rows: int) -> ColumnGuess:
        """The type of the column, with the share of rows that have each type, and the first that has another one.

        Args:
            rows: How many rows were looked at.
        """
        found = guess_column(self.name, self.values) if self.is_text else ColumnGuess(self.name, self._json(), "")
        shares = [f"{_share(count, rows)} {kind}" for kind, count in self.kinds.most_common(3)]
        missing = rows - self.kinds.total()
        evidence = ", ".join([*shares, *([f"{_share(missing, rows)} without a value"] if missing else [])])
        others = [kind for kind in self.kinds if not self._is_of(kind, found)]
        if others:
            rarest = min(others, key=lambda kind: self.kinds[kind])
            evidence += f"; the first {rarest} is at {self.first[rarest]}"
        return ColumnGuess(self.name, found.type, evidence, found.null_words)

    def _is_of(self, kind: str, found: ColumnGuess) -> bool:
        """Whether values of a type need no word: they are of the column's type, or nearly all values are of theirs."""
        if not self.is_text:
            return kind == found.type or (kind == "int64" and found.type == "double")
        most = self.kinds.most_common(1)[0][0]
        return found.type != "string" or kind == most or most == "string"

    def _json(self) -> str:
        """The type of most values, where not all have one; whole numbers and others count together."""
        by_type: dict[str, list[Any]] = {}
        for value in self.values:
            is_number = type(value) in (int, float)
            by_type.setdefault("number" if is_number else type(value).__name__, []).append(value)
        if not by_type:
            return "string"
        most = max(by_type.values(), key=len)
        kinds = {_kind_of(value) for value in most}
        return kinds.pop() if len(kinds) == 1 and isinstance(most[0], str) else json_type(most)


def _kind_of(value: Any) -> str:
    """The type of one value of JSON; dates and times stand in text."""
    kind = _kind_of_text(value) if isinstance(value, str) else ""
    return kind if kind.startswith(_TEMPORAL) else json_type([value])


def _share(count: int, rows: int) -> str:
    share = 100 * count / max(rows, 1)
    # Nearly all is not all, and hardly any is not none.
    return f"{min(max(share, 0.1), 99.9) if 0 < count < rows else share:.1f} %".replace("100.0 %", "100 %")


@functools.lru_cache(1 << 16)
def _kind_of_text(value: str) -> str:
    kind = guess_column("", [value]).type
    return str(kind) if isinstance(kind, str) else str(kind["type"])


def json_type(values: Sequence[Any]) -> str:
    """The type, as an app writes it, of values of JSON; text for what has no other one."""
    present = [value for value in values if value is not None]
    if present and all(isinstance(value, bool) for value in present):
        return "bool"
    if present and all(type(value) is int for value in present):
        return "int64" if all(-_INT64 <= value < _INT64 for value in present) else "decimal(38, 0)"
    if present and all(type(value) in (int, float) for value in present):
        return "double"
    if present and all(isinstance(value, list) for value in present):
        return f"list<{json_type([item for value in present for item in value])}>"
    if present and all(isinstance(value, dict) for value in present):
        members = dict.fromkeys(name for value in present for name in value)
        if members and all(map(_MEMBER.fullmatch, members)):
            inner = (f"{name}: {json_type([value.get(name) for value in present])}" for name in members)
            return f"struct<{', '.join(inner)}>"
    return "string"


def evidence_of(records: Iterator[tuple[Mapping[str, Any], str]]) -> tuple[list[ColumnEvidence], int]:
    """What the columns of records are, in the order in which they appear; and how many records there are.

    Args:
        records: Each with its place; of a raw record the JSON object that it is.
    """
    columns: dict[str, ColumnEvidence] = {}
    rows = 0
    for values, place in records:
        raw = values.get("record")
        given = _object(raw) if isinstance(raw, bytes) else values
        rows += 1
        for name, value in given.items():
            if name not in columns:
                columns[name] = ColumnEvidence(name, is_text=given is values)
            columns[name].add(value, place)
    return list(columns.values()), rows


def _object(record: bytes) -> Mapping[str, Any]:
    found = json.loads(record)
    return found if isinstance(found, dict) else {}
