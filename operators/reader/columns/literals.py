"""The texts that are values of a type: one grammar for the fields of CSV and for the strings and numbers of JSON."""

from __future__ import annotations

import functools
import re
from bisect import bisect_left
from collections.abc import Callable
from datetime import date, datetime
from decimal import MAX_EMAX, MIN_EMIN, ROUND_05UP, Context, Decimal, Inexact, InvalidOperation
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from dagflow.frozen import frozen
from dagflow.late import compute as pc
from dagflow.storage.columns import borders_of, bytes_of, parts_of
from operators.reader.columns.types import ColumnType

_CLOCK = r"[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]+)?)?"
_DATE = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_MANTISSA = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)"
_NUMBER = _MANTISSA + "(?:[eE][+-]?[0-9]+)?"
_INFINITE = r"(?i:[+-]?inf(?:inity)?)"
FRACTION_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
_FRACTION = re.compile(r"\.([0-9]*[1-9])")
_DAY_AT_HEAD = re.compile(_DATE)
_MOST_DIGITS = 4000
"""Python refuses to read an int of some more digits."""


@frozen
class _Grammar:
    """The texts of the values of some types.

    Attributes:
        plain: Bytes; Arrow converts a text of them correctly, or not at all.
        what: Names what a text that does not match should be.
    """

    regex: str
    plain: bytes
    what: str


_INTEGER = _Grammar("[+-]?[0-9]+", b"0123456789-", "no whole number")
_UNSIGNED = _Grammar(r"\+?[0-9]+", b"0123456789", "no whole number without a minus")
_FLOAT = _Grammar(f"{_NUMBER}|(?i:nan)|{_INFINITE}", b"0123456789+-.eE", "no number")
_DECIMAL = _Grammar(_NUMBER, b"0123456789+-.eE", "no number")
_BOOL = _Grammar("(?i:true|false)|[01]", b"trueTRUEfalsFALS01", "neither true nor false")
_DAY = _Grammar(_DATE, b"0123456789-", "no date as 2024-01-31")
_TIME = _Grammar(_CLOCK, b"", "no time as 10:00 or 10:00:00.5")
_NAIVE = _Grammar(
    f"{_DATE}(?:[T ]{_CLOCK})?", b"0123456789-T :.", "no timestamp without a zone, as 2024-01-31 10:00:00"
)
_ZONED = _Grammar(
    f"{_DATE}[T ]{_CLOCK}(?:Z|[+-][0-9]{{2}}(?::?[0-9]{{2}})?)",
    b"",
    "no timestamp with a zone, as 2024-01-31T10:00:00Z or 2024-01-31 10:00:00+02:00",
)


def _grammar_of(kind: ColumnType) -> _Grammar:
    arrow = kind.arrow
    if pa.types.is_integer(arrow):
        return _UNSIGNED if pa.types.is_unsigned_integer(arrow) else _INTEGER
    if pa.types.is_floating(arrow):
        return _FLOAT
    if pa.types.is_decimal(arrow):
        return _DECIMAL
    if pa.types.is_boolean(arrow):
        return _BOOL
    if pa.types.is_date(arrow):
        return _DAY
    if pa.types.is_time(arrow):
        return _TIME
    return _ZONED if kind.has_zone else _NAIVE


def values_of(texts: Any, kind: ColumnType, *, cuts: bool = False) -> Any:
    """The values that texts stand for.

    Null stands for no value. With cuts, decimals may have more digits behind the point than the type, as decimals_of
    takes them.

    Returns:
        An array of the type, with null also for each text that is no value of it.
    """
    if pa.types.is_string(kind.arrow):
        return texts
    if kind.pattern is not None:
        texts = kind.pattern.canonical(texts)
    grammar = _grammar_of(kind)
    is_tried = _is_plain(texts, grammar)
    if is_tried:
        try:
            return _sound(_cast(texts, kind.arrow, cuts), texts)
        except pa.ArrowInvalid:
            pass
    matches = pc.match_substring_regex(texts, f"^(?:{grammar.regex})$")
    exact = pc.if_else(matches, texts, pa.scalar(None, pa.string()))
    # Another try fails where all texts are written as values: a failure costs a message for each.
    has_failed = is_tried and exact.null_count == texts.null_count
    return _sound(_cast_each(_normal(exact, kind.arrow), kind.arrow, cuts, has_failed=has_failed), texts)


