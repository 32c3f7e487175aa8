"""Doubles rounded to some digits by their shortest text, half away from zero, as Spark does."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_MAX_DIGITS = 22
"""Powers of ten up to this one are doubles."""

_MAX_DIGITS_OF_REALS = 11
"""Up to here, no rounded number lies so near to the middle of two reals that its double is the middle."""

_UNITS = 1e14
"""Numbers of fewer units have 15 digits with the half of one: no two of them have the same double."""

_WHOLE_FROM = 2.0**53
"""Doubles from here on have no fraction."""

_PYTHONS = Context(prec=28)


def rounded(values: Any, places: int) -> Any:
    """Doubles or reals with a number of digits behind the point; with a negative one, tens, hundreds and so on."""
    if isinstance(values, pa.Scalar):
        return rounded(pa.repeat(values, 1), places)[0]
    given = values.to_numpy(zero_copy_only=False)
    is_kept = ~np.isfinite(given)
    if places >= 0:
        is_kept |= np.abs(given) >= _WHOLE_FROM
    found, is_sure = given.copy(), is_kept
    if abs(places) <= (_MAX_DIGITS if pa.types.is_float64(values.type) else _MAX_DIGITS_OF_REALS):
        computed, is_exact = _computed(given, places)
        found, is_sure = np.where(is_kept, given, computed), is_kept | is_exact
    rows = np.flatnonzero(~is_sure)
    texts = [_rounded_text(number, places) for number in given[rows].tolist()]
    # A zero has no sign, as in Spark.
    found[rows] = pc.cast(pa.array(texts, pa.string()), values.type).to_numpy() + 0.0
    return pa.array(found, values.type, mask=values.is_null().to_numpy(zero_copy_only=False))


def _computed(given: npt.NDArray[Any], places: int) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
    """Rounded numbers, and which of them equal the rounding of their text.

    A number is on the same side of a half as its text: the border is the text of the half, as a double.
    """
    unit, size = 10.0 ** abs(places), np.abs(given.astype(np.float64))
    with np.errstate(all="ignore"):
        units = size * unit if places >= 0 else size / unit
        below = np.floor(units)
        half = (below + 0.5) / unit if places >= 0 else (below + 0.5) * unit
        whole = below + (size >= half)
        found = np.copysign(whole / unit if places >= 0 else whole * unit, given).astype(given.dtype) + 0.0
    return found, units < _UNITS


def _rounded_text(number: float, places: int) -> str:
    exact = Decimal(repr(number))
    if not exact or exact.adjusted() < -places - 1:
        return "0"
    if -int(exact.as_tuple().exponent) <= places:
        return str(exact)
    return str(exact.quantize(Decimal((0, (1,), -places)), ROUND_HALF_UP, context=_PYTHONS))
