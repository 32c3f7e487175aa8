"""Versions of files that are gone when a window reads them: it reads its part of a version whole, or not at all."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

from dagflow.api.context import Skipped, VersionKey
from dagflow.errors import StorageError
from dagflow.execution.messages import TaskResult
from dagflow.journal.journal import Journal
from dagflow.journal.windows import WindowPlan
from dagflow.storage.context import StorageContext
from dagflow.storage.file_stat import FileStat
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
        """Let later windows leave out the versions that this one has left out in part.

        Args:
            last_emitted: The last window that may contain more of these versions because it was already emitted.
        """
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
        expected = FileStat(each.url, each.size_bytes, each.mtime_ns, each.etag, file_id=each.file_id)
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
    """The versions that a replay leaves out again because they were gone: if they come back, the next run reads them.

    This does not hold for an object that comes back, see docs/following.md: there only a replay can read it.
    """
    return {each.version: each for each in skipped if each.is_gone and storage.backend(each.url).is_local}


def as_left_out_before(before: Sequence[Skipped], skipped: Sequence[Skipped]) -> list[Skipped]:
    """What a replay has left out; an unreadable range keeps this cause though it is gone now, and the reverse."""
    known = {(each.version_range, not each.is_gone): each for each in before}
    return [known.get((each.version_range, each.is_gone), each) for each in skipped]


def log_left_out(window_id: int, skipped: Sequence[Skipped]) -> None:
    """Log in the driver what a window has left out."""
    for each in skipped[:CHECKED_RANGES]:
        logger.warning(
            "left out window=%d url=%s start=%d end=%d: %s",
            *(window_id, redacted(each.url), each.lost_start, each.lost_end, each.reason),
        )
    if len(skipped) > CHECKED_RANGES:
        logger.warning("left out window=%d further ranges=%d", window_id, len(skipped) - CHECKED_RANGES)
