"""Text in other encodings than UTF-8: its code units, and how its records become UTF-8."""

from __future__ import annotations

import codecs
import sys
from collections.abc import Sequence
from functools import cache
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dagflow.api.records import Delimiters, RecordBatch
from dagflow.errors import RecordError
from dagflow.frozen import frozen
from dagflow.storage.columns import borders_of, bytes_of
from operators.reader.columns.typing import why_not_text, without_refused
from operators.reader.formats.base import ByteAccounting
from operators.reader.scanning.search import BYTE, CodeUnit

BadBytes = Literal["fail", "replace", "reject"]

_WIDE = {
    "utf-16-le": CodeUnit("<u2"),
    "utf-16-be": CodeUnit(">u2"),
    "utf-32-le": CodeUnit("<u4"),
    "utf-32-be": CodeUnit(">u4"),
}
_ANY_ORDER = {"utf-16": ("utf-16-le", "utf-16-be"), "utf-32": ("utf-32-le", "utf-32-be")}
# The meaning of a byte in these depends on bytes before it, even for bytes of ASCII characters. Some codecs have names
# with hyphens, some with underscores; these are compared with underscores.
_STATEFUL = ("iso2022", "utf_7", "hz", "punycode", "idna", "unicode_escape", "raw_unicode_escape", "undefined", "mbcs")
_MARKS = {
    "utf-8": codecs.BOM_UTF8,
    "utf-16-le": codecs.BOM_UTF16_LE,
    "utf-16-be": codecs.BOM_UTF16_BE,
    "utf-32-le": codecs.BOM_UTF32_LE,
    "utf-32-be": codecs.BOM_UTF32_BE,
}


@frozen
class Charset:
    """An encoding that records can be cut in."""

    name: str

    @classmethod
    def named(cls, encoding: str) -> Charset:
        """The charset of a name that Python knows.

        Raises:
            ValueError: Python does not know the charset, or text in it cannot be cut.
        """
        try:
            codec = codecs.lookup(encoding)
        except (LookupError, ValueError):
            raise ValueError(f"encoding {encoding!r} is not one that Python knows") from None
        name = "utf-8" if codec.name == "utf-8-sig" else codec.name
        if not codec._is_text_encoding:
            raise ValueError(f"encoding {encoding!r} is not one of text")
        if name.replace("-", "_").startswith(_STATEFUL):
            raise ValueError(f"text in {encoding!r} cannot be cut: the meaning of its bytes depends on those before")
        return cls(name)

    def for_file(self, head: bytes) -> tuple[Charset, int]:
        """The charset of one file, whose first bytes may mark the byte order, and the length of that mark."""
        for name in _ANY_ORDER.get(self.name, (self.name,)):
            mark = _MARKS.get(name)
            if mark is not None and head.startswith(mark):
                return Charset(name), len(mark)
        return Charset(_ANY_ORDER[self.name][sys.byteorder == "big"] if self.name in _ANY_ORDER else self.name), 0

    @property
    def unit(self) -> CodeUnit:
        """The code unit of text in the charset."""
        return _WIDE.get(_ANY_ORDER.get(self.name, (self.name,))[0], BYTE)

    def encode(self, text: str) -> bytes:
        """The bytes of a delimiter.

        Raises:
            ValueError: The encoding has no bytes for the delimiter, or other bytes might be mistaken for them.
        """
        name = _ANY_ORDER.get(self.name, (self.name,))[0]
        try:
            encoded = text.encode(name)
        except UnicodeEncodeError:
            raise ValueError(f"{text!r} cannot be written in {self.name}") from None
        if self._has_trail_bytes and any(byte >= 0x30 for byte in encoded):
            raise ValueError(f"{text!r} cannot be distinguished from the second byte of a character in {self.name}")
        return encoded

    @property
    def _has_trail_bytes(self) -> bool:
        return self.unit == BYTE and self.name != "utf-8" and _utf8_lengths(self.name) is None

    def lengths_in_utf8(self, data: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8] | None:
        """For each code unit of valid text its length in UTF-8; None where no table has it."""
        if self.unit == BYTE:
            table = _utf8_lengths(self.name)
            return None if table is None else table[data]
        units = self.unit.view(data)
        lengths = 1 + (units > 0x7F).astype(np.uint8) + (units > 0x7FF) + (units > 0xFFFF)
        if self.unit.size == 2:
            # The two halves of a surrogate pair make four bytes.
            lengths -= (units >= 0xD800) & (units < 0xE000)
        return lengths


