"""The compressions that dagflow reads: how files are recognised, and their decompressors."""

from __future__ import annotations

import bz2
import functools
import importlib
import lzma
import re
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, Literal, Protocol

from isal import isal_zlib

from dagflow.errors import DagflowError
from dagflow.frozen import frozen
from dagflow.storage.file_kinds import MARKS_BY_NAME, compression_name_of_content, compression_name_of_url
from dagflow.storage.location import redacted
from operators.files.small_file_batch import NameColumn

WINDOW_BYTES = 128 << 20
"""Bytes of content that a file may refer back to, at most; zstd has this limit itself. A decompressor holds as many."""


class Decompressor(Protocol):
    """Decompresses one stream; the interface of the standard library's own."""

    @property
    def eof(self) -> bool: ...

    @property
    def needs_input(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


class _Deflated:
    def __init__(self) -> None:
        self._object = isal_zlib.decompressobj(wbits=31)

    @property
    def eof(self) -> bool:
        return bool(self._object.eof)

    @property
    def needs_input(self) -> bool:
        return not self._object.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return bytes(self._object.unused_data)

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        return bytes(self._object.decompress(self._object.unconsumed_tail + data, max(max_length, 0)))


_SNAPPY_MAGIC = MARKS_BY_NAME["snappy"].magic


class _Framed:
    """Snappy's framing format; its chunks reach to the end of the file.

    Attributes:
        held_bytes: How many of the bytes given so far are of a chunk that is not complete; the others are
            decompressed.
    """

    eof = False
    needs_input = True
    unused_data = b""

    def __init__(self) -> None:
        self._object = importlib.import_module("snappy").StreamDecompressor()
        self.held_bytes = 0

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        out: bytes = self._object.decompress(data)
        # The library keeps an incomplete chunk, and puts the stream's identifier before fewer than four bytes of one.
        held = getattr(self._object, "remains", None) or b""
        self.held_bytes = len(held.removeprefix(_SNAPPY_MAGIC))
        return out


def _library(module: str, name: str) -> Callable[[], Any]:
    return lambda: getattr(importlib.import_module(module), name)()


@frozen
class Compression:
    """One compression that dagflow reads.

    Attributes:
        name: Its name in an app.
        magic: First bytes of its files.
        suffixes: Suffixes of the names of its files.
        package: The package that reads it; "" where the standard library does.
        start: Makes a decompressor for one stream.
    """

    name: str
    magic: bytes
    suffixes: tuple[str, ...]
    package: str
    start: Callable[[], Any]

    def decompressor(self) -> Decompressor:
        try:
            made: Decompressor = self.start()
        except ImportError as error:
            hint = "install it with: pip install 'dagflow[compression]'"
            raise DagflowError(f"{self.name} needs the package {self.package}", hint=hint) from error
        return made


def _zstd() -> Any:
    return _zstd_library().ZstdDecompressor()


@cache  # looking for a missing module takes longer than to decompress a small frame
def _zstd_library() -> Any:
    try:
        return importlib.import_module("compression.zstd")
    except ImportError:
        return importlib.import_module("backports.zstd")


def _compression(name: str, start: Callable[[], Any], package: str = "") -> Compression:
    return Compression(name, *MARKS_BY_NAME[name], package, start)


COMPRESSIONS = (
    _compression("gzip", _Deflated),
    _compression("bzip2", bz2.BZ2Decompressor),
    _compression("xz", functools.partial(lzma.LZMADecompressor, memlimit=2 * WINDOW_BYTES)),
    _compression("zstd", _zstd, "backports.zstd"),
    _compression("lz4", _library("lz4.frame", "LZ4FrameDecompressor"), "lz4"),
    _compression("snappy", _Framed, "python-snappy"),
)

UnitSuffix = Literal[".bgz", ".bz2", ".gz", ".tgz", ".zst", ".zstd"]
"""The suffixes of compressions whose files may consist of units that are decompressed apart from each other."""

CUT_SUFFIXES: tuple[UnitSuffix, ...] = (".bgz", ".zst", ".zstd")
"""Suffixes that are cheap to cut: .gz files are mostly one unit, and .bz2 content is decompressed twice."""

_SUFFIXES = "|".join(re.escape(suffix) for compression in COMPRESSIONS for suffix in compression.suffixes)
_COMPRESSED_NAME = re.compile(rf"(?:{_SUFFIXES})\0", re.ASCII | re.IGNORECASE)

COMPRESSION_BY_NAME = {compression.name: compression for compression in COMPRESSIONS}


def compression_of_content(head: bytes) -> Compression | None:
    """The compression of a file that begins with head, at least HEAD_BYTES of it where there are as many."""
    return COMPRESSION_BY_NAME.get(compression_name_of_content(head))


def compression_of_name(url: str) -> Compression | None:
    return COMPRESSION_BY_NAME.get(compression_name_of_url(url))


def has_compressed_name(names: NameColumn) -> bool:
    """Whether one of many names has the suffix of a compression."""
    # One search takes a twentieth of the time of many calls.
    return _COMPRESSED_NAME.search(names.text) is not None


@cache
def _missing_packages() -> dict[str, DagflowError]:
    """The errors for the compressions whose packages are not installed, by their names."""
    errors = {}
    for compression in COMPRESSIONS:
        try:
            compression.decompressor()
        except DagflowError as error:
            errors[compression.name] = error
    return errors


def unreadable_by_name(urls: Iterable[str]) -> str:
    """Why one of the files cannot be decompressed on this machine, by its name; "" where all can."""
    missing = _missing_packages()
    for url in urls if missing else ():
        compression = compression_of_name(url)
        if compression is not None and (error := missing.get(compression.name)) is not None:
            return f"{redacted(url)}: {error}"
    return ""


def stays_whole(url: str, cut_suffixes: tuple[str, ...]) -> bool:
    """Whether a file is compressed, by its name, and must not be cut."""
    return compression_of_name(url) is not None and not url.lower().endswith(cut_suffixes)
