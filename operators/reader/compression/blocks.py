"""Parts of files that are compressed by themselves, as those of Avro and ORC."""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Mapping

import pyarrow as pa


def decompressed(codec: str, data: bytes, most: int) -> bytes:
    """The content of a part, of which no more is made than may be.

    Args:
        codec: The name that Avro has for it.
        data: The part.
        most: How many bytes it may have. Of lz4, which does not tell its size, as many are returned: others follow.

    Raises:
        ValueError: It has more, or is damaged, or the codec is another one.
    """
    if codec not in _CODECS:
        raise ValueError(f"its codec {codec!r} is not read")
    try:
        content = _CODECS[codec](data, most)
    except (zlib.error, lzma.LZMAError, OSError, IndexError) as error:
        raise ValueError(f"a part in {codec} is damaged: {error}") from error
    if len(content) > most:
        raise ValueError(f"a part of {len(data):,} bytes in {codec} has more than {most:,} when it is decompressed")
    return content


def _snappy(data: bytes, most: int) -> bytes:
    size, position = 0, 0
    while data[position] > 127:
        size, position = size | (data[position] & 127) << 7 * position, position + 1
    size |= data[position] << 7 * position
    if size > most:
        return bytes(most + 1)
    return bytes(pa.Codec("snappy").decompress(data, decompressed_size=size, asbytes=True))


_CODECS: Mapping[str, Callable[[bytes, int], bytes]] = {
    "null": lambda data, most: data,
    "deflate": lambda data, most: zlib.decompressobj(-zlib.MAX_WBITS).decompress(data, most + 1),
    "bzip2": lambda data, most: bz2.BZ2Decompressor().decompress(data, most + 1),
    "xz": lambda data, most: lzma.LZMADecompressor().decompress(data, most + 1),
    "zstandard": lambda data, most: pa.CompressedInputStream(pa.BufferReader(data), "zstd").read(most + 1),
    "snappy": _snappy,
    "lz4": lambda data, most: pa.Codec("lz4_raw").decompress(data, decompressed_size=most, asbytes=True),
}
