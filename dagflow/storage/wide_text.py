"""Recognises text in UTF-16 and UTF-32, which is made of units of two or four bytes."""

from __future__ import annotations

import codecs

HEAD_BYTES = 256
"""How many first bytes of a file decide."""

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
    unmarked = next((name for name in orders if _is_text_in(name, head[:HEAD_BYTES])), "")
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
