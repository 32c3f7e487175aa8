"""Which versions of which files were taken: what keeps a file from being read twice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple


class Seen(NamedTuple):
    """The version of a file that was taken.

    Attributes:
        size_bytes: Its length; -1 for a directory.
        mtime_ns: Its modification time in nanoseconds since 1970.
        etag: The store's own tag of the content; "" where it has none.
        file_id: Its identity on its file system; 0 where unknown.
        taken_millis: When it was taken, in milliseconds since 1970.
    """

    size_bytes: int
    mtime_ns: int
    etag: str
    file_id: int
    taken_millis: int = 0


@dataclass(slots=True)
class FileIndex:
    """The versions that were taken, by path."""

    recent: dict[bytes, Seen]

    def snapshot(self) -> dict[str, Any]:
        """State."""
        return {"recent": [(key, *seen) for key, seen in self.recent.items()]}

    def restore(self, state: dict[str, Any]) -> None:
        """Take back."""
        self.recent = {entry[0]: Seen(*entry[1:]) for entry in state["recent"]}
