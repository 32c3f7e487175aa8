"""Infers the types of columns from their values."""

from __future__ import annotations

import datetime
import functools
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from decimal import Decimal, InvalidOperation
from typing import Any

from dagflow.frozen import frozen, mutable
from dagflow.spec.yaml_parser import flow, scalar

NULL_WORDS = ("NA", "N/A", "n/a", "NULL", "null", "None", "#N/A", "-")
"""Words that stand for no value where all other values of a column are numbers, times or truth values."""

# The reader must take whatever is matched here: it knows only ASCII digits, and no sign before nan.
_WHOLE = re.compile(r"[+-]?[0-9]{1,19}")
_CODE = re.compile(r"[+-]?0[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|nan|NaN|[+-]?(inf|Infinity)")
_FRACTION = re.compile(r"[+-]?[0-9]{1,12}\.([0-9]{1,6})")
_CLOCK = r"([01][0-9]|2[0-3]):[0-5][0-9]"
_STAMP = re.compile(
    rf"[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}[T ]{_CLOCK}(:[0-5][0-9](\.[0-9]{{1,6}})?)?"
    rf"(?P<zone>Z|[+-]{_CLOCK.replace(':', ':?')})?"
)
_PLAIN = re.compile(r"[!-~]+( [!-~]+)?")
_DATES = ("%d.%m.%Y", "%Y/%m/%d", "%m/%d/%Y", "%d/%m/%Y", "%d-%b-%Y", "%Y%m%d")
_TIMES = tuple(f"{date} {time}" for date in _DATES[:-1] for time in ("%H:%M", "%H:%M:%S"))
_DIGITS = 18
_MOST_DIGITS = 38
_DOUBLE_DIGITS = 15
"""Any number of up to this many digits has a double of its own."""

VALUES_BY_EXCEPTION = 100
"""For so many values a column may have one that is not of its type: its row is refused, and the type stays."""

_INT64 = 1 << 63
_LEAST_DECIMALS = 3
"""Values with as many digits behind the point, two at least, that make a decimal of a number."""


@frozen
class ColumnGuess:
    """The guessed type of a column.

    Attributes:
        type: Its type as an app writes it: a name, or a mapping with type and format; None where it has none.
        null_words: Words in it that stand for no value.
        exceptions: How many values are of no type, and are refused.
        place: Its first byte in records of one length, and the byte behind it.
    """

    name: str
    type: Any
    evidence: str
    null_words: tuple[str, ...] = ()
    exceptions: int = 0
    place: tuple[int, ...] = ()

    @property
    def value(self) -> Any:
        """What an app says of the column."""
        return [*self.place, self.type] if self.place else self.type

    def as_text(self, evidence: str) -> ColumnGuess:
        return ColumnGuess(self.name, "string", evidence, place=self.place)


def guess_column(name: str, values: Sequence[str]) -> ColumnGuess:
    present = [value for value in values if value]
    if not present:
        return ColumnGuess(name, "string", "empty in all rows")
    words = tuple(word for word in NULL_WORDS if word in present)
    for left_out in ((), words) if words else ((),):
        typed = [value for value in present if value not in left_out]
        kind, evidence = next(_types(typed), ("string", "")) if typed else ("string", "")
        if kind != "string":
            return ColumnGuess(name, kind, evidence, left_out)
    if (found := _of_nearly_all(name, present)) is not None:
        return found
    return ColumnGuess(name, "string", "leading zeros" if any(map(_CODE.fullmatch, present)) else _example(present))


def _of_nearly_all(name: str, values: Sequence[str]) -> ColumnGuess | None:
    """The type of a column in which few values of many are of no type; None for text."""
    most = len(values) // VALUES_BY_EXCEPTION
    exceptions: list[str] = []
    for value in values if most else ():
        if value not in NULL_WORDS and next(_types([value]), None) is None:
            exceptions.append(value)
            if len(exceptions) > most:
                return None
    if not exceptions:
        return None
    refused = set(exceptions)
    found = guess_column(name, [value for value in values if value not in refused])
    if found.type == "string":
        return None
    are = "is" if len(exceptions) == 1 else "are"
    evidence = f"{len(exceptions):,} of {len(values):,} values {are} refused: {exceptions[0][:_DIGITS]!r}"
    return replace(found, evidence=f"{found.evidence}; {evidence}", exceptions=len(exceptions))


