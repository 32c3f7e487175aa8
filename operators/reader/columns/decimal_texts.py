"""Converts texts to decimals, exactly.

Arrow reads the digits of a text and then multiplies or divides them by a power of ten, by the digits behind the point
that the type has. It checks neither that product nor the power: where one needs more than 128 bits, the low bits are
taken for the value. So Arrow reads only the texts for which both fit; Python reads the others.
"""

from __future__ import annotations

import re
from decimal import MAX_EMAX, MIN_EMIN, ROUND_05UP, Context, Decimal, Inexact, InvalidOperation
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dagflow.storage.columns import borders_of

_DIGITS = 38
"""Digits that always fit into the 128 bits of a decimal."""

WIDE_DIGITS = 76
"""Digits of the widest decimals that Arrow has, of 256 bits."""

_NUMBER = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?:[eE]([+-]?)0*([0-9]+))?", re.ASCII)
_SMALL_EXPONENT = "[eE][+-]?0*[0-9]$"
_MOST_ZEROS = 9
_MOST_EXPONENT_DIGITS = 15
"""An exponent with more digits is beyond those of Python, and too large for all numbers but zeros in every type."""


def decimals_of(texts: Any, kind: pa.DataType, *, cuts: bool = False) -> Any:
    """The decimals of texts.

    With cuts, a text may have more digits behind the point than the type has. The value is then rounded so that
    rounding it again, to fewer digits, gives what rounding the text once gives.

    Raises:
        pyarrow.ArrowInvalid: A text is no number, or a number that the type does not have.
    """
    borders = borders_of(texts)
    lengths = np.diff(borders)
    has_exponent = _have_exponents(texts, borders)
    if has_exponent is None and not cuts and _have_room(texts, lengths, _DIGITS, kind.scale):
        return pc.cast(texts, kind)
    if has_exponent is None:
        is_hard = lengths + kind.scale > WIDE_DIGITS
        digits = lengths
    else:
        # A small exponent stands for up to nine zeros, and itself takes two characters.
        digits = lengths + has_exponent * (_MOST_ZEROS - 2)
        is_hard = (digits + kind.scale > WIDE_DIGITS) | (has_exponent & ~_match(texts, _SMALL_EXPONENT))
    if cuts:
        is_hard |= digits > kind.scale
    wide = pa.decimal256(WIDE_DIGITS, kind.scale)
    if not is_hard.any():
        return pc.cast(pc.cast(texts, wide), kind)
    mask = pa.array(is_hard)
    easy = pc.if_else(mask, pa.scalar(None, pa.string()), texts)
    read = ExactDecimal(kind, cuts)
    hard = pa.array([None if text is None else read(text) for text in texts.filter(mask).to_pylist()], kind)
    return pc.replace_with_mask(pc.cast(pc.cast(easy, wide), kind), mask, hard)


def _have_room(texts: Any, lengths: npt.NDArray[np.int32], digits: int, scale: int) -> bool:
    """Whether texts without exponents have so few digits that those that the type adds fit as well."""
    longest = int(lengths.max(initial=0))
    if longest + scale <= digits:
        return True
    if longest > digits:
        return False
    points = pc.fill_null(pc.find_substring(texts, "."), -1).to_numpy(zero_copy_only=False)
    return int(np.where(points < 0, lengths, points).max()) + scale <= digits


def _have_exponents(texts: Any, borders: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_] | None:
    """Which texts have an exponent; None where none has one."""
    buffer = texts.buffers()[2]
    data = b"" if buffer is None else buffer[int(borders[0]) : int(borders[-1])].to_pybytes()
    found = None
    for letter in ("e", "E"):
        if letter.encode() in data:
            positions = pc.fill_null(pc.find_substring(texts, letter), -1).to_numpy(zero_copy_only=False)
            found = positions >= 0 if found is None else found | (positions >= 0)
    return found


def _match(texts: Any, regex: str) -> npt.NDArray[np.bool_]:
    matches = pc.fill_null(pc.match_substring_regex(texts, regex), False)
    found: npt.NDArray[np.bool_] = matches.to_numpy(zero_copy_only=False)
    return found


class ExactDecimal:
    """Reads one text at a time; as decimals_of."""

    def __init__(self, kind: pa.DataType, cuts: bool) -> None:
        traps = [InvalidOperation] if cuts else [InvalidOperation, Inexact]
        self._context = Context(kind.precision, ROUND_05UP, MIN_EMIN, MAX_EMAX, traps=traps)
        self._unit = Decimal((0, (1,), -kind.scale))

    def __call__(self, text: str) -> Decimal:
        """The decimal of a text."""
        found = _NUMBER.fullmatch(text)
        if found is None:
            raise pa.ArrowInvalid("A text is no number")
        digits, sign, exponent = found.groups()
        if exponent and len(exponent) > _MOST_EXPONENT_DIGITS:
            text = f"{digits}e{sign}{'9' * _MOST_EXPONENT_DIGITS}"
        try:
            return self._context.quantize(Decimal(text), self._unit)
        except (InvalidOperation, Inexact):
            raise pa.ArrowInvalid("A number is none of the type") from None

    def reads(self, text: str) -> bool:
        """Whether a text is a number of the type."""
        try:
            self(text)
        except pa.ArrowInvalid:
            return False
        return True
