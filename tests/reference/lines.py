"""Lines and fixed records, read byte by byte from left to right."""

from __future__ import annotations

Records = list[tuple[int, bytes]]


def newline_records(content: bytes) -> Records:
    """Return lines that end with LF, CR LF or CR."""
    found: Records = []
    start = position = 0
    while position < len(content):
        if content[position : position + 2] == b"\r\n":
            found.append((start, content[start:position]))
            start = position = position + 2
        elif content[position : position + 1] in (b"\r", b"\n"):
            found.append((start, content[start:position]))
            start = position = position + 1
        else:
            position += 1
    if start < len(content):
        found.append((start, content[start:]))
    return found


def delimited_records(content: bytes, delimiter: bytes) -> Records:
    """Return records that end with one delimiter."""
    found: Records = []
    start = position = 0
    while position < len(content):
        if content.startswith(delimiter, position):
            found.append((start, content[start:position]))
            start = position = position + len(delimiter)
        else:
            position += 1
    if start < len(content):
        found.append((start, content[start:]))
    return found


def fixed_records(content: bytes, length: int) -> Records:
    """Return records of one length; the last one may be shorter."""
    return [(start, content[start : start + length]) for start in range(0, len(content), length)]


def without_header(records: Records, count: int) -> Records:
    """Return the records after the first `count`."""
    return records[count:]


def without_long(records: Records, longest: int, action: str) -> tuple[Records, list[tuple[int, int]]]:
    """Return records and rejects after on_long was applied."""
    if action == "cut":
        return [(offset, record[:longest]) for offset, record in records], []
    kept = [(offset, record) for offset, record in records if len(record) <= longest]
    refused = [(offset, longest) for offset, record in records if len(record) > longest]
    return kept, refused if action == "reject" else []