def _types(values: Sequence[str]) -> Iterator[tuple[Any, str]]:
    """The types that all values have, the narrowest first; none for text."""

    def all_match(matches: Callable[[str], object]) -> bool:
        return all(matches(value) for value in values)

    if set(values) <= {"true", "false", "True", "False", "TRUE", "FALSE"}:
        yield "bool", _example(values)
    if any(map(_CODE.fullmatch, values)):
        return
    if all_match(_is_date("%Y-%m-%d")) and all(len(value) == 10 for value in values):
        yield "date32", _example(values)
    if all_match(lambda value: _WHOLE.fullmatch(value) and -_INT64 <= int(value) < _INT64):
        if all_match(_is_date("%Y%m%d")) and all(len(value) == 8 for value in values):
            yield {"type": "date32", "format": "%Y%m%d"}, _example(values)
        yield "int64", _example(values)
    fractions = [_FRACTION.fullmatch(value) for value in values]
    scales = {len(found[1]) for found in fractions if found is not None}
    if all(fractions) and len(scales) == 1 and len(values) >= _LEAST_DECIMALS and min(scales) > 1:
        yield f"decimal({_DIGITS}, {scales.pop()})", f"as many digits behind the point in all rows, {_example(values)}"
    if all_match(_NUMBER.fullmatch):
        if not (longer := [value for value in values if not _is_double(value)]):
            yield "double", _example(values)
        elif (scale := _scale(values)) is not None:
            yield f"decimal({_MOST_DIGITS}, {scale})", f"more digits than a double has, {_example(longer)}"
        return
    stamps = [_STAMP.fullmatch(value) for value in values]
    if all(stamps) and all_match(_is_stamp):
        zones = [bool(found and found["zone"]) for found in stamps]
        if all(zones) or not any(zones):
            yield "timestamp[us, UTC]" if zones[0] else "timestamp[us]", _example(values)
    patterns = [pattern for pattern in _DATES[:-1] if all_match(_is_date(pattern))]
    if len(patterns) == 1:
        yield {"type": "date32", "format": patterns[0]}, _example(values)
    elif patterns:
        yield "string", ""
    times = [pattern for pattern in _TIMES if all_match(_is_date(pattern))]
    if len(times) == 1:
        yield {"type": "timestamp[us]", "format": times[0]}, _example(values)


def _is_double(value: str) -> bool:
    """Whether a double keeps all digits of a number; zeros at its end do not count."""
    if len(value) <= _DOUBLE_DIGITS and "e" not in value.lower():
        return True
    try:
        return not (exact := Decimal(value)).is_finite() or exact == Decimal(repr(float(value)))
    except InvalidOperation:
        return False


def _scale(values: Sequence[str]) -> int | None:
    """Digits behind the point of a decimal that keeps all digits of numbers; None if no decimal has that many."""
    before = behind = 0
    for value in values:
        try:
            number = Decimal(value)
        except InvalidOperation:
            return None
        exponent = number.as_tuple().exponent
        if not isinstance(exponent, int):
            return None
        before, behind = max(before, number.adjusted() + 1), max(behind, -exponent)
    return behind if before + behind <= _MOST_DIGITS else None


def _is_date(pattern: str) -> Callable[[str], bool]:
    def check(value: str) -> bool:
        try:
            datetime.datetime.strptime(value, pattern)
        except ValueError:
            return False
        # Python also takes other digits than those of ASCII, and any white space for a blank.
        return _PLAIN.fullmatch(value) is not None

    return check


def _is_stamp(value: str) -> bool:
    try:
        moment = datetime.datetime.fromisoformat(value)
        if moment.tzinfo is not None:
            moment.astimezone(datetime.UTC)
    except (ValueError, OverflowError):
        return False
    return True