_compiled = functools.cache(functools.partial(re.compile, flags=re.ASCII))


def why_not(text: str, kind: ColumnType) -> str:
    return reasons_of([text], kind)[0]


def reasons_of(texts: list[str], kind: ColumnType) -> list[str]:
    """Why each of some texts is no value of a type, as clauses behind them."""
    written = texts if kind.pattern is None else kind.pattern.canonical(pa.array(texts)).fill_null("").to_pylist()
    return [*map(reason_by_text(kind), written)]


def reason_by_text(kind: ColumnType, beyond: str | None = None) -> Callable[[str], str]:
    """A function that says why a text, the canonical one for a type with a pattern, is no value of the type.

    beyond is what it says of a text that is written as values are, in place of the usual.
    """
    grammar, arrow = _grammar_of(kind), kind.arrow
    beyond = _why_out_of_range(arrow) if beyond is None else beyond
    is_written = _compiled(grammar.regex).fullmatch
    unlike = f"is {grammar.what}" if kind.pattern is None else f"does not match {kind.pattern.text}"
    return lambda text: (beyond or _why_no_moment(text, arrow)) if is_written(text) else unlike


def _why_out_of_range(arrow: pa.DataType) -> str:
    """Why a text that is written as a value of a type is none; "" for times, where the text says why."""
    if pa.types.is_integer(arrow):
        low, high = _range_of(arrow)
        return f"is not from {low} to {high}"
    if pa.types.is_decimal(arrow):
        return f"has more than {arrow.precision - arrow.scale} digits before the point, or {arrow.scale} behind it"
    if pa.types.is_date(arrow):
        return "is no day of the calendar"
    return "" if pa.types.is_temporal(arrow) else "is too large"


def _why_no_moment(written: str, arrow: pa.DataType) -> str:
    fraction, room = _FRACTION.search(written), FRACTION_DIGITS[arrow.unit]
    if fraction is not None and len(fraction[1]) > room:
        return f"is finer than {arrow.unit}, which has {room} digits of a fraction of a second"
    day = _DAY_AT_HEAD.match(written)
    if day is not None and not _is_day(day[0]):
        return f"is no day of the calendar: {day[0]}"
    if day is None or not _is_iso(written):
        return "is no time of a clock"
    if arrow.unit == "ns":
        return "is not of the years 1678 to 2261, which nanoseconds have room for"
    return f"is not of the years 1 to 9999 in {' and '.join(dict.fromkeys(('UTC', arrow.tz)))}"


