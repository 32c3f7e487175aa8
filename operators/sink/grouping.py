"""Groups of source files by their paths: each group has merged files of its own."""

from __future__ import annotations

import hashlib
import os
import re
from urllib.parse import quote

from dagflow.api.regular_expressions import found_in

UNMATCHED = "other"
"""The group of paths that a pattern without named groups does not match."""

_NULL = "__HIVE_DEFAULT_PARTITION__"
"""The value of a partition column that is missing."""

_PLAIN = "!$&'()*+,;:@ "
"""Characters that stay unchanged in a directory's name."""


class Grouping:
    """Names the group of a path, which is the directory that its merged file is published in.

    Args:
        pattern: "" puts all into one group; "directory" keeps each directory apart; anything else is a regular
            expression that is searched in the path. Its named groups give `name=value` directories, as readers of
            partitioned tables expect them; without names its groups' texts do; without groups the whole match.
    """

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern if pattern not in ("", "directory") else ""
        self._by_directory = pattern == "directory"
        self._known: dict[str, str] = {}

    def group_of(self, path: str) -> str:
        """The directory below that of the output; "" for that directory itself."""
        if self._by_directory:
            return path.rpartition("/")[0].lstrip("/")
        if not self._pattern:
            return ""
        groups, names = found_in(self._pattern, path)
        if not groups:
            # Readers of tables refuse a whole table if one of its directories is no partition.
            return "/".join(f"{name}={_NULL}" for name in names) or UNMATCHED
        if names:
            return "/".join(f"{name}={_safe(groups[at], len(name) + 1)}" for name, at in names.items())
        return "/".join(map(_safe, groups[1:] or groups))


def _safe(value: str, taken: int = 0) -> str:
    """A text as the name of a directory that no reader skips.

    Args:
        value: The text.
        taken: How many bytes precede it in the name.
    """
    raw = os.fsencode(value)
    # If a byte that is no text is escaped on its own, DuckDB and Arrow refuse the whole table.
    shown = raw.decode("utf-8", "backslashreplace")
    # Letters of all scripts stay: Spark reads an escape as a character, not as a byte of one, and a name has no room
    # for three times as many bytes.
    parts = (part if part.isprintable() and not part.isascii() else _quoted(part) for part in _PARTS.findall(shown))
    text = "".join(parts)
    if not text:
        return _NULL
    text = text if text[0] not in "._" else f"%{ord(text[0]):02X}{text[1:]}"
    room = _NAME_BYTES - taken
    if shown == value and len(text.encode()) <= room:
        return text
    # Texts that look the same, and texts that are cut alike, each get a directory of their own.
    mark = f"-{hashlib.sha256(raw).hexdigest()[:16]}"
    # Neither a letter nor an escape is cut.
    head = text.encode()[: room - len(mark)].decode(errors="ignore")
    return re.sub("%[0-9A-F]?$", "", head) + mark


def _quoted(text: str) -> str:
    return quote(text, safe=_PLAIN)


_PARTS = re.compile(r"[\x00-\x7f]+|[^\x00-\x7f]", re.DOTALL)
"""Runs of ASCII, and other characters one by one."""

_NAME_BYTES = 255
"""The longest name of a directory, in bytes, on most file systems."""
