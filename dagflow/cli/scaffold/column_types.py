"""Infers the types of columns from their values."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from typing import Any

from dagflow.spec.yaml_text import flow, scalar

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
"""Digits of the widest decimal."""

_DOUBLE_DIGITS = 15
"""Any number of up to this many digits has a double of its own."""

VALUES_BY_EXCEPTION = 100
"""For so many values a column may have one that is not of its type: its row is refused, and the type stays."""

_INT64 = 1 << 63
_LEAST_DECIMALS = 3
"""Values with as many digits behind the point, two at least, that make a decimal of a number."""


@dataclass(frozen=True, slots=True)
class ColumnGuess:
    """The guessed type of a column.

    Attributes:
        type: Its type as an app writes it: a name, or a mapping with type and format; None where it has none.
        null_words: Words in it that stand for no value.
        exceptions: How many values are of no type, and are refused.
    """

    name: str
    type: Any
    evidence: str
    null_words: tuple[str, ...] = ()
    exceptions: int = 0

    def as_text(self, evidence: str) -> ColumnGuess:
        return ColumnGuess(self.name, "string", evidence)


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
    found = guess_column(name, [value for value in values if value not in exceptions])
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
    if all_match(_is_int64):
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


def _is_int64(value: str) -> bool:
    return _WHOLE.fullmatch(value) is not None and -_INT64 <= int(value) < _INT64


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
    entries = [f"{scalar(each.name)}: {value_text(each.type)}" for each in columns if each.type is not None]
    width = max(map(len, entries), default=0)
    left = iter(entries)
    for each in columns:
        if each.type is None:
            yield f"{indent}# {comment(f'{scalar(each.name)} is left out, it has no type: {each.evidence}')}"
        else:
            yield f"{indent}{next(left):<{width}}  # {comment(each.evidence)}".rstrip(" #")


def value_text(value: Any) -> str:
    # Types such as decimal(18, 2) need no quotes where nothing stands around them.
    return value if isinstance(value, str) and value.startswith("decimal(") else flow(value)


def comment(text: str) -> str:
    """A text as a comment can hold it: names of files may have line ends and bytes that are no UTF-8."""
    return "".join(char if char.isprintable() else "?" for char in text)
