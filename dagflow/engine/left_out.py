"""Ranges that windows leave out: of versions of files that are gone, and those that were read later after all."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

from dagflow.api.context import MovedRange, Skipped, VersionKey, WaitingEnd, version_key_of
from dagflow.api.sources import SourceRange, moved_from_of
from dagflow.errors import StorageError
from dagflow.execution.messages import TaskResult
from dagflow.journal.journal import Journal
from dagflow.journal.saved_state import LeftOut
from dagflow.journal.windows import WindowIntent, WindowPlan, source_ranges
from dagflow.storage.context import StorageContext
from dagflow.storage.files import FileStat
from dagflow.storage.location import redacted

logger = logging.getLogger(__name__)

CHECKED_RANGES = 100
"""How many ranges of a window the driver checks: where hosts see different files, the first range shows it."""


class GoneVersions:
    """Versions that are gone, so that committed windows have left out a part of them.

    Windows that were already emitted then leave out the rest: a version may come back, or be held open by a task, and
    the part that the committed window lacks would be missing in the middle.
    """

    def __init__(self, storage: StorageContext) -> None:
        self._storage = storage
        # By version: what a committed window recorded of it, and the last window that was already emitted then.
        self._known: dict[VersionKey, tuple[Skipped, int]] = {}

    def restore(self, planned: Mapping[int, WindowPlan], journal: Journal) -> None:
        """Let planned windows leave out the versions that were gone for others when they were emitted.

        A version that was planned again since then, because it was back, is read.
        """
        if not planned:
            return
        since = min(plan.emitted_after for plan in planned.values())
        for window in journal.windows(since + 1):
            window_id = window.plan.window_id
            emitted = max((each for each, plan in planned.items() if plan.emitted_after < window_id), default=window_id)
            self.committed(window_id, window.intent.skipped if window.intent else (), emitted)

    def committed(self, window_id: int, skipped: Iterable[Skipped], last_emitted: int) -> None:
        """Let later windows, up to the last emitted one, leave out the versions that this one has left out in part."""
        self._known = {version: each for version, each in self._known.items() if each[1] > window_id}
        self._known.update((each.version, (each, last_emitted)) for each in skipped if each.is_gone)

    def read_in_part(self, window_id: int, results: Sequence[TaskResult]) -> dict[VersionKey, Skipped]:
        """The versions that a window has read in part, and that were gone for another task or an earlier window."""
        read = {version for result in results for version in result.read_in_part}
        return {each.version: each for each in [*_gone_in(results), *self._before(window_id)] if each.version in read}

    def require_gone(self, window_id: int, results: Sequence[TaskResult]) -> None:
        """Refuse to leave out versions that only the hosts of a window's tasks do not see, except those gone before."""
        before = {each.version for each in self._before(window_id)}
        require_gone([each for each in _gone_in(results) if each.version not in before], self._storage)

    def _before(self, window_id: int) -> list[Skipped]:
        return [each for each, last_emitted in self._known.values() if window_id <= last_emitted]


def _gone_in(results: Iterable[TaskResult]) -> list[Skipped]:
    return [skipped for result in results for skipped in result.skipped if skipped.is_gone]


def require_gone(gone: Sequence[Skipped], storage: StorageContext) -> None:
    """Refuse to leave out versions that only the hosts of the tasks do not see."""
    # The driver opens no file: it cannot compare bytes with those that a task has seen.
    for each in [each for each in gone if not each.has_other_bytes][:CHECKED_RANGES]:
        expected = FileStat.of(each.url, each)
        backend = storage.backend(each.url)
        # A store that cannot say whether it has the version does not prove that it is gone.
        if not backend.files.has_version(expected):
            continue
        what = f"a task could not find this version ({each.reason}), and the driver sees it"
        if backend.is_local:
            raise StorageError(
                what,
                url=redacted(each.url),
                hint="every host must see the input under the same path and, on a shared file system, with the same "
                "inode numbers; see docs/cluster.md",
            )
        raise StorageError(
            what,
            url=redacted(each.url),
            hint="run again when the store gives all hosts the same version: a cache, a mirror or a proxy may hold "
            "another one",
        )


def gone_before_replay(skipped: Iterable[Skipped], storage: StorageContext) -> dict[VersionKey, Skipped]:
    """The versions that a replay leaves out again: corrected ones, and gone ones, which the next run reads if they
    come back.

    This does not hold for an object that comes back, see docs/following.md: there only a replay can read it.
    """
    return {
        each.version: each
        for each in skipped
        if each.cause == "corrected" or (each.is_gone and storage.backend(each.url).is_local)
    }


