"""Examining files by helpers, ahead of the walk."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator
from typing import NamedTuple

import numpy as np

from dagflow.errors import StorageError
from operators.splitter.scan.listing import Lister, LocalLister, Stats
from operators.splitter.scan.worker_program import EXAMINE
from operators.splitter.scan.workers import Helper, Helpers


class Group(NamedTuple):
    """Names in one directory.

    Attributes:
        directory: Its path, with a slash at its end.
        names: At least one.
        stats: Their versions; None where they must be examined.
    """

    directory: bytes
    names: list[bytes]
    stats: Stats | None


class StatPrefetcher:
    """Finds the versions of files that a listing has not brought along.

    Guarantee: what the lister's stats() says, in the order of the groups, whatever becomes of a helper.

    Args:
        helpers: Who may be asked.
    """

    def __init__(self, helpers: Helpers) -> None:
        self._helpers = helpers

    def examined(self, lister: Lister, steps: Iterator[list[Group]]) -> Generator[list[Group]]:
        """Each step's groups with their versions, without the names that have none.

        Raises:
            StorageError: A file cannot be examined; or what steps raises, after the steps that came before it.
        """
        waiting: deque[tuple[list[Group], Helper | None]] = deque()
        failed: StorageError | None = None
        while True:
            try:
                step = next(steps, None)
            except StorageError as error:
                step, failed = None, error
            if step is None:
                break
            waiting.append((step, self._begun(step) if isinstance(lister, LocalLister) else None))
            while waiting and not (waiting[0][1] and self._helpers.has_idle and len(waiting) <= self._helpers.most):
                yield self._ended(lister, *waiting.popleft())
        while waiting:
            yield self._ended(lister, *waiting.popleft())
        if failed is not None:
            raise failed

    def _begun(self, step: list[Group]) -> Helper | None:
        """The helper that looks at a step; None where that is to be done here."""
        if self._helpers.examined_here(sum(len(group.names) for group in step)):
            return None
        wanted = _wanted(step)
        if not wanted:
            return None
        return self._helpers.ask(EXAMINE + b"\0\0".join(b"\0".join([each.directory, *each.names]) for each in wanted))

    def _ended(self, lister: Lister, step: list[Group], helper: Helper | None) -> list[Group]:
        told: Iterator[Stats | None] = iter(())
        if helper is not None and (said := self._helpers.answer(helper)) is not None:
            told = iter(_told(said, _wanted(step)))
        ended = []
        for group in step:
            names, stats = group.names, group.stats
            if stats is None and (stats := next(told, None)) is None:
                names, stats = lister.stats(group.directory, names)
            ended.append(Group(group.directory, names, stats))
        return ended


def _wanted(step: list[Group]) -> list[Group]:
    return [group for group in step if group.stats is None]


def _told(said: bytes, groups: list[Group]) -> list[Stats | None]:
    """What a helper says of the groups that it was asked for, None for one that it leaves to others."""
    numbers = np.frombuffer(said, np.int64)
    counts = (numbers[: len(groups)] * [len(group.names) for group in groups]).tolist()
    columns = numbers[len(groups) :].reshape(3, -1)
    told: list[Stats | None] = []
    start = 0
    for count in counts:
        end = start + count
        told.append(Stats(*columns[:, start:end]) if count else None)
        start = end
    return told
