"""CSV, read byte by byte from left to right."""

from __future__ import annotations

from dataclasses import dataclass

from tests.reference.lines import Records


@dataclass
class CsvRow:
    """A row: its offset, its bytes, its fields, and whether its quotes are closed, and only at the end of fields."""

    offset: int
    raw: bytes
    fields: list[bytes]
    is_closed: bool = True
    is_strict: bool = True


def csv_rows(
    content: bytes, delimiter: bytes = b",", quote: bytes | None = b'"', escape: bytes | None = None
) -> list[CsvRow]:
    """Return every row, also empty lines."""
    rows: list[CsvRow] = []
    start = position = 0
    while position < len(content):
        fields: list[bytes] = []
        is_row_strict = True
        while True:
            field, position, is_closed, is_strict = _field(content, position, delimiter, quote, escape)
            fields.append(field)
            is_row_strict &= is_strict
            if content[position : position + 1] != delimiter:
                break
            position += 1
        rows.append(CsvRow(start, content[start:position], fields, is_closed, is_row_strict))
        position += 2 if content[position : position + 2] == b"\r\n" else 1
        start = position
    return rows


def _field(
    content: bytes, position: int, delimiter: bytes, quote: bytes | None, escape: bytes | None
) -> tuple[bytes, int, bool, bool]:
    """Return the field at an offset, its end, and whether its quote is closed, and closed at its end."""
    field = bytearray()
    is_inside = content[position : position + 1] == quote
    position += is_inside
    closed_at = -1
    while position < len(content):
        byte = content[position : position + 1]
        if byte == escape:
            field += content[position + 1 : position + 2]
            position += 2
        elif is_inside and byte == quote:
            if content[position + 1 : position + 2] == quote:
                field += byte
                position += 2
            else:
                is_inside = False
                position += 1
                closed_at = position
        elif not is_inside and byte in (delimiter, b"\r", b"\n"):
            return bytes(field), position, True, closed_at in (-1, position)
        else:
            field += byte
            position += 1
    end = min(position, len(content))
    return bytes(field), end, not is_inside, closed_at in (-1, end)


def csv_records(rows: list[CsvRow], width: int, *, keeps: bool = False) -> tuple[Records, list[tuple[int, int]]]:
    """Return the rows with this many fields, and the others; empty lines are neither.

    Args:
        rows: All rows.
        width: How many fields there should be.
        keeps: Whether rows with text behind a closing quote are kept.
    """
    there = [row for row in rows if row.raw]
    whole = [row for row in there if row.is_closed and (row.is_strict or keeps)]
    good = [row for row in whole if len(row.fields) == width and _is_text(row.raw)]
    bad = [row for row in there if row not in good]
    return [(row.offset, row.raw) for row in good], [(row.offset, len(row.raw)) for row in bad]


def _is_text(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True
