"""What a replay changed in the published files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dagflow.storage.location import redacted
from dagflow.storage.pending import PendingFile


@dataclass(frozen=True, slots=True)
class FileChange:
    """What a replay did to one published file.

    Attributes:
        url: The file.
        change: "unchanged", "replaced", "added" or "removed".
        records_before: Records that the file held, 0 for a new file.
        records_after: Records that the file holds now, 0 for a removed file.
        size_before: Size before, in bytes.
        size_after: Size now, in bytes.
    """

    url: str
    change: str
    records_before: int
    records_after: int
    size_before: int
    size_after: int


@dataclass(frozen=True, slots=True)
class ReplayedWindow:
    """What a replay did to one window.

    Attributes:
        window_id: The window.
        changes: What happened to each file that the window had published, or publishes now.
    """

    window_id: int
    changes: tuple[FileChange, ...]


def file_changes(old: Sequence[PendingFile], new: Sequence[PendingFile]) -> Iterator[FileChange]:
    """What happened to each file, in the order of their names.

    Args:
        old: The files that a window had published.
        new: The files that it publishes now.
    """
    before = {file.final_url: file for file in old}
    after = {file.final_url: file for file in new}
    for url in sorted({*before, *after}):
        was, now = before.get(url), after.get(url)
        yield FileChange(
            redacted(url),
            _change(was, now),
            was.records if was else 0,
            now.records if now else 0,
            was.size_bytes if was else 0,
            now.size_bytes if now else 0,
        )


def _change(was: PendingFile | None, now: PendingFile | None) -> str:
    if was is None or now is None:
        return "added" if was is None else "removed"
    is_same = (was.size_bytes, was.crc32) == (now.size_bytes, now.crc32) and now.crc32 is not None
    return "unchanged" if is_same else "replaced"
