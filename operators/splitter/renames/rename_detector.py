"""Recognises files that were taken under another name, by their inode or, after a log rotation, by their content."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from dagflow.storage.fingerprint import UNKNOWN, file_id_of, is_gone, read_until
from dagflow.storage.roots import Roots
from operators.files.rotation_names import earlier_paths, farther_paths, rotated
from operators.splitter.index.entries import IndexEntry
from operators.splitter.index.file_index import FileIndex
from operators.splitter.index.fingerprinting import Prefix
from operators.splitter.index.index_view import IndexView
from operators.splitter.index.pending_fingerprints import InFlightFiles, PendingFingerprints
from operators.splitter.index.version_slots import EARLIER, PART, SLOTS
from operators.splitter.renames.evidence import ContentPrefix, Evidence
from operators.splitter.renames.known_identities import KnownIdentities
from operators.splitter.renames.verdicts import Outcome, Source, Suspect, Verdict, stat_behind_links
from operators.splitter.scan.clock import Clock
from operators.splitter.scan.listed_files import ListedFiles
from operators.splitter.scan.listed_stats import ListedStat
from operators.splitter.scan.workers import InTasks

COPY_GRACE_S = 1.0
"""For so long a copy of a log beside it must stay as it is, until it is a file of its own and no rotation under way."""

MAX_CACHED_NAMES = 10_000

INCOMPLETE_GRACE_S = 10.0
"""The same for a copy that is shorter than the log: what compresses it may be slow to write."""

MAX_REPEATS = 3
"""How often a file that seems to change while it is scanned is left for another scan."""


@dataclass(slots=True)
class _Round:
    """What is known of the suspects that are looked at together.

    Attributes:
        evidence: What tasks tell of the content of files.
        recent: Identities of versions that this scan has given.
        by_identity: The versions that may be suspects, by their identities.
        by_name: The same by the names of suspects.
        in_flight: Names of versions of which it is not known yet what becomes of them.
        moved: Names of versions that are suspects; nothing else is what had been read before of one of them.
    """

    evidence: Evidence
    recent: set[int]
    by_identity: dict[int, list[Source]] = field(default_factory=dict)
    by_name: dict[bytes, list[Source]] = field(default_factory=dict)
    in_flight: set[bytes] = field(default_factory=set)
    moved: set[bytes] = field(default_factory=set)


class RenameDetector:
    """Holds back files that may be known, and tells at the end of a scan what they are.

    A version that was taken is recognised under another name by its inode, whatever the names, where the file has
    the first and last bytes that were taken; and by these bytes alone where the names are those of a log rotation and
    the file of the old name has lost them.

    Args:
        index: The versions that were taken.
        pending: Files whose fingerprints readers will report.
        roots: The app's named roots.
        in_tasks: Takes fingerprints.
        clock: The time.

    Attributes:
        has_more: Whether files that changed while they were scanned are left for a scan that follows at once.
        has_waiting: Whether copies are left until they have stayed as they are for COPY_GRACE_S.
    """

    def __init__(
        self, index: FileIndex, pending: PendingFingerprints, roots: Roots, in_tasks: InTasks | None, clock: Clock
    ) -> None:
        self._index = index
        self._pending = pending
        self._roots = roots
        self._in_tasks = in_tasks
        self._clock = clock
        self._known = KnownIdentities(index)
        self._known_names: dict[bytes, bool] = {}
        self._held: list[Suspect] = []
        # Copies of files that are still there: since when each has been as it is.
        self._waiting: dict[bytes, tuple[ListedStat, float]] = {}
        self._still_waiting: dict[bytes, tuple[ListedStat, float]] = {}
        self._repeats: Counter[bytes] = Counter()
        self.has_more = False

    @property
    def has_waiting(self) -> bool:
        """See the class."""
        return bool(self._waiting)

    def begin_scan(self) -> None:
        """A scan begins; the index has all that earlier ones gave."""
        self._known.begin_scan()
        self._known_names.clear()
        self._held.clear()
        self._still_waiting = {}
        self.has_more = False

    def end_scan(self) -> None:
        """All that was held has been resolved."""
        self._waiting = self._still_waiting
        if not self.has_more:
            self._repeats.clear()

    @property
    def held_count(self) -> int:
        """How many files are held."""
        return len(self._held)

    def hold(self, files: ListedFiles, entry: IndexEntry | None) -> None:
        """Hold one file."""
        self._held.append(Suspect(files, entry))

    def remember_emitted(self, files: ListedFiles) -> None:
        """Remember that the scan gives these files."""
        self._known.add(files.stats.file_ids)

    def hold_suspects(self, files: ListedFiles, view: IndexView) -> ListedFiles:
        """Hold the new files that may be known; the others are returned."""
        suspicious = np.zeros(len(files), bool)
        if not view.is_empty:
            suspicious = rotated(files.keys, lambda paths: self._known_among(files, paths, view))
        suspicious |= self._known.may_have(files.stats.file_ids) & (files.size_bytes > 0)
        suspicious &= files.size_bytes >= 0
        if not suspicious.any():
            return files
        for position in np.flatnonzero(suspicious).tolist():
            self.hold(files.slice(position, position + 1), None)
        return files.take(np.flatnonzero(~suspicious))

    def _known_among(self, files: ListedFiles, paths: Sequence[bytes], view: IndexView) -> set[bytes]:
        name_by_path = {path: files.root.index_name(path) for path in paths}
        known, beyond = view.known_near(list(name_by_path.values()))
        if lacking := [name for name in beyond if name not in self._known_names]:
            found = self._index.paths_among(lacking)
            if len(self._known_names) + len(lacking) > MAX_CACHED_NAMES:
                self._known_names.clear()
            self._known_names.update((name, name in found) for name in lacking)
            known |= {name for name in lacking if name in found}
        known |= {name for name in beyond if self._known_names.get(name)}
        return {path for path, name in name_by_path.items() if name in known}

    def resolve_held(self) -> list[Verdict]:
        """What the files are that are held, in their order; none is held afterwards."""
        suspects, self._held = self._held, []
        if not suspects:
            return []
        # Before the index is looked at, which has what is reported after this.
        in_flight = self._pending.in_flight()
        recent = self._known.are_recent([suspect.stat.file_id for suspect in suspects])
        steady = [each for each in suspects if self._is_as_listed(each, recent)]
        by_name = self._sources_by_name(steady)
        identities = [source.entry.identity for sources in by_name.values() for source in sources]
        recent = self._known.are_recent(identities) if identities else set()
        by_identity = self._sources_by_identity(steady)
        sources = [source for each in (by_name, by_identity) for found in each.values() for source in found]
        unsure = in_flight.among(source.taken_name for source in sources)
        round = _Round(Evidence(self._in_tasks), recent, by_identity, by_name, unsure)
        self._fetch(steady, round)
        found = {id(each): self._moved(each, round) for each in steady}
        if strangers := [each for each in steady if found[id(each)] is None and farther_paths(each.path)]:
            self._look_farther(strangers, round, in_flight)
        found.update((id(each), self._moved_with_content(each, round)) for each in strangers)
        # Whether a file was replaced, or went elsewhere, is known when all others have been looked at.
        return [self._final(each, found.get(id(each), Verdict(each, "again")), round) for each in suspects]

    def _is_as_listed(self, suspect: Suspect, recent: set[int]) -> bool:
        """Whether a file is still as it was listed, and no other name of it was given by this scan."""
        if self._repeats[suspect.name] >= MAX_REPEATS:
            return True
        now = stat_behind_links(suspect.path)
        if now is None or file_id_of(now.st_ino) != suspect.stat.file_id or now.st_size < suspect.stat.size_bytes:
            return False
        return suspect.stat.file_id not in recent or now.st_nlink > 1

    def _sources_by_identity(self, suspects: Sequence[Suspect]) -> dict[int, list[Source]]:
        """The versions with the inodes of some files, or of those that had their names before; longest first."""
        found: dict[int, list[Source]] = {}
        wanted = {suspect.stat.file_id for suspect in suspects}
        wanted |= {suspect.entry.identity for suspect in suspects if suspect.entry is not None}
        for name, entry in self._needed(self._index.with_identities(sorted(wanted))).items():
            found.setdefault(entry.identity, []).append(self._source(name, entry))
        for sources in found.values():
            sources.sort(key=lambda source: (-source.entry.size_bytes, source.is_earlier))
        return found

    def _sources_by_name(
        self, suspects: Sequence[Suspect], paths_before: Callable[[bytes], list[bytes]] = earlier_paths
    ) -> dict[bytes, list[Source]]:
        """The versions under the names that files may have had before a rotation; by the names that they have now."""
        names = {each.name: [each.files.root.index_name(path) for path in paths_before(each.path)] for each in suspects}
        keys = {before: [before + slot for slot in SLOTS] for each in names.values() for before in each}
        entries = self._needed(self._index.find([key for each in keys.values() for key in each]))
        # Of one path the longest first: what goes on behind a tail goes on behind what was read before it as well.
        known = {
            before: sorted((key for key in each if key in entries), key=lambda key: -entries[key].size_bytes)
            for before, each in keys.items()
        }
        return {
            name: [self._source(key, entries[key]) for before in each for key in known[before]]
            for name, each in names.items()
        }

    def _look_farther(self, suspects: Sequence[Suspect], round: _Round, in_flight: InFlightFiles) -> None:
        """Add what compressed files may have been many rotations ago."""
        farther = self._sources_by_name(suspects, farther_paths)
        added: list[Source] = []
        for suspect in suspects:
            may_be = [each for each in farther[suspect.name] if not suspect.is_older_than(each.entry)]
            round.by_name[suspect.name] += may_be
            added += may_be
        if added:
            round.recent |= self._known.are_recent([source.entry.identity for source in added])
            round.in_flight |= in_flight.among(source.taken_name for source in added)
            self._fetch(suspects, round)

    def _needed(self, entries: dict[bytes, IndexEntry]) -> dict[bytes, IndexEntry]:
        """Entries without parts of versions that were read to the end after all."""
        parts = {name: name.removesuffix(PART) for name in entries if name.endswith(PART)}
        if not parts:
            return entries
        whole = self._index.find(list(parts.values()))
        done = {part for part, name in parts.items() if name not in whole or not is_gone(whole[name].fingerprint)}
        return {name: entry for name, entry in entries.items() if name not in done}

    def _source(self, name: bytes, entry: IndexEntry) -> Source:
        path = os.fsencode(self._roots.expand(os.fsdecode(name.partition(EARLIER)[0])))
        return Source(name, path, entry)

    def _fetch(self, suspects: Sequence[Suspect], round: _Round) -> None:
        """Take the fingerprints that are likely to be needed together: directories with all their files are moved."""
        prefixes: list[Prefix] = []
        contents: list[ContentPrefix] = []
        for suspect in suspects:
            size_bytes = suspect.stat.size_bytes
            sources = [*self._same_inode(suspect, round)] if size_bytes > 0 else []
            if suspect.is_compressed:
                sizes = {source.entry.size_bytes for source in round.by_name[suspect.name]}
                contents += [ContentPrefix(suspect.path, size) for size in sizes if size > 0]
            else:
                sources += [each for each in round.by_name[suspect.name] if each.entry.size_bytes <= size_bytes]
            known = (source.entry for source in sources if source.entry.fingerprint > UNKNOWN)
            prefixes += [suspect.prefix(entry.size_bytes) for entry in known]
        round.evidence.fetch(prefixes)
        round.evidence.fetch_contents(contents)

    def _same_inode(self, suspect: Suspect, round: _Round) -> Iterator[Source]:
        """Versions with the inode of a file, longest first, that have left their names, also where they are back."""
        stat = suspect.stat
        sources = round.by_identity.get(stat.file_id, ())
        # If the newest version of the name is of this very file, it was changed in place, and was not away.
        is_back = all(source.name != suspect.name for source in sources)
        for source in sources:
            entry = source.entry
            may_be = entry.size_bytes > 0 and (
                (entry.size_bytes, entry.mtime_ns) == (stat.size_bytes, stat.mtime_ns)
                or (entry.size_bytes < stat.size_bytes and entry.mtime_ns <= stat.mtime_ns)
            )
            if not may_be:
                continue
            if source.path == suspect.path:
                has_left = is_back and source.taken_name != suspect.name
            else:
                now = stat_behind_links(source.path)
                has_left = now is None or file_id_of(now.st_ino) != stat.file_id or suspect.is_behind(source.path)
            if has_left:
                yield source

    def _moved(self, suspect: Suspect, round: _Round) -> Verdict | None:
        """That a file is known under another name, or that this is not known yet; None where it is not."""
        if suspect.stat.size_bytes > 0:
            for source in self._same_inode(suspect, round):
                if source.taken_name in round.moved:
                    continue
                if (verdict := self._moved_with_inode(suspect, source, round)) is not None:
                    return verdict
        return self._moved_with_content(suspect, round)

    def _moved_with_inode(self, suspect: Suspect, source: Source, round: _Round) -> Verdict | None:
        entry, stat = source.entry, suspect.stat
        is_same = (entry.size_bytes, entry.mtime_ns) == (stat.size_bytes, stat.mtime_ns)
        if entry.fingerprint > UNKNOWN:
            if round.evidence.fingerprint(suspect.prefix(entry.size_bytes)) != entry.fingerprint:
                return None
        elif not is_same:
            # Without a fingerprint a new file cannot be told from one that has got the inode of a deleted one.
            return Verdict(suspect, "later") if self._is_pending(source) else None
        if source.taken_name in round.in_flight:
            return Verdict(suspect, "later")
        is_read = is_same and entry.fingerprint >= UNKNOWN
        round.moved.add(source.taken_name)
        return Verdict(suspect, "moved", source, read_until(entry.fingerprint, entry.size_bytes), is_read)

    def _moved_with_content(self, suspect: Suspect, round: _Round) -> Verdict | None:
        is_copy = False
        for source in round.by_name[suspect.name]:
            entry = source.entry
            if source.taken_name in round.moved or entry.size_bytes <= 0 or source.path == suspect.path:
                continue
            if entry.fingerprint == UNKNOWN and self._is_pending(source):
                return Verdict(suspect, "later")
            if (found := self._begins_with(suspect, source, round)) is None:
                continue
            if entry.identity in round.recent and self._repeats[suspect.name] < MAX_REPEATS:
                return Verdict(suspect, "again")
            if suspect.is_behind(source.path) or not self._still_has(source, round):
                if source.taken_name in round.in_flight:
                    return Verdict(suspect, "later")
                if not suspect.is_exactly_as_listed():
                    # It may have been completed, or dated, between the listing and the look into it.
                    return Verdict(suspect, "later" if self._repeats[suspect.name] >= MAX_REPEATS else "again")
                round.moved.add(source.taken_name)
                return Verdict(suspect, "moved", source, entry.size_bytes, not found, suspect.is_compressed)
            is_copy = True
        beginnings = [self._beginning_of(suspect, path, round) for path in earlier_paths(suspect.path)]
        grace_s = INCOMPLETE_GRACE_S if "incomplete" in beginnings else COPY_GRACE_S
        is_copy = is_copy or any(beginnings)
        return Verdict(suspect, "later") if is_copy and self._waits(suspect, grace_s) else None

    def _begins_with(self, suspect: Suspect, source: Source, round: _Round) -> bool | None:
        """Whether a file, or what is compressed in it, goes on behind a version; None where it begins otherwise."""
        entry, size_bytes = source.entry, suspect.stat.size_bytes
        if entry.fingerprint <= UNKNOWN:
            return None
        if suspect.is_compressed:
            content = round.evidence.content(ContentPrefix(suspect.path, entry.size_bytes))
            is_same = (content.size_bytes, content.fingerprint) == (entry.size_bytes, entry.fingerprint)
            return content.has_more if is_same else None
        is_same = entry.size_bytes <= size_bytes and (
            round.evidence.fingerprint(suspect.prefix(entry.size_bytes)) == entry.fingerprint
        )
        return size_bytes > entry.size_bytes if is_same else None

    def _still_has(self, source: Source, round: _Round) -> bool:
        """Whether the file of a version's own name still begins with it."""
        entry, now = source.entry, stat_behind_links(source.path)
        if now is None or now.st_size < entry.size_bytes:
            return False
        file_id = file_id_of(now.st_ino)
        if (file_id, now.st_size, now.st_mtime_ns) == (entry.identity, entry.size_bytes, entry.mtime_ns):
            return True
        return round.evidence.fingerprint(Prefix(source.path, entry.size_bytes, file_id)) == entry.fingerprint

    def _beginning_of(self, suspect: Suspect, path: bytes, round: _Round) -> Literal["", "incomplete", "whole"]:
        """Whether a file may be a copy of another one that is there; "" where it is none."""
        now = stat_behind_links(path)
        if now is None or path == suspect.path or suspect.is_behind(path) or not os.path.isfile(path):
            return ""
        size_bytes = suspect.stat.size_bytes
        if suspect.is_compressed:
            content = round.evidence.content(ContentPrefix(suspect.path, now.st_size))
            if content.has_more:
                return ""
            size_bytes, fingerprint = content.size_bytes, content.fingerprint
        elif size_bytes > now.st_size:
            return ""
        else:
            fingerprint = round.evidence.fingerprint(suspect.prefix(size_bytes))
        if size_bytes and round.evidence.fingerprint(Prefix(path, size_bytes, file_id_of(now.st_ino))) != fingerprint:
            return ""
        return "incomplete" if size_bytes < now.st_size else "whole"

    def _waits(self, suspect: Suspect, grace_s: float) -> bool:
        """Whether a copy has not been as it is for long."""
        now_s = self._clock.elapsed_s()
        stat, since_s = self._waiting.get(suspect.name, (None, now_s))
        if stat != suspect.stat:
            since_s = now_s
        if now_s - since_s >= grace_s:
            return False
        self._still_waiting[suspect.name] = (suspect.stat, since_s)
        return True

    def _is_pending(self, source: Source) -> bool:
        return bool(self._pending.are_pending([source.name])[0])

    def _final(self, suspect: Suspect, verdict: Verdict | None, round: _Round) -> Verdict:
        if verdict is None:
            # A task that finds another file under the name says nothing of this one.
            is_as_listed = self._is_as_listed(suspect, set()) and not self._is_in_the_making(suspect, round)
            verdict = Verdict(suspect, self._outcome_under_its_name(suspect, round) if is_as_listed else "again")
        if verdict.outcome == "again":
            self._repeats[suspect.name] += 1
            self.has_more = True
        return verdict

    def _is_in_the_making(self, suspect: Suspect, round: _Round) -> bool:
        """Whether a file that a rotation may have made has changed between the listing and the look into it."""
        may_be_copy = bool(round.by_name.get(suspect.name)) and self._repeats[suspect.name] < MAX_REPEATS
        return may_be_copy and not suspect.is_exactly_as_listed()

    def _outcome_under_its_name(self, suspect: Suspect, round: _Round) -> Outcome:
        entry = suspect.entry
        if entry is None or suspect.name in round.moved:
            return "new"
        if entry.identity == suspect.stat.file_id:
            return "changed"
        # What the name stood for has been found elsewhere, now or by an earlier scan.
        others = round.by_identity.get(entry.identity, ())
        return "new" if any(_has_gone_to(source, suspect.path, entry) for source in others) else "changed"


def _has_gone_to(source: Source, path: bytes, entry: IndexEntry) -> bool:
    """Whether a version that was taken under a path is known as another one by now."""
    if source.is_earlier or source.path == path or source.entry.size_bytes < entry.size_bytes:
        return False
    now = stat_behind_links(source.path)
    is_there = now is not None and file_id_of(now.st_ino) == entry.identity
    return is_there or source.entry.fingerprint == entry.fingerprint
