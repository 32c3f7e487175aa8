"""Rules for which files of a scan are read: changed and incomplete files, and how versions are compared."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

from dagflow.api.properties import Millis
from dagflow.storage.fingerprint import UNKNOWN, file_id_of
from operators.files.metadata import FileVersion
from operators.files.source_events import Fate
from operators.splitter.index.entries import IndexEntry
from operators.splitter.index.fingerprinting import FilePrefix
from operators.splitter.index.index_view import IndexEntries
from operators.splitter.scan.listed_files import ListedFiles
from operators.splitter.scan.listing import ListedStats
from operators.splitter.scan.walk import FIRST_STEP, LAST_STEP

ROTATED_MILLIS = 1000
"""How long a rotated file must be unchanged to be over, while files are followed: its writer may still have it open."""

Change = Literal["appended", "replaced", "truncated"]
Action = Literal["tail", "reread", "ignore", "fail"]


class OnChange(BaseModel):
    """The policy for files that changed after they were taken.

    Each change is logged and counted, whatever the policy.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    appended: Annotated[
        Literal["tail", "reread", "ignore", "fail"],
        Field(description="the same file got longer: read what was added, or all of it again"),
    ] = "tail"
    replaced: Annotated[
        Literal["reread", "ignore", "fail"], Field(description="another content under the same name: read it as new")
    ] = "reread"
    truncated: Annotated[
        Literal["reread", "ignore", "fail"], Field(description="the same file got shorter: read it as new")
    ] = "reread"

    def action(self, change: Change) -> Action:
        return {"appended": self.appended, "replaced": self.replaced, "truncated": self.truncated}[change]

    def remedy(self, change: Change) -> str:
        """Advice for a change that fails a run, so that no data is skipped, or read again unchanged."""
        if change == "appended":
            return "to read the added bytes, set on_change: {appended: tail} on the splitter"
        return (
            "to read the present content as a new file, beside the published output of the old one, set "
            f"on_change: {{{change}: reread}} on the splitter"
        )

    @property
    def needs_fingerprints(self) -> bool:
        """Whether an append must be distinguished from a rewrite in place."""
        return self.appended != self.replaced


class UnterminatedWait(BaseModel):
    """How long a last record without delimiter waits for its end, if its file stays unchanged."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    wait_millis: Annotated[Millis, Field(description="time since the file was found as it is")] = 60_000


def wait_millis_of(unterminated: Literal["keep", "wait"] | UnterminatedWait | None, *, may_grow: bool) -> int | None:
    """How long a last record without delimiter waits for its end: 0 for not at all, None for any time.

    Args:
        may_grow: Whether files may be appended to while they are read, if the property does not say it.
    """
    if unterminated is None:
        unterminated = UnterminatedWait() if may_grow else "keep"
    if isinstance(unterminated, UnterminatedWait):
        return unterminated.wait_millis
    return None if unterminated == "wait" else 0


class SeenRetention(BaseModel):
    """How long the index remembers that a file was taken.

    A file that still exists after that is read again.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    millis: Annotated[Millis, Field(description="time since the file was taken")]


@dataclass(frozen=True, slots=True)
class CompletenessRules:
    """The app's rules for when a file is complete.

    Attributes:
        done_marker: Name of the file that marks another one as complete, with `{name}` for that one's name; "" for
            none.
    """

    min_age_millis: int = 0
    done_marker: str = ""

    @property
    def is_checked(self) -> bool:
        return bool(self.min_age_millis or self.done_marker)

    def is_complete(self, files: ListedFiles, index: int, now_millis: int) -> bool:
        if files.is_directory(index):
            return True
        age_millis = now_millis - int(files.stats.mtime_ns[index]) // 1_000_000
        if self.min_age_millis and age_millis < self.min_age_millis:
            return False
        if not self.done_marker:
            return True
        lister = files.root.lister
        directory, _, name = files.keys[index].rpartition(b"/")
        marker = self.done_marker.replace("{name}", lister.url(name))
        return lister.kind(directory + b"/" + marker.encode("utf-8", "surrogateescape")) is not None

    def as_complete(self, files: ListedFiles, index: int) -> ListedFiles:
        """One of the complete files, in its current version.

        The file may have been listed before its marker was found, and completed since.
        """
        file = files.slice(index, index + 1)
        if not self.done_marker or not files.root.is_local or files.is_directory(index):
            return file
        now = files.root.lister.stat(files.keys[index])
        return file if now is None else replace(file, stats=ListedStats.of([now]))

    def is_marker(self, files: ListedFiles, index: int) -> bool:
        """Whether one of the files is a marker itself, which is not read."""
        if not self.done_marker or files.is_directory(index):
            return False
        name = files.root.lister.url(files.keys[index].rpartition(b"/")[2])
        before, has_name, after = self.done_marker.partition("{name}")
        if not has_name:
            return name == self.done_marker
        return len(name) > len(before) + len(after) and name.startswith(before) and name.endswith(after)


