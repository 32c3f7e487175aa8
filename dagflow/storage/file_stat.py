"""One version of a file, and how it is distinguished from another."""

from __future__ import annotations

from dataclasses import dataclass

from dagflow.errors import SourceChangedError
from dagflow.storage.fingerprint import UNKNOWN
from dagflow.storage.location import redacted


@dataclass(frozen=True, slots=True)
class FileStat:
    """A file or directory, by the information of its store.

    Attributes:
        url: Its location.
        size_bytes: Its size; 0 for a directory.
        mtime_ns: Its modification time in nanoseconds since 1970; 0 where the store has none.
        etag: The store's own tag of the content; "" where it has none.
        is_directory: Whether it is a directory.
        fingerprint: For a planned version that may have been appended to since: its head/tail fingerprint, by which the
            first size_bytes are recognised. 0 where none was taken.
        file_id: Inode number, see file_id_of(): a file keeps it when it is appended to or renamed; 0 where unknown.
    """

    url: str
    size_bytes: int
    mtime_ns: int = 0
    etag: str = ""
    is_directory: bool = False
    fingerprint: int = UNKNOWN
    file_id: int = 0

    def difference(self, now: FileStat) -> str:
        """How a later look at the same file differs, in words; "" for the same version.

        Etags decide where both have one: object stores report times in whole seconds.
        """
        if self.size_bytes != now.size_bytes:
            return f"it had {self.size_bytes} bytes, now it has {now.size_bytes}"
        if self.etag and now.etag:
            was, etag = _opaque(self.etag), _opaque(now.etag)
            return "" if was == etag else f"its etag was {was}, now it is {etag}"
        if self.mtime_ns and now.mtime_ns and self.mtime_ns != now.mtime_ns:
            return f"it was modified at {self.mtime_ns} ns, now at {now.mtime_ns} ns since 1970"
        if self.file_id and now.file_id and self.file_id != now.file_id:
            return "it is another file of the same name, size and time"
        return ""


def _opaque(etag: str) -> str:
    # A server may send the strong form of a tag in one answer and the weak one, W/"...", in another.
    return etag.removeprefix('W/"')


def require_same_version(expected: FileStat | None, found: FileStat) -> None:
    """Refuse a file that is not the planned version.

    Raises:
        SourceChangedError: The file has another version; the message names the difference.
    """
    difference = expected.difference(found) if expected is not None else ""
    if difference:
        raise SourceChangedError(
            f"the file changed after it was planned: {difference}",
            url=redacted(found.url),
            is_rewritten=bool(found.file_id and expected is not None and expected.file_id == found.file_id),
        )
