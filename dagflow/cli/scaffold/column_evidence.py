"""Gathers the types of the values of columns, with the record in which each type was seen first."""

from __future__ import annotations

import functools
import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dagflow.cli.scaffold.column_types import ColumnGuess, guess_column

_TEMPORAL = ("date32", "timestamp", "time")
_LONG_DIGITS = 400
"""A whole number of so many digits is too large for any type."""

_SHOWN = 3
"""Reasons that a comment gives."""

_EMPTY = "object without members"
_UNTYPED = "value that no type takes"


@dataclass(slots=True)
class ColumnEvidence:
    """The values of one column.

    Attributes:
        kinds: How many values have each type.
        first: Where the first value of each type is, as `file:offset`.
        is_text: Whether all of them were written as text, as in CSV, so that text takes what has no other type.
    """

    name: str
    is_text: bool
    kinds: Counter[str] = field(default_factory=Counter)
    first: dict[str, str] = field(default_factory=dict)
    values: list[Any] = field(default_factory=list)

    def add(self, value: Any, place: str) -> None:
        """Take in a value; a missing one says nothing about the type."""
        if value is None or (self.is_text and value == ""):
            return
        kind = _kind_of_text(value) if self.is_text else _kind_of(value)
        self.kinds[kind] += 1
        self.first.setdefault(kind, place)
        self.values.append(value)

    def guess(self, rows: int) -> ColumnGuess:
        """The type of the column, with the share of rows that have each type, and the first that has another one."""
        found = guess_column(self.name, self.values) if self.is_text else self._json()
        shares = [f"{_share(count, rows)} {kind}" for kind, count in self._count_by_type(found).most_common(3)]
        missing = rows - self.kinds.total()
        evidence = ", ".join([*shares, *([f"{_share(missing, rows)} without a value"] if missing else [])])
        if found.type is None:
            return found
        if found.evidence and not self.is_text:
            evidence += f"; without {found.evidence}"
        others = [kind for kind in self.kinds if not self._is_of(kind, found)]
        if others:
            rarest = min(others, key=lambda kind: self.kinds[kind])
            evidence += f"; the first {rarest} is at {self.first[rarest]}"
        return ColumnGuess(self.name, found.type, evidence, found.null_words)

    def _count_by_type(self, found: ColumnGuess) -> Counter[str]:
        """How many values have each type. Values of a typed text column have its type; whole numbers count apart.

        By itself a value may seem to be of another one: 1.50 a double, and 01/02/2024 nothing but text.
        """
        if not self.is_text or found.type == "string":
            return self.kinds
        name, words = _name_of(found.type), sum(value in found.null_words for value in self.values)
        counts = Counter({name: self.kinds.total() - self.kinds["int64"] - words, "string": words})
        counts["int64"] += self.kinds["int64"]
        return +counts

    def _is_of(self, kind: str, found: ColumnGuess) -> bool:
        """Whether values of a type need no comment: it is the column's type, or that of nearly all values."""
        if not self.is_text:
            name = _name_of(found.type)
            is_part = kind == _EMPTY and name.startswith("struct<")
            return kind == name or is_part or (kind == "int64" and name == "double")
        most = self.kinds.most_common(1)[0][0]
        return found.type != "string" or kind == most or most == "string"

    def _json(self) -> ColumnGuess:
        """The type of most values, where not all have one, with what it leaves out as evidence.

        Whole numbers and others count together. Where most have no type, it is None.
        """
        by_type: dict[str, list[Any]] = {}
        for value in self.values:
            is_number = type(value) in (int, float)
            by_type.setdefault("number" if is_number else type(value).__name__, []).append(value)
        most = max(by_type.values(), key=len, default=[])
        if most and all(_kind_of(value).startswith(_TEMPORAL) for value in most):
            # Together the values may be of several types, and of none.
            return ColumnGuess(self.name, guess_column(self.name, most).type, "")
        found = json_type(most)
        if not found.name and (typed := [value for value in most if json_type([value]).name]):
            # A value without a type does not leave out the column: the comment says where the first one is.
            found = json_type(typed)
        more = ", and more" if len(found.untyped) > _SHOWN else ""
        return ColumnGuess(self.name, found.name or None, ", ".join(found.untyped[:_SHOWN]) + more)


