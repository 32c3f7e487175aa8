"""Rules for which files of a scan are read: changed and incomplete files, and how versions are compared."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

from dagflow.api.operator import OPERATOR_LOGGER
from dagflow.api.properties import Millis
from dagflow.errors import SourceChangedError
from dagflow.frozen import frozen
from dagflow.metrics import names
from dagflow.storage.fingerprint import UNKNOWN, file_id_of
from dagflow.storage.location import archive_of, redacted
from operators.files.metadata import Fate, FileVersion, SupersededVersion
from operators.files.rotation_names import uncompressed
from operators.splitter.index.entries import EARLIER, PART, SHORTER, IndexEntry
from operators.splitter.index.file_index import FileIndex
from operators.splitter.index.index_view import IndexEntries
from operators.splitter.scan.listed_files import FilePrefix, ListedFiles
from operators.splitter.scan.listing import ListedStats
from operators.splitter.scan.scan_roots import Root
from operators.splitter.scan.scan_sources import Clock
from operators.splitter.scan.walk import FIRST_STEP, LAST_STEP

ROTATED_MILLIS = 1000
"""How long a rotated file must be unchanged to be over, while files are followed: its writer may still have it open."""

Change = Literal["appended", "replaced", "truncated"]
Action = Literal["tail", "reread", "supersede", "ignore", "fail"]


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
        Literal["reread", "supersede", "ignore", "fail"],
        Field(description="another content under the same name: read it as new, beside or in place of the old records"),
    ] = "reread"
    truncated: Annotated[
        Literal["reread", "supersede", "ignore", "fail"],
        Field(description="the same file got shorter: read it as new, beside or in place of the old records"),
    ] = "reread"
    deleted: Annotated[
        Literal["keep", "retract"],
        Field(description="no file under the name any more, nor under another: keep its records, or take them out"),
    ] = "keep"

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
    def corrects(self) -> bool:
        """Whether the records of a version leave when those of the next one come in."""
        return "supersede" in (self.replaced, self.truncated) or self.deleted == "retract"

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


@frozen
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
        place = files.url(index)
        while (inside := archive_of(place)) is not None:
            place = inside[0]
        directory, _, name = place.rpartition("/")
        marker = self.done_marker.replace("{name}", name)
        return files.root.lister.kind(os.fsencode(f"{directory}/{marker}")) is not None

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


@frozen
class DetectionRules:
    """Which files of a scan are read.

    Attributes:
        wait_millis: How long a last record without delimiter waits in a file that stays unchanged; 0 where files do not
            grow, None for any time.
        rotated_millis: The same for a file that was rotated, whose writer may still have it open.
        block_size: Length in bytes up to which a file is one block.
    """

    on_change: OnChange = OnChange()  # frozen
    completeness: CompletenessRules = CompletenessRules()  # frozen
    latest_first: bool = False
    wait_millis: int | None = 0
    rotated_millis: int = 0
    block_size: int = 1 << 62

    @property
    def may_grow(self) -> bool:
        """Whether files may grow while they are read, so that their fingerprints are taken before that."""
        return self.wait_millis != 0


def _may_be_same_file(taken: IndexEntry, now: FileVersion) -> bool:
    # An object store replaces whole objects.
    return not now.etag and not (taken.identity and now.file_id and taken.identity != now.file_id)


def looks_appended(taken: IndexEntry, now: FileVersion) -> bool:
    """Whether a change looks like an append, by names, sizes and times alone."""
    return _may_be_same_file(taken, now) and now.size_bytes > taken.size_bytes


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
    return "truncated" if _may_be_same_file(taken, now) and now.size_bytes < taken.size_bytes else "replaced"


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


logger = logging.getLogger(__name__)


class ChangedFiles:
    """Decides how much is read of files that differ from the versions of them that were taken.

    Args:
        index: Knows how much was read before the tails that were taken.
    """

    def __init__(self, on_change: OnChange, index: FileIndex, counters: Counter[str], notes: GrowthNotes) -> None:
        self._on_change = on_change
        self._index = index
        self._counters = counters
        self._notes = notes

    def judge(self, files: ListedFiles, entry: IndexEntry, fingerprint: int) -> ListedFiles:
        """One changed file, as the policy says; see change_of() for the fingerprint."""
        if files.is_directory(0):
            return files
        return self.treat(files, files.index_names[0], entry, change_of(entry, files.stats[0], fingerprint))

    def treat(
        self, files: ListedFiles, name: bytes, entry: IndexEntry, change: Change, *, is_content: bool = False
    ) -> ListedFiles:
        """One file that differs in a given way from a version that was taken, as the policy says.

        Args:
            is_content: Whether the version is the beginning of the content of a compressed file.

        Raises:
            SourceChangedError: The policy fails on the change.
        """
        action = self._on_change.action(change)
        self._counters[names.changed(change)] += 1
        url = redacted(files.url(0))
        if action == "tail":
            rest = self.rest(files, name, entry, is_content=is_content)
            self._notes.grown(url, None if rest.continuation.content_start else files.stats[0].size_bytes - rest.start)
            return rest
        level = logging.INFO if action == "supersede" else logging.WARNING
        logger.log(level, "file changed after it was taken change=%s action=%s url=%s", change, action, url)
        if action == "fail":
            now = "compressed" if is_content else files.stats[0].size_bytes
            raise SourceChangedError(
                f"it was {change} after it was read: {entry.size_bytes} bytes then, {now} now",
                url=url,
                hint=self._on_change.remedy(change),
            )
        if action == "reread" and entry.read_until and change not in self._on_change.model_fields_set:
            self._counters[names.REREAD] += 1
        self._counters[names.SUPERSEDED] += action == "supersede"
        files = replace(files, start=0, is_noted=action == "ignore")
        return files if files.is_noted else files.continued(supersedes=SupersededVersion(*entry.version))

    def takes_out(self, files: ListedFiles, entry: IndexEntry) -> bool:
        """Whether the records of a version leave the output, because the file has another one now."""
        return self._on_change.action(change_of(entry, files.stats[0])) == "supersede"

    def rest(self, files: ListedFiles, name: bytes, entry: IndexEntry, *, is_content: bool = False) -> ListedFiles:
        """The unread rest of a file, with the fingerprint of the part that was read.

        Args:
            is_content: Whether it is the beginning of the content of a compressed file.
        """
        start, content_start = entry.read_until, 0
        if entry.fate is Fate.READ:
            before = entry
        elif name in (parts := self.read_before({name: entry})):
            before = parts[name]
        else:
            return files.continued(content_start=start) if is_content else replace(files, start=start)
        files = replace(files, is_rotated=files.is_rotated or entry.is_rotated)
        if start == files.stats[0].size_bytes and not is_content:
            # Nothing was added; what was left at the end is read, since the file is over.
            return closing(files, before)
        if start and before.is_part:
            # A gone block begins behind a record in progress that was left before it.
            start = before.size_bytes
        if not start and entry.fate is not Fate.REWRITTEN and self._goes_on_in_content(files.keys[0], name):
            content_start = max(before.size_bytes, 0)
        is_behind = before.size_bytes == (start or content_start)
        known = before.fingerprint if is_behind and before.fingerprint > UNKNOWN else UNKNOWN
        if is_content and start:
            start, content_start = 0, start
        rest = replace(files, start=start, begins_at_cut=is_behind and before.is_part)
        return rest.continued(content_start=content_start, read_fingerprint=known)

    def put_back(self, files: ListedFiles, entry: IndexEntry) -> ListedFiles | None:
        """The unread rest of a file that was gone and is now back as the same version; None if it is not.

        The file has the version's size and time, and its inode; or it is a copy, as where a directory tree is restored.

        Args:
            files: The file, which is not known to have been rewritten, see begun().
        """
        stat = files.stats[0]
        if not entry.fate.is_gone or (entry.size_bytes, entry.mtime_ns) != (stat.size_bytes, stat.mtime_ns):
            return None
        rest = self.rest(files, files.index_names[0], entry)
        if not rest.start:
            rest = rest.continued(supersedes=SupersededVersion(*entry.version))
        if entry.identity != stat.identity:
            # The part that was read of the content of a compressed file has no fingerprint that identifies a copy.
            if rest.continuation.read_fingerprint == UNKNOWN:
                return None
            rest = rest.continued(moved_from=files.url(0))
        logger.warning("version is back and read after all url=%s", redacted(files.url(0)))
        return rest

    def _goes_on_in_content(self, path: bytes, name: bytes) -> bool:
        """Whether the part that was read under a name, or before compression, is part of the content of the file."""
        names = path, name.partition(EARLIER)[0]
        return any(uncompressed(path) != path for path in names) and self._on_change.appended == "tail"

    def begun(self, changed: Sequence[tuple[ListedFiles, IndexEntry]]) -> dict[bytes, tuple[FilePrefix, int]]:
        """How files began before a tail of them was gone.

        Returns:
            By name, their first bytes, and the fingerprint of these bytes when they were read.
        """
        tails = {
            files.index_names[0]: (files, entry)
            for files, entry in changed
            if entry.fate.is_gone and files.root.is_local and entry.read_until
        }
        parts = self.read_before({name: entry for name, (_, entry) in tails.items()})
        known = {name: part for name, part in parts.items() if part.fingerprint > UNKNOWN}
        return {name: (taken_prefix(tails[name][0], part), part.fingerprint) for name, part in known.items()}

    def read_before(self, gone: Mapping[bytes, IndexEntry]) -> dict[bytes, IndexEntry]:
        """How far files had been read before a version of them was gone or left out, by name."""
        slots = [name + slot for name in gone for slot in (SHORTER, PART)]
        known = self._index.find(slots) if slots else {}
        read = {}
        for name, entry in gone.items():
            limit = entry.read_until
            parts = [known[name + slot] for slot in (SHORTER, PART) if name + slot in known]
            # If nothing was read of the content under this name, this may be more than the file's size.
            within = [part for part in parts if not limit or part.size_bytes <= limit]
            if within:
                read[name] = max(within, key=lambda part: part.size_bytes)
        return read


def closing(files: ListedFiles, entry: IndexEntry) -> ListedFiles:
    """One unchanged file that is over: the record is read that was left at its end.

    Args:
        entry: The version that was taken, with all of its bytes.
    """
    is_stored = uncompressed(files.keys[0]) == files.keys[0]
    return replace(
        files,
        start=entry.size_bytes,
        waiting_bytes=entry.waiting_bytes if is_stored else 0,
        fingerprints=[entry.fingerprint] if entry.fingerprint != UNKNOWN else (),
        is_rotated=files.is_rotated or entry.is_rotated,
    )


def gone_version(root: Root, path: bytes, entry: IndexEntry) -> ListedFiles:
    """A version that was taken, and whose file has other bytes now, or is gone: it is listed as left out."""
    version = FileVersion(entry.size_bytes, entry.mtime_ns, "", entry.identity)
    return ListedFiles.single(root, path, version).continued(is_gone=True)


_MAX_NAMES = 3
"""Number of files that a line names."""

_INTERVAL_S = 5.0
"""Seconds between two lines at least, since a log may grow all day."""

growth_logger = logging.getLogger(OPERATOR_LOGGER)


class GrowthNotes:
    """Logs which files have grown: some by name, and the sum of all."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._due_s = clock.elapsed_s()
        self._grown: dict[str, int] = {}

    def grown(self, url: str, size_bytes: int | None) -> None:
        """Note a file that has grown by a number of bytes; None for compressed content of unknown size."""
        self._grown[url] = self._grown.get(url, 0) + (size_bytes or 0)

    def report(self) -> None:
        """Log the notes in a line, unless the last line is too new; then they wait for the next call."""
        now = self._clock.elapsed_s()
        if not self._grown or now < self._due_s:
            return
        named = [(os.path.basename(url), size) for url, size in list(self._grown.items())[:_MAX_NAMES]]
        parts = [f"{name}{_size_text(size)}" for name, size in named]
        if others := len(self._grown) - len(named):
            rest = sum(self._grown.values()) - sum(size for _, size in named)
            parts.append(f"{others:,} more {'file' if others == 1 else 'files'}{_size_text(rest)}")
        growth_logger.info("%s", ", ".join(parts))
        self._grown.clear()
        self._due_s = now + _INTERVAL_S


def _size_text(size_bytes: int) -> str:
    return f" +{size_bytes:,} B" if size_bytes else " grown"
