"""Elements, read character by character from the beginning of the file."""

from __future__ import annotations

from tests.reference.lines import Records

_ASIDES = ((b"<!--", b"-->"), (b"<![CDATA[", b"]]>"), (b"<?", b"?>"))


def element_records(content: bytes, tag: bytes) -> tuple[Records, list[tuple[int, int]]]:
    """Return the outermost elements of one name, and the one that is never closed."""
    found: Records = []
    start = depth = position = 0
    while position < len(content):
        aside = next((pair for pair in _ASIDES if content.startswith(pair[0], position)), None)
        if aside is not None:
            end = content.find(aside[1], position + len(aside[0]))
            if end < 0:
                break
            position = end + len(aside[1])
        elif _is_tag(content, position, b"</" + tag, b" \t\r\n>") and depth:
            position = _after_tag(content, position)
            depth -= 1
            if not depth and position > 0:
                found.append((start, content[start:position]))
        elif _is_tag(content, position, b"<" + tag, b" \t\r\n/>"):
            start = start if depth else position
            end = _after_tag(content, position)
            is_empty = content[end - 2 : end] == b"/>"
            depth += not is_empty
            if is_empty and not depth:
                found.append((start, content[start:end]))
            if end < 0:
                depth = 1
                break
            position = end
        else:
            position += 1
        if position < 0:
            depth = 1
            break
    return found, [(start, len(content) - start)] if depth else []


def _is_tag(content: bytes, position: int, opening: bytes, following: bytes) -> bool:
    after = content[position + len(opening) : position + len(opening) + 1]
    return content.startswith(opening, position) and after != b"" and after in following


def _after_tag(content: bytes, position: int) -> int:
    """Return the offset after the `>` that ends a tag, ignoring quoted ones; -1 if there is none."""
    quote = b""
    while position < len(content):
        byte = content[position : position + 1]
        position += 1
        if quote:
            quote = b"" if byte == quote else quote
        elif byte in (b'"', b"'"):
            quote = byte
        elif byte == b">":
            return position
    return -1
