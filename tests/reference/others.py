"""Paragraphs, entries and records with a length, read line by line or record by record."""

from __future__ import annotations

import re

from tests.reference.lines import Records


def _lines_of(content: bytes) -> list[tuple[int, bytes]]:
    """Return lines with their LF and offset."""
    found: list[tuple[int, bytes]] = []
    start = 0
    while start < len(content):
        end = content.find(b"\n", start) + 1 or len(content)
        found.append((start, content[start:end]))
        start = end
    return found


def _without_newline(text: bytes) -> bytes:
    return text.removesuffix(b"\n").removesuffix(b"\r") if text.endswith(b"\n") else text


def paragraph_records(content: bytes) -> Records:
    """Return groups of lines that hold a byte above 32."""
    found: Records = []
    is_open = False
    for start, line in _lines_of(content):
        has_ink = any(byte > 32 for byte in line)
        if has_ink and is_open:
            found[-1] = (found[-1][0], found[-1][1] + line)
        elif has_ink:
            found.append((start, line))
        is_open = has_ink
    return [(start, _without_newline(text)) for start, text in found]


def entry_records(content: bytes, pattern: str) -> Records:
    """Return lines that match a pattern of RE2, each with the following lines that do not."""
    # Python's own class has the vertical tab too.
    pattern = pattern.replace(r"\s", r"[\t\n\f\r ]")
    found: Records = []
    for start, line in _lines_of(content):
        if not found or re.match(pattern.encode(), _without_newline(line)):
            found.append((start, line))
        else:
            found[-1] = (found[-1][0], found[-1][1] + line)
    return [(start, _without_newline(text)) for start, text in found]


def prefixed_records(
    content: bytes, prefix: int | str, byte_order: str, longest: int
) -> tuple[Records, list[tuple[int, int]]]:
    """Return records with a length before them, and the range that is rejected."""
    found: Records = []
    position = 0
    while position < len(content):
        read = _varint(content, position) if prefix == "varint" else _number(content, position, int(prefix), byte_order)
        if read is None or read[0] > longest or read[1] + read[0] > len(content):
            return found, [(position, len(content) - position)]
        length, start = read
        found.append((position, content[start : start + length]))
        position = start + length
    return found, []


def _number(content: bytes, position: int, width: int, byte_order: str) -> tuple[int, int] | None:
    raw = content[position : position + width]
    if len(raw) < width:
        return None
    return int.from_bytes(raw, "little" if byte_order == "little" else "big"), position + width


def _varint(content: bytes, position: int) -> tuple[int, int] | None:
    length = 0
    for index, byte in enumerate(content[position : position + 10]):
        length += (byte % 128) << (7 * index)
        if byte < 128:
            return length, position + index + 1
    return None
