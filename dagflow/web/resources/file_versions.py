"""What windows have recorded of the versions of files: ranges, refused records and outputs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from dagflow.api.context import VersionKey
from dagflow.api.sources import is_source_range
from dagflow.journal.windows import Window
from dagflow.report.input_ranges import InputRange
from dagflow.report.manifest import TrackedFile
from dagflow.report.open_rejects import WindowRejects, rejects_of
from dagflow.storage.location import redacted


@dataclass(slots=True)
class KnownVersion:
    """What the windows that were looked at have recorded of one version of a file.

    `retried` holds refused records that a later window has taken over, with their bytes and the window that had refused
    them. They are not among the rejects.
    """

    tracked: TrackedFile
    times: dict[str, int] = field(default_factory=dict)
    ranges: list[dict[str, Any]] = field(default_factory=list)
    rejects: list[dict[str, Any]] = field(default_factory=list)
    rejected: int = 0
    retried: list[tuple[range, int]] = field(default_factory=list)

    @property
    def part(self) -> InputRange:
        """A range of the version, which says what version it is."""
        return self.tracked.part

    def reject_at(self, offset: int) -> dict[str, Any] | None:
        """The refused record that has a byte of the content; None for none, or one that a later window took over."""
        return next((each for each in self.rejects if offset in bytes_of(each)), None)

    def refused_before(self, offset: int) -> set[int]:
        """The windows that had refused a record with a byte of the content, which a later window took over."""
        return {window_id for taken, window_id in self.retried if offset in taken}

    def to_json(self) -> dict[str, Any]:
        """The fields that every list of versions shows."""
        return {
            "url": redacted(self.part.url),
            "size_bytes": self.part.size_bytes,
            "mtime_ms": self.part.mtime_ns // 1_000_000,
            "etag": self.part.etag,
            "state": self.tracked.ranges.state,
            "windows": sorted(self.tracked.windows),
            "times": self.times,
            "rejected": self.rejected,
        }


def refused_in(window: Window) -> Iterator[tuple[WindowRejects, dict[int, VersionKey]]]:
    """What each operator refused in a window, with the version of the file that each block is of."""
    if window.intent is None or not window.intent.refused:
        return
    for rejects in rejects_of(window):
        # By block, because offsets of records in a compressed file are offsets in its content, and the ranges of
        # windows are offsets in the file as it is stored.
        yield rejects, {block_id: _version_of(block) for block_id, block in rejects.blocks.items()}


def _version_of(block: Any) -> VersionKey:
    if not is_source_range(block):
        return "", 0, 0, ""  # no list of versions has it
    return block.url, block.version.size_bytes, block.version.mtime_ns, block.version.etag


def bytes_of(reject: dict[str, Any]) -> range:
    """The byte range of a refused record in the content of its file, of at least one byte: some records are empty."""
    return range(reject["offset"], reject["offset"] + max(reject["length"], 1))