def _is_iso(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


_is_day = functools.lru_cache(4096)(_is_iso)


def _is_plain(texts: Any, grammar: _Grammar) -> bool:
    """Whether Arrow converts the texts correctly, or not at all."""
    if not grammar.plain or bytes_of(texts).tobytes().translate(None, grammar.plain):
        return False
    # Arrow also accepts a day with an hour alone.
    return grammar is not _NAIVE or not (np.diff(borders_of(texts)) == len("2024-01-31T10")).any()


def _range_of(arrow: pa.DataType) -> tuple[int, int]:
    if pa.types.is_unsigned_integer(arrow):
        return 0, 2**arrow.bit_width - 1
    return -(2 ** (arrow.bit_width - 1)), 2 ** (arrow.bit_width - 1) - 1


def _cast(texts: Any, arrow: pa.DataType, cuts: bool) -> Any:
    if pa.types.is_decimal(arrow):
        return decimals_of(texts, arrow, cuts=cuts)
    if not pa.types.is_time(arrow):
        return pc.cast(texts, arrow)
    # Arrow parses times of day only behind a date.
    stamps = pc.cast(pc.binary_join_element_wise("1970-01-01", texts, "T"), pa.timestamp(arrow.unit))
    return pc.cast(stamps, arrow)


def _cast_each(texts: Any, arrow: pa.DataType, cuts: bool, *, has_failed: bool) -> Any:
    if not has_failed:
        try:
            return _cast(texts, arrow, cuts)
        except pa.ArrowInvalid:
            pass
    may_fit = _filter_of(arrow, cuts)
    # Dividing alone would take one text after the other where most are wrong.
    likely = [text if text is not None and may_fit(text) else None for text in texts.to_pylist()]
    return _divided(pa.array(likely, pa.string()), arrow, cuts)


def _divided(texts: Any, arrow: pa.DataType, cuts: bool) -> Any:
    """Cast texts, and divide them until those that cannot be cast are isolated."""
    try:
        return _cast(texts, arrow, cuts)
    except pa.ArrowInvalid:
        if len(texts) == 1:
            return pa.nulls(1, arrow)
    return pa.concat_arrays([_divided(part, arrow, cuts) for part in parts_of(texts)])


def _filter_of(arrow: pa.DataType, cuts: bool) -> Callable[[str], bool]:
    """A function that returns false for most of the texts that are written as values of a type and are none."""
    if pa.types.is_integer(arrow):
        values = range(_range_of(arrow)[0], _range_of(arrow)[1] + 1)
        return lambda text: len(text) > _MOST_DIGITS or int(text) in values
    if pa.types.is_decimal(arrow):
        return ExactDecimal(arrow, cuts).reads
    if not pa.types.is_temporal(arrow):
        return lambda text: True
    is_time, unit = pa.types.is_time(arrow), None if pa.types.is_date(arrow) else arrow.unit
    longer = re.compile(rf"\.[0-9]{{{FRACTION_DIGITS[unit] + 1}}}" if unit else r"\.")

    if is_time:
        return lambda text: _is_iso(f"1970-01-01T{text}") and not longer.search(text)
    return lambda text: _is_day(text[: len("2024-01-31")]) and _is_iso(text) and not longer.search(text)


def _normal(texts: Any, arrow: pa.DataType) -> Any:
    """The texts as Arrow accepts them: no plus, and no zeros at the end of a fraction beyond those of the unit."""
    if pa.types.is_integer(arrow) or pa.types.is_floating(arrow):
        return pc.replace_substring_regex(texts, r"^\+", "")
    if pa.types.is_time(arrow) or pa.types.is_timestamp(arrow):
        digits = FRACTION_DIGITS[arrow.unit]
        if not digits:
            return pc.replace_substring_regex(texts, r"\.0+($|Z|[+-])", r"\1")
        return pc.replace_substring_regex(texts, rf"(\.[0-9]{{{digits}}})0+($|Z|[+-])", r"\1\2")
    return texts


def _sound(values: Any, texts: Any) -> Any:
    """The values without those that Arrow computes from texts that are out of range."""
    if pa.types.is_floating(values.type):
        is_infinite = pc.is_inf(values)
        if pc.any(is_infinite).as_py():
            is_word = pc.match_substring_regex(texts, f"^(?:{_INFINITE})$")
            return pc.if_else(pc.and_(is_infinite, pc.invert(is_word)), pa.scalar(None, values.type), values)
    if pa.types.is_date(values.type) or pa.types.is_timestamp(values.type):
        return in_calendar(values)
    return values


def where_refused(texts: Any, values: Any) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """For each text whether it was refused: its value is null, although the text is not."""
    if values.null_count == texts.null_count:
        return np.zeros(len(texts), bool)
    return np.asarray(pc.and_(pc.is_valid(texts), pc.is_null(values)))


_DAY_1970 = date(1970, 1, 1).toordinal()
EARLIEST, LATEST = (day.toordinal() - _DAY_1970 for day in (date.min, date.max))
"""The days 0001-01-01 and 9999-12-31, counted from 1970: Spark and Python have no others."""

_DAY_S = 86_400
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6}


def in_calendar(values: Any) -> Any:
    """Days or timestamps, with null for those that Python does not have."""
    if pa.types.is_date(values.type):
        numbers, first, end = values.view(pa.int32()), EARLIEST, LATEST + 1
    elif values.type.unit == "ns":
        # Their 64 bits suffice for 1677 to 2262.
        return values
    else:
        numbers, per_second = values.view(pa.int64()), _PER_SECOND[values.type.unit]
        first, end = (second * per_second for second in _seconds_of(values.type.tz))
    least, greatest = (bound.as_py() for bound in pc.min_max(numbers).values())
    if least is None or (least >= first and greatest < end):
        return values
    is_pythons = pc.and_(pc.greater_equal(numbers, first), pc.less(numbers, end))
    return pc.if_else(is_pythons, values, pa.scalar(None, values.type))