@cache
def _utf8_lengths(encoding: str) -> npt.NDArray[np.uint8] | None:
    """Bytes in UTF-8 for each byte of an encoding in which every byte is a character of its own; otherwise None."""
    characters = [bytes([byte]).decode(encoding, "replace") for byte in range(256)]
    doubled = [bytes([byte, byte]).decode(encoding, "replace") for byte in range(256)]
    texts = zip(characters, doubled, strict=True)
    if encoding == "utf-8" or any(pair != 2 * one or len(one) != 1 for one, pair in texts):
        return None
    return np.array([len(character.encode()) for character in characters], np.uint8)


@cache
def _holds_ascii(encoding: str) -> bool:
    """Whether bytes below 128 always are the ASCII characters, so that text without others is UTF-8 already."""
    ascii_bytes = bytes(range(128))
    is_ascii = ascii_bytes.decode(encoding, "replace") == ascii_bytes.decode("ascii")
    return is_ascii and _utf8_lengths(encoding) is not None


def decoded(
    batch: RecordBatch,
    charset: Charset,
    on_bad_bytes: BadBytes,
    accounting: ByteAccounting,
    what: str = " of the record",
) -> RecordBatch:
    """Records of a charset, and their delimiters, in UTF-8; what messages call them."""
    table = tuple(delimiter.decode(charset.name).encode() for delimiter in batch.delimiters.table)
    framed = batch.framed()
    borders = borders_of(framed)
    data = bytes_of(framed)
    try:
        if charset.name == "utf-8":
            framed.cast(pa.string())
            return batch
        if _holds_ascii(charset.name) and not (data > 0x7F).any():
            return batch
        lengths = charset.lengths_in_utf8(data)
        if lengths is not None:
            text = data.tobytes().decode(charset.name).encode()
            ends = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
            moved = ends[(borders - borders[0]) // charset.unit.size].astype(np.int32)
            made = pa.BinaryArray.from_buffers(pa.binary(), len(batch), [None, pa.py_buffer(moved), pa.py_buffer(text)])
            return RecordBatch(framed=made, delimiters=Delimiters(table, batch.delimiters.codes), origin=batch.origin)
    except (UnicodeDecodeError, pa.ArrowInvalid):
        pass
    texts: list[bytes] = []
    reasons: dict[int, str] = {}
    for index, raw in enumerate(batch.to_pylist()):
        try:
            texts.append(raw.decode(charset.name, "replace" if on_bad_bytes == "replace" else "strict").encode())
        except UnicodeDecodeError as error:
            reason = why_not_text(charset.name, error, what)
            if on_bad_bytes == "fail":
                hint = "to accept or refuse such records, set on_bad_bytes: replace or reject"
                offset = int(batch.offsets()[index])
                raise RecordError(reason, url=accounting.url, offset=offset, length=len(raw), hint=hint) from error
            reasons[index] = reason
    kept = without_refused(batch, reasons, accounting)
    return RecordBatch.from_records(texts, Delimiters(table, kept.delimiters.codes), kept.origin)


class UndecodedRejects(ByteAccounting):
    """Refuses decoded records with the bytes that they have in the file."""

    def __init__(self, batch: RecordBatch, rejects: ByteAccounting) -> None:
        super().__init__()
        self._batch = batch
        self._rejects = rejects

    def reject_ranges(
        self, offsets: Sequence[int], lengths: Sequence[int], reasons: Sequence[str], raws: Sequence[bytes]
    ) -> None:
        """Refuse whole records."""
        rows = np.searchsorted(self._batch.offsets(), np.array(offsets, np.int64))
        self._rejects.reject_all(offsets, self._batch.take(rows).to_pylist(), reasons)
