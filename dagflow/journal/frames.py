"""The frames of the journal: a header line with a checksum, then compressed JSON.

All that the journal persists are dataclasses. A bytes field becomes base64 text, a tuple becomes a list, and a key of a
mapping becomes text. A field of type Any must have JSON values, or be Compressed.
"""

from __future__ import annotations

import json
import math
import re
import zlib
from collections.abc import Iterator
from typing import Any, Final, TypeVar

import msgspec
from isal import isal_zlib

from dagflow.errors import ANOTHER_CHECKPOINT, FROM_A_COPY, JournalError
from dagflow.storage.location import Roots

FORMAT_VERSION = 2

_HEADER = re.compile(rb"dagflow-journal (\d+) (\d+) ([0-9a-f]{8})\n")
_MAGIC = b"dagflow-journal "
# "dagflow-journal", a version of up to 6 digits, a length of up to 12, a checksum of 8, three spaces, a newline.
_MAX_HEADER_BYTES = 48
# isal's level 0 writes 28 % more and takes nearly as long.
_LEVEL = 1

NO_ROOTS: Final = Roots()


WRITER_DIED = ": its writer died before it was done"
"""Why an object is cut off where nothing was written behind it."""


class TornError(JournalError):
    """An object is cut off: its writer, or the machine, died while writing."""

    def damage(self, what: str) -> JournalError:
        """The error to raise if the object must have been whole, because something was written that relies on it."""
        return JournalError(f"{self.message.removesuffix(WRITER_DIED)}: {what}", url=self.url, hint=FROM_A_COPY)


class Compressed:
    """A JSON value that is kept in memory in its written form, compressed: a small part of its Python objects' size.

    Later it becomes a part of encode()'s argument.
    """

    __slots__ = ("_body",)

    def __init__(self, value: Any) -> None:
        self._body = isal_zlib.compress(_written(value), _LEVEL)

    @property
    def text(self) -> bytes:
        text: bytes = isal_zlib.decompress(self._body)
        return text


def encode(value: Any, roots: Roots = NO_ROOTS) -> bytes:
    """One JSON value as a frame of its own: `dagflow-journal <version> <length> <crc32>`, then the body."""
    text = _written(value)
    if roots.pairs:
        text = _written(roots.shorten_all(_read(text)))
    body: bytes = isal_zlib.compress(text, _LEVEL)
    return b"%s%d %d %08x\n" % (_MAGIC, FORMAT_VERSION, len(body), zlib.crc32(body)) + body


def as_read(value: Any) -> Any:
    """A JSON value as decode() returns it after encode(): with lists in place of tuples."""
    return _read(_written(value))


def decompressed(value: Any) -> Any:
    """The value that was given to Compressed; any other value unchanged."""
    return _read(value.text) if isinstance(value, Compressed) else value


def decode(data: bytes, url: str, roots: Roots = NO_ROOTS) -> Any:
    """The JSON value of an object that is one frame.

    Raises:
        TornError: The object is a beginning of a frame, or nothing but zero bytes.
        JournalError: The object is not one frame, is damaged, or has an unknown version.
    """
    values = list(decode_all(data, url, roots))
    if not values:
        raise TornError(f"the object is empty{WRITER_DIED}", url=url)
    if len(values) > 1:
        raise JournalError(f"{len(values)} frames where one was expected", url=url)
    return values[0]


def decode_all(data: bytes, url: str, roots: Roots = NO_ROOTS) -> Iterator[Any]:
    for frame in frames_of(data, url):
        yield _value_of(frame, url, roots)


def frames_of(data: bytes, url: str) -> list[bytes]:
    """The frames of an object that is a sequence of frames, not decoded.

    Raises:
        TornError: The last frame is cut off.
        JournalError: A frame has no header, or an unknown version.
    """
    frames: list[bytes] = []
    position = 0
    while position < len(data):
        header = _HEADER.match(data, position, position + _MAX_HEADER_BYTES)
        if header is None:
            raise _no_header(data[position:], url)
        version, length = int(header[1]), int(header[2])
        if version != FORMAT_VERSION:
            raise JournalError(
                f"format version {version} is unknown here, version {FORMAT_VERSION} is known",
                url=url,
                hint="run the version of dagflow that wrote it, or "
                + ("a newer one" if version > FORMAT_VERSION else ANOTHER_CHECKPOINT),
            )
        end = header.end() + length
        if len(data) < end:
            body_bytes = len(data) - header.end()
            raise TornError(f"{body_bytes} of {length} bytes are there{WRITER_DIED}", url=url)
        frames.append(data[position:end])
        position = end
    return frames


def _value_of(frame: bytes, url: str, roots: Roots) -> Any:
    header = _HEADER.match(frame)
    assert header is not None
    body = frame[header.end() :]
    if zlib.crc32(body) != int(header[3], 16):
        what = "the checksum does not fit the bytes: the object was damaged after it was written"
        raise JournalError(what, url=url, hint=FROM_A_COPY)
    return roots.expand_all(_read(isal_zlib.decompress(body)))


# msgspec takes a tenth of json's time. It refuses lone surrogates, which occur in file names that are not UTF-8, and
# writes null for numbers that are not finite.
def _written(value: Any) -> bytes:
    try:
        text = msgspec.json.encode(value, enc_hook=_opened)
    except UnicodeEncodeError:
        return _written_by_json(value)
    return _written_by_json(value) if b"null" in text and not _is_finite(value) else text


def _written_by_json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), default=lambda item: _read(_opened(item))).encode("ascii")


def _opened(value: Any) -> msgspec.Raw:
    if isinstance(value, Compressed):
        return msgspec.Raw(value.text)
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


_WITHOUT_FLOATS = frozenset((int, str, bool, type(None)))
"""Element types of long lists: columns of the files of a window."""


def _is_finite(value: Any) -> bool:
    values = [value]
    for each in values:  # the list grows meanwhile
        if isinstance(each, str | int):
            continue
        if isinstance(each, dict):
            values.extend(each.values())
        elif isinstance(each, list | tuple):
            if not _WITHOUT_FLOATS.issuperset(map(type, each)):
                values.extend(each)
        elif isinstance(each, float) and not math.isfinite(each):
            return False
    return True


def _read(text: bytes | msgspec.Raw) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return json.loads(bytes(text))


def _no_header(data: bytes, url: str) -> JournalError:
    # After a power loss some file systems show a file's length but zeros for its bytes.
    written = data.rstrip(b"\0")
    if b"\n" not in written and len(written) < _MAX_HEADER_BYTES and _MAGIC.startswith(written[: len(_MAGIC)]):
        return TornError(f"the header is cut off{WRITER_DIED}", url=url)
    return JournalError("this is not a part of a journal: it has no header", url=url)


T = TypeVar("T")


def to_json(value: Any) -> Any:
    """A dataclass, or a collection of dataclasses, as JSON values; a TypeError for anything else."""
    return msgspec.to_builtins(value, str_keys=True, builtin_types=(Compressed,))


def from_json(kind: type[T], value: Any, url: str) -> T:
    try:
        return msgspec.convert(value, kind, str_keys=True)
    except msgspec.ValidationError as error:
        raise JournalError(
            f"this is no {kind.__name__} that this program knows: {error}",
            url=url,
            hint=f"run the version of dagflow that wrote it, or {ANOTHER_CHECKPOINT}",
        ) from error
