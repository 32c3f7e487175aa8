"""Fields at fixed places of a record: text in any encoding, and the decimals of mainframes."""

from __future__ import annotations

import re
from functools import partial
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import BeforeValidator

from dagflow.api.records import NO_DELIMITER, Origin, RecordBatch
from dagflow.frozen import frozen
from dagflow.late import compute as pc
from operators.reader.columns.types import (
    COLUMN_TYPE_SCHEMA,
    ColumnType,
    arrow_type,
    json_schema_of_columns,
    of_columns,
)
from operators.reader.columns.typing import RowRejects, values_with_refused, without_words
from operators.reader.scanning.charset import Charset, decoded

_Bytes = npt.NDArray[np.uint8]
"""The bytes of a field: a row for each record."""

_CODED = re.compile(r"(packed|zoned)\(\s*([0-9]+)\s*(?:,\s*([0-9]+)\s*)?\)")
_EXAMPLE = "a field is its first byte, the byte behind it, and its type, such as [0, 8, int64]"
_NEGATIVE = (0x0B, 0x0D)
_SIGNED_DIGITS = {"{ABCDEFGHI": False, "}JKLMNOPQR": True, "pqrstuvwxy": True}
"""Last characters of zoned decimals in ASCII, for the digits 0 to 9, and whether they are negative."""


@frozen
class FixedField:
    """A field of each record.

    Attributes:
        coding: How bytes stand for values: text, packed or zoned.
    """

    start: int
    end: int
    kind: ColumnType
    coding: str = "text"

    @classmethod
    def of(cls, value: object) -> FixedField:
        """The field that an app gives.

        Raises:
            ValueError: It is none, or its bytes do not fit its type.
        """
        if isinstance(value, cls):
            return value
        if not isinstance(value, list) or len(value) not in (2, 3) or not all(type(at) is int for at in value[:2]):
            raise ValueError(_EXAMPLE)
        start, end, kind = (*value, "string")[:3]
        if not 0 <= start < end:
            raise ValueError(f"[{start}, {end}] holds no bytes; {_EXAMPLE}")
        coded = _CODED.fullmatch(kind) if isinstance(kind, str) else None
        if coded is None:
            made = ColumnType.of(kind)
            if made.is_nested or made.is_optional:
                raise ValueError(f"no field is {made.name}{', and optional' if made.is_optional else ''}")
            return cls(start, end, made)
        coding, digits, scale = coded[1], int(coded[2]), int(coded[3] or 0)
        width = digits // 2 + 1 if coding == "packed" else digits
        made = ColumnType(kind, arrow_type(f"decimal({digits}, {scale})"))
        if end - start != width:
            raise ValueError(f"{kind} has {width} bytes; write [{start}, {start + width}, {kind!r}]")
        return cls(start, end, made, coding)

    def values(self, rows: _Bytes, charset: Charset, *, trims: bool) -> tuple[pa.Array, dict[int, str]]:
        """The values of records, and for each that has none the reason."""
        data = np.ascontiguousarray(rows[:, self.start : self.end])
        if self.coding != "text":
            texts, refused = _coded(data, charset, self)
        else:
            texts, refused = _texts(data, charset)
        if pa.types.is_string(self.kind.arrow):
            return pc.ascii_trim(texts, " ") if trims else texts, refused
        values, wrong = values_with_refused(without_words(pc.ascii_trim(texts, " "), ("",)), self.kind)
        return values, wrong | refused


def _texts(data: _Bytes, charset: Charset) -> tuple[pa.StringArray, dict[int, str]]:
    """The texts of fields; null where bytes are none of the charset."""
    count, rejects = len(data), RowRejects()
    fields = RecordBatch(framed=_framed(data), delimiters=NO_DELIMITER, origin=Origin((None,), np.arange(count)))
    texts = decoded(fields, charset, "reject", rejects, " of the field")
    made = texts.framed().cast(pa.string())
    if not rejects.reasons:
        return made, {}
    places = np.zeros(count, np.int64)
    places[texts.offsets()] = np.arange(len(texts))
    return made.take(pa.array(places, mask=np.isin(np.arange(count), [*rejects.reasons]))), rejects.reasons