def _kind_of(value: Any) -> str:
    """The type of one value of JSON; dates and times stand in text."""
    if value == {}:
        return _EMPTY
    kind = _kind_of_text(value) if isinstance(value, str) else ""
    return kind if kind.startswith(_TEMPORAL) else json_type([value]).name or _UNTYPED


def _share(count: int, rows: int) -> str:
    share = 100 * count / max(rows, 1)
    # The format must not round a share to 100 % or 0 % where it is neither.
    return f"{min(max(share, 0.1), 99.9) if 0 < count < rows else share:.1f} %".replace("100.0 %", "100 %")


@functools.lru_cache(1 << 16)
def _kind_of_text(value: str) -> str:
    return _name_of(guess_column("", [value]).type)


def _name_of(kind: Any) -> str:
    return str(kind if isinstance(kind, str) else kind["type"])


def evidence_of(records: Iterator[tuple[Mapping[str, Any], str]]) -> tuple[list[ColumnEvidence], int]:
    """Evidence for the columns of records, in the order in which they appear; and the number of records.

    Args:
        records: Each with its location; for a raw record, the JSON object in it.
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
    try:
        found = json.loads(record)
    except ValueError:
        # Python refuses whole numbers of thousands of digits.
        found = json.loads(record, parse_int=lambda text: int(text) if len(text) < _LONG_DIGITS else float(text))
    return found if isinstance(found, dict) else {}


_MEMBER = re.compile(r"[^,<>:\s](?:[^,<>:]*[^,<>:\s])?")
_INT64 = 1 << 63
_WIDEST = 10**38


@dataclass(frozen=True, slots=True)
class JsonType:
    """The type of some values.

    Attributes:
        untyped: Why values have no type, or members of objects, which the type then lacks.
    """

    name: str
    untyped: tuple[str, ...] = ()


def json_type(values: Sequence[Any]) -> JsonType:
    """The type of values; of nulls alone it is text."""
    present = [value for value in values if value is not None]
    if not present:
        return JsonType("string")
    kinds = {type(value) for value in present}
    if kinds <= {int, float}:
        return _number(present, is_whole=kinds == {int})
    if len(kinds) > 1:
        return JsonType("", ("values of several types",))
    if kinds == {list}:
        inner = json_type([item for value in present for item in value])
        return JsonType(f"list<{inner.name}>" if inner.name else "", inner.untyped)
    if kinds == {dict}:
        return _struct(present)
    return JsonType("bool" if kinds == {bool} else "string")


def _number(values: Sequence[float], *, is_whole: bool) -> JsonType:
    if is_whole and all(-_INT64 <= value < _INT64 for value in values):
        return JsonType("int64")
    if is_whole:
        is_decimal = all(-_WIDEST < value < _WIDEST for value in values)
        return JsonType("decimal(38, 0)") if is_decimal else JsonType("", ("whole numbers of more than 38 digits",))
    return JsonType("double") if all(map(_is_double, values)) else JsonType("", ("numbers too large for a double",))


def _is_double(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _struct(values: Sequence[dict[str, Any]]) -> JsonType:
    """The type of objects. The reader leaves out members that the type lacks."""
    typed, untyped = [], []
    for name in dict.fromkeys(name for value in values for name in value):
        inner = json_type([value.get(name) for value in values])
        if not _is_writable(name):
            untyped.append(f"a name that no type can have, {name!r}")
            continue
        untyped += [f"{name}: {reason}" for reason in inner.untyped]
        if inner.name:
            typed.append(f"{name}: {inner.name}")
    if typed:
        return JsonType(f"struct<{', '.join(typed)}>", tuple(untyped))
    return JsonType("", tuple(untyped) or ("objects without members",))


def _is_writable(name: str) -> bool:
    """Whether a type may contain a name: commas and brackets divide its members."""
    opened, closed = (sum(map(name.count, letters)) for letters in ("([", ")]"))
    return _MEMBER.fullmatch(name) is not None and opened == closed