@cache
def _seconds_of(zone: str | None) -> tuple[int, int]:
    """The first second that Python has in a zone, and the one after the last, counted from 1970 in UTC.

    A table may have a zone that Python lacks; its times count as UTC.
    """
    try:
        pa.scalar(0, pa.timestamp("s", zone)).as_py()
    except pa.ArrowInvalid:
        return _seconds_of(None)

    def is_pythons(second: int) -> bool:
        try:
            pa.scalar(second, pa.timestamp("s", zone)).as_py()
        except OverflowError:
            return False
        return True

    # Clocks are less than a day away from UTC. Python is asked, as Arrow need not have its rules for years so far away.
    first_day = range(EARLIEST * _DAY_S, (EARLIEST + 1) * _DAY_S)
    last_day = range(LATEST * _DAY_S, (LATEST + 1) * _DAY_S)
    first = first_day.start + bisect_left(first_day, True, key=is_pythons)
    return first, last_day.start + bisect_left(last_day, True, key=lambda second: not is_pythons(second))


WIDE_DIGITS = 76
"""Digits of the widest decimals that Arrow has, of 256 bits."""

_DIGITS = 38
"""Digits that always fit into the 128 bits of a decimal."""

_WITH_EXPONENT = re.compile(rf"({_MANTISSA})(?:[eE]([+-]?)0*([0-9]+))?", re.ASCII)
_MOST_EXPONENT_DIGITS = 15
"""An exponent with more digits is beyond those of Python, and too large for all numbers but zeros in every type."""


def decimals_of(texts: Any, kind: pa.DataType, *, cuts: bool = False) -> Any:
    """The decimals of texts, exactly.

    Arrow reads the digits of a text and then multiplies or divides them by a power of ten, by the digits behind the
    point that the type has. It checks neither that product nor the power: where one needs more than 128 bits, the low
    bits are taken for the value. So Arrow reads only the texts for which both fit; Python reads the others.

    With cuts, a text may have more digits behind the point than the type has. The value is then rounded so that
    rounding it again, to fewer digits, gives what rounding the text once gives.

    Raises:
        pyarrow.ArrowInvalid: A text is no number, or a number that the type does not have.
    """
    lengths, letters = np.diff(borders_of(texts)), bytes_of(texts).tobytes()
    is_hard = lengths + kind.scale > WIDE_DIGITS
    if b"e" in letters or b"E" in letters:
        has_exponent = pc.match_substring(texts, "e", ignore_case=True)
        is_hard |= pc.fill_null(has_exponent, False).to_numpy(zero_copy_only=False)
    if cuts:
        is_hard |= lengths > kind.scale
    has_room = int(lengths.max(initial=0)) + kind.scale <= _DIGITS
    room = kind if has_room else pa.decimal256(WIDE_DIGITS, kind.scale)
    if not is_hard.any():
        return pc.cast(pc.cast(texts, room), kind)
    mask = pa.array(is_hard)
    easy = pc.if_else(mask, pa.scalar(None, pa.string()), texts)
    read = ExactDecimal(kind, cuts)
    hard = pa.array([None if text is None else read(text) for text in texts.filter(mask).to_pylist()], kind)
    return pc.replace_with_mask(pc.cast(pc.cast(easy, room), kind), mask, hard)


class ExactDecimal:
    """Reads one text at a time; as decimals_of."""

    def __init__(self, kind: pa.DataType, cuts: bool) -> None:
        traps = [InvalidOperation] if cuts else [InvalidOperation, Inexact]
        self._context = Context(kind.precision, ROUND_05UP, MIN_EMIN, MAX_EMAX, traps=traps)
        self._unit = Decimal((0, (1,), -kind.scale))

    def __call__(self, text: str) -> Decimal:
        parts = _WITH_EXPONENT.fullmatch(text)
        if parts is None:
            raise pa.ArrowInvalid("A text is no number")
        digits, sign, exponent = parts.groups()
        if exponent and len(exponent) > _MOST_EXPONENT_DIGITS:
            text = f"{digits}e{sign}{'9' * _MOST_EXPONENT_DIGITS}"
        try:
            return self._context.quantize(Decimal(text), self._unit)
        except (InvalidOperation, Inexact):
            raise pa.ArrowInvalid("A number is none of the type") from None

    def reads(self, text: str) -> bool:
        try:
            self(text)
        except pa.ArrowInvalid:
            return False
        return True