def _framed(data: _Bytes) -> pa.BinaryArray:
    count, width = data.shape
    borders = np.arange(count + 1, dtype=np.int32) * np.int32(width)
    return pa.BinaryArray.from_buffers(pa.binary(), count, [None, pa.py_buffer(borders), pa.py_buffer(data)])


def _coded(data: _Bytes, charset: Charset, field: FixedField) -> tuple[pa.StringArray, dict[int, str]]:
    """The texts of coded decimals; null for those that are blank, or none."""
    digits, is_negative, is_valid = _packed(data) if field.coding == "packed" else _zoned(data, charset)
    texts = np.empty((len(data), digits.shape[1] + 2), np.uint8)
    point = digits.shape[1] - field.kind.arrow.scale + 1
    texts[:, 0] = np.where(is_negative, ord("-"), ord("+"))
    texts[:, 1:point], texts[:, point], texts[:, point + 1 :] = digits[:, : point - 1], ord("."), digits[:, point - 1 :]
    texts[:, 1:point] += ord("0")
    texts[:, point + 1 :] += ord("0")
    is_blank = (data == charset.encode(" ")[0]).all(axis=1) if field.coding == "zoned" else np.zeros(len(data), bool)
    texts[~is_valid] = ord("0")
    made = pc.if_else(pa.array(is_valid), _framed(texts).cast(pa.string()), pa.scalar(None, pa.string()))
    wrong = np.flatnonzero(~(is_valid | is_blank)).tolist()
    return made, {row: f"'{data[row].tobytes().hex(' ')}' in hexadecimal is no {field.coding} decimal" for row in wrong}


_Decimals = tuple[_Bytes, npt.NDArray[np.bool_], npt.NDArray[np.bool_]]
"""The digits of decimals, whether each is negative, and whether each is one."""


def _packed(data: _Bytes) -> _Decimals:
    """Two digits a byte, and a sign in the last half of the last byte."""
    halves = np.stack([data >> 4, data & 15], axis=2).reshape(len(data), -1)
    digits, sign = halves[:, :-1], halves[:, -1]
    return digits, np.isin(sign, _NEGATIVE), np.all(np.c_[digits <= 9, sign > 9], axis=1)


def _zoned(data: _Bytes, charset: Charset) -> _Decimals:
    """A digit a byte, the last of them with the sign."""
    plain, last, negative = (np.full(256, 255, np.uint8), np.full(256, 255, np.uint8), np.zeros(256, bool))
    zero = charset.encode("0")[0]
    plain[zero : zero + 10] = last[zero : zero + 10] = range(10)
    if zero == ord("0"):
        for letters, is_negative in _SIGNED_DIGITS.items():
            at = [*letters.encode()]
            last[at], negative[at] = range(10), is_negative
    else:
        for zone in range(0x0A, 0x0F):
            last[zone << 4 : (zone << 4) + 10] = range(10)
            negative[zone << 4 : (zone << 4) + 10] = zone in _NEGATIVE
    digits = plain[data]
    digits[:, -1] = last[data[:, -1]]
    return digits, negative[data[:, -1]], np.all(digits <= 9, axis=1)


_PLACE = {"type": "integer", "minimum": 0}

FixedFields = Annotated[
    dict[str, Any],
    BeforeValidator(partial(of_columns, FixedField.of)),
    json_schema_of_columns(
        {"type": "array", "prefixItems": [_PLACE, _PLACE, COLUMN_TYPE_SCHEMA], "minItems": 2, "maxItems": 3}
    ),
]
"""The place and type of each column, by its name: a FixedField each. An app may name a YAML file that has them."""
