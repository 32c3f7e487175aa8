"""Lines with escapes, read byte by byte from left to right."""

from __future__ import annotations

from tests.reference.lines import Records


def escaped_records(content: bytes, delimiter: bytes | None, escape: bytes) -> Records:
    """Return records in which an escape makes the next byte literal, so that no delimiter begins there."""
    found: Records = []
    start = position = 0
    while position < len(content):
        length = _delimiter_at(content, position, delimiter)
        if content[position : position + 1] == escape:
            position += 2
        elif length:
            found.append((start, content[start:position]))
            start = position = position + length
        else:
            position += 1
    if start < len(content):
        found.append((start, content[start:]))
    return found


def _delimiter_at(content: bytes, position: int, delimiter: bytes | None) -> int:
    if delimiter is not None:
        return len(delimiter) if content.startswith(delimiter, position) else 0
    if content.startswith(b"\r\n", position):
        return 2
    return int(content[position : position + 1] in (b"\r", b"\n"))


def unescaped(record: bytes, escape: bytes) -> bytes:
    """Return the record without its escapes; an escape at its end stays."""
    kept = bytearray()
    position = 0
    while position < len(record):
        if record[position : position + 1] == escape and position + 1 < len(record):
            position += 1
        kept += record[position : position + 1]
        position += 1
    return bytes(kept)