@dataclass(frozen=True, slots=True)
class DetectionRules:
    """Which files of a scan are read.

    Attributes:
        wait_millis: How long a last record without delimiter waits in a file that stays unchanged; 0 where files do not
            grow, None for any time.
        rotated_millis: The same for a file that was rotated, whose writer may still have it open.
        block_size: Length in bytes up to which a file is one block.
    """

    on_change: OnChange = OnChange()  # noqa: RUF009  # frozen
    completeness: CompletenessRules = CompletenessRules()  # frozen
    latest_first: bool = False
    wait_millis: int | None = 0
    rotated_millis: int = 0
    block_size: int = 1 << 62

    @property
    def may_grow(self) -> bool:
        """Whether files may grow while they are read, so that their fingerprints are taken before that."""
        return self.wait_millis != 0


def looks_appended(taken: IndexEntry, now: FileVersion) -> bool:
    """Whether a change looks like an append, by names, sizes and times alone."""
    # An object store replaces whole objects.
    is_other_file = now.etag or (taken.identity and now.file_id and taken.identity != now.file_id)
    return not is_other_file and now.size_bytes > taken.size_bytes


def change_of(taken: IndexEntry, now: FileVersion, fingerprint: int = UNKNOWN) -> Change:
    """Name the difference between two versions of one path.

    Args:
        fingerprint: Fingerprint of as many of the file's current bytes as the taken version had; UNKNOWN if it has
            fewer. Without a fingerprint of the taken version, a longer rewrite in place counts as an append.
    """
    if looks_appended(taken, now):
        is_known = taken.size_bytes > 0 and taken.fate is Fate.READ
        is_rewritten = taken.fate is Fate.REWRITTEN or (is_known and UNKNOWN < taken.fingerprint != fingerprint)
        return "replaced" if is_rewritten else "appended"
    is_same_file = not now.etag and not (taken.identity and now.file_id and taken.identity != now.file_id)
    return "truncated" if is_same_file and now.size_bytes < taken.size_bytes else "replaced"


def taken_prefix(files: ListedFiles, entry: IndexEntry) -> FilePrefix:
    return FilePrefix(files.keys[0], entry.size_bytes, files.stats[0].file_id)


def is_tail(files: ListedFiles, entry: IndexEntry, prints: Mapping[FilePrefix, int]) -> bool:
    """Whether one file continues the version that was taken, so that its rest is a tail."""
    # A version that was not read, because it was empty or gone, says nothing about the current file.
    if not (entry.read_until and looks_appended(entry, files.stats[0])) or entry.fate is Fate.REWRITTEN:
        return False
    is_known = entry.fate is Fate.READ and entry.fingerprint != UNKNOWN
    return not is_known or entry.fingerprint == prints.get(taken_prefix(files, entry))


def is_other_file(files: ListedFiles, entries: IndexEntries) -> npt.NDArray[np.bool_]:
    """For each file whether its inode is known to be another one than that of the version that was taken."""
    ids = files.stats.file_ids
    is_other: npt.NDArray[np.bool_] = (ids != entries.identity) & (ids != 0) & (entries.identity != 0)
    return is_other


def in_larger_steps(scan: Iterable[ListedFiles]) -> Iterator[list[ListedFiles]]:
    """Gather the files of many small roots: a join in larger steps costs less."""
    step: list[ListedFiles] = []
    count, size = 0, FIRST_STEP
    for files in scan:
        step.append(files)
        count += len(files)
        if count >= size:
            yield step
            step, count, size = [], 0, min(2 * size, LAST_STEP)
    if step:
        yield step


def is_unchanged(files: ListedFiles, entries: IndexEntries) -> npt.NDArray[np.bool_]:
    """For each file whether the version that was taken is the listed one."""
    if not entries.known.any():
        return entries.known
    same: npt.NDArray[np.bool_] = entries.known & (files.size_bytes == entries.size_bytes)
    has_etag, stats = files.stats.has_etag, files.stats
    if not has_etag.any():
        same &= stats.mtime_ns == entries.mtime_ns
        # A file that could not be read is read when it exists again.
        same &= entries.fate < Fate.GONE
        return same
    same &= np.where(has_etag, stats.identities == entries.identity, stats.mtime_ns == entries.mtime_ns)
    return same


def has_changed(path: bytes, stat: FileVersion) -> bool:
    """Whether a file differs from its listed version; False if it only cannot be opened."""
    try:
        now = os.stat(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return (file_id_of(now.st_ino), now.st_size, now.st_mtime_ns) != (stat.file_id, stat.size_bytes, stat.mtime_ns)
