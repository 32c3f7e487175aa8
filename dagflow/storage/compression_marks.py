"""Recognises compressed files by their names and by their first bytes."""

from __future__ import annotations

from typing import NamedTuple

BZIP2_BLOCK = bytes.fromhex("314159265359")
BZIP2_END = bytes.fromhex("177245385090")
"""The first bytes of a bzip2 block, and of the end of a stream; one of them follows the digit of the level."""

HEAD_BYTES = 10
"""The number of first bytes of a file that decide its compression."""

SKIPPABLE_TAIL = b"\x2a\x4d\x18"
"""The bytes after the first byte, 0x50 to 0x5f, of a zstd frame without data."""


class CompressionMarks(NamedTuple):
    """The marks of a compression.

    Attributes:
        magic: The first bytes of its files.
        suffixes: The suffixes of their names.
    """

    magic: bytes
    suffixes: tuple[str, ...]


MARKS_BY_NAME = {
    "gzip": CompressionMarks(b"\x1f\x8b\x08", (".gz", ".tgz", ".bgz")),
    "bzip2": CompressionMarks(b"BZh", (".bz2",)),
    "xz": CompressionMarks(b"\xfd7zXZ\x00", (".xz",)),
    "zstd": CompressionMarks(b"\x28\xb5\x2f\xfd", (".zst", ".zstd")),
    "lz4": CompressionMarks(b"\x04\x22\x4d\x18", (".lz4",)),
    "snappy": CompressionMarks(b"\xff\x06\x00\x00sNaPpY", (".sz", ".snappy")),
}


def compression_name_of_content(head: bytes) -> str:
    """The compression of a file that begins with head, at least HEAD_BYTES of it if it is that long; "" for none.

    A file that begins with a frame without data is not recognised here: only later frames show its compression.
    """
    for name, marks in MARKS_BY_NAME.items():
        if head.startswith(marks.magic):
            # A text may begin with the same three letters.
            is_sure = name != "bzip2" or (head[3:4].isdigit() and head[4:10] in (BZIP2_BLOCK, BZIP2_END))
            return name if is_sure else ""
    return ""


def compression_name_of_url(url: str) -> str:
    """The compression that the suffix of a file's name indicates; "" for none."""
    lower = url.lower()
    return next((name for name, marks in MARKS_BY_NAME.items() if lower.endswith(marks.suffixes)), "")


def is_skippable(head: bytes) -> bool:
    """Whether a frame of zstd or lz4 without data begins like this."""
    return head[1:4] == SKIPPABLE_TAIL and head[0] & 0xF0 == 0x50
