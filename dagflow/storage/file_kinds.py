"""Recognises files by their first bytes and names: compressions, files without text, and wide encodings."""

from __future__ import annotations

import codecs
import re
from typing import NamedTuple

KIND_BYTES = 265
"""The number of first bytes of a file that decide its kind: the mark of a tar archive stands behind its first name."""

TAR_MARK = 257
"""Where the mark of a tar archive stands."""

_KINDS = {
    rb"PK\x03\x04.{26}(?:\[Content_Types\]\.xml|_rels/\.rels|docProps/|xl/|mimetypeapplication/vnd\.oasis\.open"
    rb"document\.spreadsheet)": "a workbook of Excel or another Office program",
    rb"PK(?:\x03\x04|\x05\x06|\x07\x08)": "a zip archive",
    rb"7z\xbc\xaf\x27\x1c": "a 7z archive",
    rb"Rar!\x1a\x07": "a rar archive",
    rb".{257}ustar[\0 ]": "a tar archive",
    rb"\x1f[\x9d\xa0]": "compressed by compress, as .Z",
    rb"LZIP": "compressed by lzip",
    rb"\x89LZO\0": "compressed by lzop",
    rb"[\x51\x5d\x5e]\0\0.{2}(?:\xff{8}|.{3}\0{4}.|.{4}\0{4})": "compressed as .lzma, an older form of xz",
    rb"PAR[1E][\0-\x1f]": "Parquet",
    rb"ORC.{0,12}[\0-\x08]": "ORC",
    rb"Obj\x01": "Avro",
    rb"ARROW1\0": "Arrow or Feather",
    rb"\xff{4}.{2}\0\0[\x08-\x20]\0\0\0": "an Arrow stream",
    rb"SQLite format 3\0": "an SQLite database",
    rb"%PDF-": "PDF",
    rb"\x89PNG|\xff\xd8\xff|GIF8[79]a|II\*\0|MM\0\*|RIFF.{4}WEBP": "a picture",
    rb"\xd0\xcf\x11\xe0\xa1\xb1": "a document of an older Word or Excel",
    rb"\x89HDF\r\n": "HDF5",
    rb"\x7fELF|\xca\xfe\xba\xbe": "a program",
}
FORMAT_BY_KIND = {
    "Parquet": "parquet",
    "Arrow or Feather": "arrow",
    "an Arrow stream": "arrow",
    "ORC": "orc",
    "Avro": "avro",
    "a workbook of Excel or another Office program": "excel",
    "a document of an older Word or Excel": "excel",
}
"""The record formats that read kinds of files which are no text, and hold columns."""

UNTYPED_FORMATS = ("excel",)
"""Those of them whose files say nothing of the types of columns."""

PAIRS = (
    b"PK 7z Ra LZ \x89L \x1f\x9d \x1f\xa0 \x51\0 \x5d\0 \x5e\0 PA OR Ob AR SQ %P \x89P \xff\xd8 GI II MM RI \xd0\xcf "
    b"\x89H \x7fE \xca\xfe \xff\xff"
).split(b" ")
"""The first two bytes of all kinds but tar archives."""

_MAGIC = re.compile(b"|".join(b"(%b)" % magic for magic in _KINDS), re.DOTALL)
_BY_SUFFIX = {".br": "Brotli", ".lzma": "LZMA", ".lz": "lzip", ".lzo": "lzop", ".z": "compress"}
"""Compressions that are named by suffixes of names; the content of some does not show them."""

_NAMES = re.compile("|".join(rf"{re.escape(suffix)}\0" for suffix in _BY_SUFFIX), re.IGNORECASE)


def kind_of_content(head: bytes) -> str:
    """What a file is that begins with head, at least KIND_BYTES of it if it is that long; "" if it may be text."""
    match = _MAGIC.match(head)
    return list(_KINDS.values())[match.lastindex - 1] if match and match.lastindex else ""


def has_name_of_a_kind(names: str) -> bool:
    """Whether one of many names, each with a zero byte behind it, has the suffix of a compression that is not read."""
    return _NAMES.search(names) is not None


def kind_of_name(url: str) -> str:
    """The compression that the suffix of a file's name indicates and that dagflow does not read; "" for none."""
    suffix = next((suffix for suffix in _BY_SUFFIX if url.lower().endswith(suffix)), "")
    return f"compressed by {_BY_SUFFIX[suffix]}, as its name ends in {suffix}" if suffix else ""


TEXT_HEAD_BYTES = 256
"""How many first bytes of a file decide whether it is text in a wide encoding."""

# In this order: the mark of UTF-16 begins that of UTF-32.
_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


def wide_encoding(head: bytes) -> tuple[str, str]:
    """The encoding of wide units that a file is in, and what shows it; two empty texts if it is in none."""
    marked = next((name for mark, name in _MARKS.items() if head.startswith(mark)), "")
    if marked:
        return marked, "by its byte order mark"
    orders = ("utf-32-le", "utf-32-be", "utf-16-le", "utf-16-be") if b"\0" in head else ()
    unmarked = next((name for name in orders if _is_text_in(name, head[:TEXT_HEAD_BYTES])), "")
    return unmarked, "by the zero bytes of its characters" if unmarked else ""


def _is_text_in(name: str, head: bytes) -> bool:
    """Whether bytes are text in an encoding of wide units; text of bytes that holds some zeros is not.

    A few zeros in short binary data prove nothing: several characters must be ASCII, and a good part of all.
    """
    try:
        text = codecs.getincrementaldecoder(name)().decode(head)
    except UnicodeDecodeError:
        return False
    plain = sum("\0" < character < "\x80" for character in text)
    are_newlines = head.count(b"\n") <= 2 * text.count("\n")
    return plain > 3 and 8 * plain >= len(text) and "\0" not in text and are_newlines


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
    lower = url.lower()
    return next((name for name, marks in MARKS_BY_NAME.items() if lower.endswith(marks.suffixes)), "")


def is_skippable(head: bytes) -> bool:
    """Whether a frame of zstd or lz4 without data begins like this."""
    return head[1:4] == SKIPPABLE_TAIL and head[0] & 0xF0 == 0x50
