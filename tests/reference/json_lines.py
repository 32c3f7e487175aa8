"""JSON lines, read line by line with Python's own parser."""

from __future__ import annotations

import json
from typing import Any

from tests.reference.lines import Records


def json_records(content: bytes, must_be_object: bool) -> tuple[Records, list[tuple[int, int]]]:
    """Return the lines that are JSON, and the rejects, which are neither JSON nor blank."""
    found: Records = []
    rejects: list[tuple[int, int]] = []
    start = 0
    while start < len(content):
        end = content.find(b"\n", start)
        line = content[start:] if end < 0 else content[start:end].removesuffix(b"\r")
        value = _value_of(line)
        if value is not None and (isinstance(value[0], dict) or not must_be_object):
            found.append((start, line))
        elif line.strip(b" \t\r"):
            rejects.append((start, len(line)))
        start = len(content) if end < 0 else end + 1
    return found, rejects


def _value_of(line: bytes) -> tuple[Any] | None:
    try:
        value = json.loads(line.decode(), parse_constant=_refuse)
        # Python accepts one half of a surrogate pair; UTF-8 does not.
        json.dumps(value, ensure_ascii=False).encode()
    except ValueError:
        return None
    return (value,)


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
