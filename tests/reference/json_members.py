"""The members of a JSON array, read character by character from the beginning of the file."""

from __future__ import annotations

import json

from tests.reference.json_lines import json_records
from tests.reference.lines import Records

_WHITE = b" \t\r\n"


def member_records(content: bytes, path: list[str], objects: bool) -> tuple[Records, list[tuple[int, int]]]:
    """Return the members of the array at a path of names, and what is refused."""
    if not content:
        return [], []
    position = _text(content, 3 if content.startswith(b"\xef\xbb\xbf") else 0)
    for name in path:
        found = _value_of(content, position, name) if content[position : position + 1] == b"{" else None
        if found is None:
            return [], [(0, len(content))]
        position = found
    if content[position : position + 1] != b"[":
        return [], [(0, len(content))]
    records: Records = []
    rejects: list[tuple[int, int]] = []
    separator, is_first = position, True
    while True:
        end, is_closed = _separator(content, separator + 1)
        start = _text(content, separator + 1)
        if end == len(content):
            rejects.append((separator, 0) if start == end else (start, end - start))
            return records, rejects
        stop = separator + 1 + len(content[separator + 1 : end].rstrip(_WHITE))
        if start < stop:
            member = content[start:stop]
            # As one line: white space between the parts of a value means nothing.
            valid, _ = json_records(_one_line(member), objects)
            if valid:
                records.append((start, member))
            else:
                rejects.append((start, len(member)))
        elif not (is_first and is_closed):
            rejects.append((end, 1))
        separator, is_first = end, False
        if is_closed:
            break
    level, in_string, position = 0, False, separator + 1
    while position < len(content) and level > -len(path):
        in_string, step = _step(content, position, in_string)
        level += step
        position += 1
    other = _text(content, position)
    if other < len(content):
        rejects.append((other, len(content) - other))
    return records, rejects


def _one_line(member: bytes) -> bytes:
    """A value without the newlines that lie between its parts; others stay, and make it invalid."""
    out, in_string = bytearray(), False
    for at in range(len(member)):
        in_string, _ = _step(member, at, in_string)
        out += b" " if member[at : at + 1] in (b"\n", b"\r") and not in_string else member[at : at + 1]
    return bytes(out)


def _text(content: bytes, position: int) -> int:
    while position < len(content) and content[position : position + 1] in _WHITE:
        position += 1
    return position


def _is_escaped(content: bytes, position: int) -> bool:
    count = 0
    while position - count > 0 and content[position - count - 1 : position - count] == b"\\":
        count += 1
    return count % 2 == 1


def _step(content: bytes, position: int, in_string: bool) -> tuple[bool, int]:
    byte = content[position : position + 1]
    if byte == b'"' and not _is_escaped(content, position):
        return not in_string, 0
    if in_string:
        return True, 0
    return False, 1 if byte in (b"[", b"{") else -1 if byte in (b"]", b"}") else 0


def _separator(content: bytes, position: int) -> tuple[int, bool]:
    level, in_string = 0, False
    while position < len(content):
        in_string, step = _step(content, position, in_string)
        level += step
        if level < 0:
            return position, True
        if level == 0 and not in_string and content[position : position + 1] == b",":
            return position, False
        position += 1
    return position, False


def _value_of(content: bytes, position: int, name: str) -> int | None:
    is_closed = False
    while not is_closed and position < len(content):
        begin = _text(content, position + 1)
        if content[begin : begin + 1] == b'"':
            end = begin + 1
            while end < len(content) and not (content[end : end + 1] == b'"' and not _is_escaped(content, end)):
                end += 1
            colon = _text(content, end + 1)
            try:
                found = json.loads(content[begin : end + 1])
            except ValueError:
                found = None
            if found == name and content[colon : colon + 1] == b":":
                return _text(content, colon + 1)
        position, is_closed = _separator(content, position + 1)
    return None
