"""The verdicts on files that may be known under another name."""

from __future__ import annotations

import os
from collections.abc import Container
from dataclasses import dataclass
from typing import Literal

from dagflow.storage.fingerprint import file_id_of
from operators.files.rotation_names import uncompressed
from operators.files.source_events import Fate
from operators.splitter.index.entries import IndexEntry
from operators.splitter.index.fingerprinting import FilePrefix
from operators.splitter.index.version_slots import EARLIER, PART, SHORTER
from operators.splitter.scan.listed_files import ListedFiles
from operators.splitter.scan.listed_stats import ListedStat

Outcome = Literal["new", "moved", "changed", "later", "again"]


@dataclass(frozen=True, slots=True)
class Suspect:
    """A listed file that may be known under another name.

    Attributes:
        files: The file, alone.
        entry: The version that was taken under its name; None for none.
    """

    files: ListedFiles
    entry: IndexEntry | None

    @property
    def path(self) -> bytes:
        """Its path."""
        return self.files.keys[0]

    @property
    def name(self) -> bytes:
        """Its name in the index."""
        return self.files.index_names[0]

    @property
    def stat(self) -> ListedStat:
        """The listed version."""
        return self.files.stats[0]

    @property
    def is_compressed(self) -> bool:
        """Whether its name has the suffix of a compression."""
        return uncompressed(self.path) != self.path

    def prefix(self, size_bytes: int) -> FilePrefix:
        """Its first bytes."""
        return FilePrefix(self.path, size_bytes, self.stat.file_id)

    def is_older_than(self, entry: IndexEntry) -> bool:
        """Whether it has an earlier time than a version; compressing programs keep times, some of them in seconds."""
        return self.stat.mtime_ns // 1_000_000_000 < entry.mtime_ns // 1_000_000_000

    def is_behind(self, path: bytes) -> bool:
        """Whether another path leads through links to the name under which the scan reads this file.

        Such a path is no second name of it: a scan skips it. Links above the location of the scan that both paths have
        in common do not count.
        """
        if (real := os.path.realpath(path)) == path:
            return False
        common = os.path.commonpath([path, os.path.dirname(self.files.root.base)])
        return real == os.path.join(os.path.realpath(common), os.path.relpath(self.path, common))

    def is_still_there(self, given: Container[int]) -> bool:
        """Whether the listed file still exists, and is not shorter.

        Args:
            given: Identities of files that the scan emitted: one of these with a single link had another name then.
        """
        now = stat_behind_links(self.path)
        if now is None or file_id_of(now.st_ino) != self.stat.file_id or now.st_size < self.stat.size_bytes:
            return False
        return self.stat.file_id not in given or now.st_nlink > 1

    def is_exactly_as_listed(self) -> bool:
        """Whether the listed version still exists."""
        now, listed = stat_behind_links(self.path), self.stat
        version = listed.file_id, listed.size_bytes, listed.mtime_ns
        return now is not None and (file_id_of(now.st_ino), now.st_size, now.st_mtime_ns) == version


@dataclass(frozen=True, slots=True)
class Source:
    """A version that was taken, and that may be under another name now.

    Attributes:
        name: Its name in the index.
        path: The path that it had.
        entry: The version.
    """

    name: bytes
    path: bytes
    entry: IndexEntry

    @property
    def taken_name(self) -> bytes:
        """The name under which the version was taken, or of the rest behind it that may not be read yet."""
        return self.name.removesuffix(SHORTER).removesuffix(PART)

    @property
    def is_earlier(self) -> bool:
        """Whether the path has held another version since."""
        return EARLIER in self.name


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on a suspect.

    Attributes:
        suspect: The suspect.
        outcome: A new file; one that moved here from another name; a change of the file that was taken under its
            name; not known before a later scan; or not known because it changed during this one.
        source: The version that it was under its former name.
        start: How many bytes were read under the other name; for a compressed file, of its content.
        has_more: Whether it has bytes behind these.
        is_content: Whether the content of a compressed file was recognised. The inode proves nothing then: the file may
            have got that of the uncompressed file.
        is_copy: Whether it is another file than the one that was read, which nothing is appended to.
    """

    suspect: Suspect
    outcome: Outcome
    source: Source | None = None
    start: int = 0
    has_more: bool = False
    is_content: bool = False
    is_copy: bool = False

    @property
    def is_read(self) -> bool:
        """Whether all of it was read, also a last record without delimiter."""
        entry = None if self.source is None else self.source.entry
        return not (entry is None or self.has_more or entry.rest_bytes or entry.fate is not Fate.READ)


def stat_behind_links(path: bytes) -> os.stat_result | None:
    """The current version of the file that a path leads to; None if there is none, or it cannot be examined.

    The file may have another name now, and a link under this one: see Suspect.is_behind().
    """
    try:
        return os.stat(path)
    except OSError:
        return None