def _example(values: Sequence[str]) -> str:
    shortest = min(values[:100], key=len)
    text = shortest if len(shortest) <= 30 else shortest[:29] + "…"
    return f"such as {' '.join(text.split())}"


def column_lines(columns: Sequence[ColumnGuess], indent: str = "") -> Iterator[str]:
    """A line for each column: its name, its type and the evidence. One without a type is left out, by a comment."""
    entries = [f"{scalar(each.name)}: {value_text(each.value)}" for each in columns if each.type is not None]
    width = max(map(len, entries), default=0)
    left = iter(entries)
    for each in columns:
        if each.type is None:
            yield f"{indent}# {comment(f'{scalar(each.name)} is left out, it has no type: {each.evidence}')}"
        else:
            yield f"{indent}{next(left):<{width}}  # {comment(each.evidence)}".rstrip(" #")


def value_text(value: Any) -> str:
    if isinstance(value, str) and "\\" in value and "'" not in value and value.isprintable():
        return f"'{value}'"  # an expression, in which a backslash is one
    # Types such as decimal(18, 2) need no quotes where nothing stands around them.
    return value if isinstance(value, str) and value.startswith("decimal(") else flow(value)


def comment(text: str) -> str:
    """A text as a comment can hold it: names of files may have line ends and bytes that are no UTF-8."""
    return "".join(char if char.isprintable() else "?" for char in text)


_TEMPORAL = ("date32", "timestamp", "time")
_LONG_DIGITS = 400
"""A whole number of so many digits is too large for any type."""

_SHOWN = 3
_EMPTY = "object without members"
_UNTYPED = "value that no type takes"


@mutable
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
        given = values
        if isinstance(raw, bytes):
            # Python refuses whole numbers of thousands of digits.
            value = json.loads(raw, parse_int=lambda text: int(text) if len(text) < _LONG_DIGITS else float(text))
            given = value if isinstance(value, dict) else {}
        rows += 1
        for name, value in given.items():
            if name not in columns:
                columns[name] = ColumnEvidence(name, is_text=given is values and not isinstance(value, list | dict))
            columns[name].add(value, place)
    return list(columns.values()), rows


_MEMBER = re.compile(r"[^,<>:\s](?:[^,<>:]*[^,<>:\s])?")
_WIDEST = 10**38


@frozen
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
    if kinds == {int} and all(-_INT64 <= value < _INT64 for value in present):
        return JsonType("int64")
    if kinds == {int}:
        is_decimal = all(-_WIDEST < value < _WIDEST for value in present)
        return JsonType("decimal(38, 0)") if is_decimal else JsonType("", ("whole numbers of more than 38 digits",))
    if kinds <= {int, float}:
        is_double = all(abs(value) <= sys.float_info.max for value in present)
        return JsonType("double") if is_double else JsonType("", ("numbers too large for a double",))
    if len(kinds) > 1:
        return JsonType("", ("values of several types",))
    if kinds == {list}:
        inner = json_type([item for value in present for item in value])
        return JsonType(f"list<{inner.name}>" if inner.name else "", inner.untyped)
    if kinds == {dict}:
        return _struct(present)
    return JsonType("bool" if kinds == {bool} else "string")


def _struct(values: Sequence[dict[str, Any]]) -> JsonType:
    """The type of objects. The reader leaves out members that the type lacks."""
    typed, untyped = [], []
    for name in dict.fromkeys(name for value in values for name in value):
        inner = json_type([value.get(name) for value in values])
        opened, closed = (sum(map(name.count, letters)) for letters in ("([", ")]"))
        # Commas and brackets divide the members of a type.
        if not _MEMBER.fullmatch(name) or opened != closed:
            untyped.append(f"a name that no type can have, {name!r}")
            continue
        untyped += [f"{name}: {reason}" for reason in inner.untyped]
        if inner.name:
            typed.append(f"{name}: {inner.name}")
    if typed:
        return JsonType(f"struct<{', '.join(typed)}>", tuple(untyped))
    return JsonType("", tuple(untyped) or ("objects without members",))