def as_left_out_before(before: Sequence[Skipped], skipped: Sequence[Skipped]) -> list[Skipped]:
    """What a replay has left out; an unreadable range keeps this cause though it is gone now, and the reverse."""
    known = {(each.version_range, not each.is_gone): each for each in before}
    return [known.get((each.version_range, each.is_gone), each) for each in skipped]


def log_left_out(window_id: int, skipped: Sequence[Skipped]) -> None:
    """Log in the driver what a window has left out."""
    skipped = [each for each in skipped if each.cause != "corrected"]
    for each in skipped[:CHECKED_RANGES]:
        logger.warning(
            "left out window=%d url=%s start=%d end=%d: %s",
            *(window_id, redacted(each.url), each.lost_start, each.lost_end, each.reason),
        )
    if len(skipped) > CHECKED_RANGES:
        logger.warning("left out window=%d further ranges=%d", window_id, len(skipped) - CHECKED_RANGES)


def recovered(left_out: LeftOut, planned: WindowPlan, results: Sequence[TaskResult]) -> list[Skipped]:
    """The ranges that were listed as left out, and that a window has now read.

    A version that was gone counts as read when it came back, or was read under another name. A version that could not
    be read also counts as read when another version of its file was: the file was repaired, or has grown to its end.
    """
    moved = _joined(each for result in results for each in result.moved)
    read = set(_read_under_their_names(left_out, planned, [each for result in results for each in result.skipped]))
    return [each for each in left_out.newest if each in read or any(_includes(part, each) for part in moved)]


def ended(waiting: Sequence[WaitingEnd], planned: WindowPlan) -> list[WaitingEnd]:
    """The ends of files that were left, and that a window reads, or whose files are other ones by now."""
    if not waiting:
        return []
    read: set[str | int] = set()
    for part in source_ranges(planned):
        read |= {part.url, moved_from_of(part) or part.url, part.version.file_id}
    read.discard(0)
    return [end for end in waiting if end.url in read or end.file_id in read]


def recovered_by_replay(left_out: LeftOut, before: WindowIntent, skipped: Sequence[Skipped]) -> list[Skipped]:
    """The ranges that were listed as left out, and that a window which had left them out has read in its replay.

    Args:
        before: What the window did before; for an unfinished replay, what that replay did.
        skipped: The ranges that it has left out now.
    """
    again = {each.version_range for each in skipped}
    read = [each for each in [*before.skipped, *before.recovered] if each.version_range not in again]
    return [each for each in left_out.newest if any(_is_read_with(each, part) for part in read)]


def _is_read_with(each: Skipped, part: Skipped) -> bool:
    """Whether reading `part` counts as reading the listed `each`: the same range, or one of a newer version."""
    if each.version_range == part.version_range and each.is_gone == part.is_gone:
        return True
    is_newer = each.url == part.url and each.mtime_ns < part.mtime_ns and not each.is_gone
    return is_newer and part.start <= each.start and part.end >= min(each.end, part.size_bytes)


def _includes(part: MovedRange, each: Skipped) -> bool:
    return part.url == each.url and part.start <= each.start and each.end <= part.end


def _joined(moved: Iterable[MovedRange]) -> list[MovedRange]:
    """The ranges, with those that touch each other joined: blocks may have been cut elsewhere before."""
    joined: list[MovedRange] = []
    for each in sorted(moved):
        if joined and (joined[-1].url, joined[-1].end) == (each.url, each.start):
            joined[-1] = joined[-1]._replace(end=each.end)
        else:
            joined.append(each)
    return joined


def _read_under_their_names(left_out: LeftOut, planned: WindowPlan, skipped: Sequence[Skipped]) -> list[Skipped]:
    listed = {each.url for each in left_out.newest}
    if not listed:
        return []
    again = {(each.version, each.start) for each in skipped}
    read: dict[str, list[SourceRange]] = {}
    for block in source_ranges(planned):
        if (version_key_of(block), block.start) not in again:
            for name in {block.url, moved_from_of(block) or block.url}:
                read.setdefault(name, []).append(block)
    return [each for each in left_out.newest if any(_is_read_by(each, block) for block in read.get(each.url, ()))]


def _is_read_by(each: Skipped, block: SourceRange) -> bool:
    """Whether a block that was read contains a range that was left out; both are of the same file."""
    version, size = block.version, block.version.size_bytes
    is_end = block.end >= each.end
    if each.is_gone:
        is_same = each.version[1:] == (size, version.mtime_ns, version.etag) and each.file_id == version.file_id
    else:
        # A repaired file may be shorter than the damaged one.
        is_same, is_end = True, is_end or block.end == size
    return is_same and block.start <= each.start and is_end
