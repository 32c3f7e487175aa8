"""Lines in an encoding, read code unit by code unit from left to right."""

from __future__ import annotations

import codecs

from tests.reference.lines import Records

_SIZES = {"utf-16-le": 2, "utf-16-be": 2, "utf-32-le": 4, "utf-32-be": 4}
_MARKS = {
    "utf-16-le": codecs.BOM_UTF16_LE,
    "utf-16-be": codecs.BOM_UTF16_BE,
    "utf-32-le": codecs.BOM_UTF32_LE,
    "utf-32-be": codecs.BOM_UTF32_BE,
    "utf-8": codecs.BOM_UTF8,
}


def decoded_records(
    content: bytes, encoding: str, delimiter: str | None, on_bad_bytes: str
) -> tuple[Records, list[tuple[int, int]]]:
    """Return the records in UTF-8, and offset and length of the rejects; four NULs before a record are a hole."""
    name, position = _order_of(content, encoding)
    size = _SIZES.get(name, 1)
    endings = [text.encode(name) for text in (("\r\n", "\n", "\r") if delimiter is None else (delimiter,))]
    found: Records = []
    start = position
    while position < len(content):
        ending = next((ending for ending in endings if content.startswith(ending, position)), None)
        if ending is None:
            position += size
        else:
            found.append((start, content[start:position]))
            start = position = position + len(ending)
    if start < len(content):
        found.append((start, content[start:]))
    records: Records = []
    rejects: list[tuple[int, int]] = []
    for start, raw in found:
        nuls = len(raw) - len(raw.lstrip(b"\0"))
        hole = nuls // size * size if nuls >= 4 else 0
        offset, record = start + hole, raw[hole:]
        if hole and offset == len(content):
            continue
        try:
            records.append((offset, record.decode(name, "replace" if on_bad_bytes == "replace" else "strict").encode()))
        except UnicodeDecodeError:
            rejects.append((offset, len(record)))
    return records, rejects


def _order_of(content: bytes, encoding: str) -> tuple[str, int]:
    for name in (f"{encoding}-le", f"{encoding}-be", encoding):
        mark = _MARKS.get(name)
        if mark and content.startswith(mark) and (name == encoding or encoding in ("utf-16", "utf-32")):
            return name, len(mark)
    return (f"{encoding}-le" if encoding in ("utf-16", "utf-32") else encoding), 0
