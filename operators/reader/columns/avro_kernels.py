"""Machine code that finds the values in records of Avro; needs numba."""

from __future__ import annotations

from typing import Any

from numba import types

from operators.reader.columns.avro_decoding import decode
from operators.reader.columns.kernels import BYTES, compiled

_INT = types.int64
_NUMBERS = types.Array(_INT, 1, "C")
_TAPE = types.Tuple([types.Array(types.int16, 1, "C"), _NUMBERS])

decode_compiled: Any = compiled(
    *(types.UniTuple(_INT, 3), BYTES, _INT, _INT, _INT, types.UniTuple(_NUMBERS, 3), _NUMBERS, _TAPE, _INT)
)(decode)
"""The function, for arrays."""
