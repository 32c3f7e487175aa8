"""Groups of source files by their paths: each group has merged files of its own."""

from __future__ import annotations

import os

from dagflow.api.regular_expressions import found_in
from dagflow.storage.partition_names import NAME_BYTES, NO_VALUE, escaped, shortened

UNMATCHED = "other"
"""The group of paths that a pattern without named groups does not match."""


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
            return "/".join(f"{name}={NO_VALUE}" for name in names) or UNMATCHED
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
    text = escaped(shown) or NO_VALUE
    text = text if text[0] not in "._" or not shown else f"%{ord(text[0]):02X}{text[1:]}"
    room = NAME_BYTES - taken
    # Texts that look the same, and texts that are cut alike, each get a directory of their own.
    return text if shown == value and len(text.encode()) <= room else shortened(text, raw, room)
