"""Examines listed files with workers, ahead of the walk."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator
from typing import Any

import numpy as np

from dagflow.errors import StorageError
from operators.splitter.scan.listed_stats import ListedStats
from operators.splitter.scan.listing import Entries, Lister
from operators.splitter.scan.worker_program import STAT
from operators.splitter.scan.workers import Workers


class StatPrefetcher:
    """Adds the versions to entries whose listing has none.

    Guarantee: the result of Lister.stats, in the order of the entries, even if a worker dies.
    """

    def __init__(self, workers: Workers[Any]) -> None:
        self._workers = workers

    def with_stats(self, lister: Lister, steps: Iterator[list[Entries]]) -> Generator[list[Entries]]:
        """Each step's entries with their versions, without names that are no files any more.

        Raises:
            StorageError: A file cannot be examined; or any error of steps, after the steps that came before it.
        """
        waiting: deque[tuple[list[Entries], Any]] = deque()
        failed: StorageError | None = None
        while True:
            try:
                step = next(steps, None)
            except StorageError as error:
                step, failed = None, error
            if step is None:
                break
            waiting.append((step, self._ask(step) if lister.is_local else None))
            while waiting and not (waiting[0][1] and self._may_go_ahead(len(waiting))):
                yield self._completed(lister, *waiting.popleft())
        while waiting:
            yield self._completed(lister, *waiting.popleft())
        if failed is not None:
            raise failed

    def _may_go_ahead(self, steps: int) -> bool:
        return self._workers.has_idle and steps <= self._workers.max_pending

    def _ask(self, step: list[Entries]) -> Any:
        """The pending request for a step's versions; None if this process must examine the files."""
        if self._workers.defer(sum(map(len, step))):
            return None
        wanted = _without_stats(step)
        if not wanted:
            return None
        return self._workers.ask(STAT + b"\0\0".join(b"\0".join([each.directory, *each.names]) for each in wanted))

    def _completed(self, lister: Lister, step: list[Entries], pending: Any) -> list[Entries]:
        answered: Iterator[ListedStats | None] = iter(())
        if pending is not None and (data := self._workers.answer(pending)) is not None:
            answered = iter(_decoded(data, _without_stats(step)))
        completed = []
        for entries in step:
            names, stats = entries.names, entries.stats
            if stats is None and (stats := next(answered, None)) is None:
                names, stats = lister.stats(entries.directory, names)
            completed.append(Entries(names, stats, directory=entries.directory))
        return completed


def _without_stats(step: list[Entries]) -> list[Entries]:
    return [entries for entries in step if entries.stats is None]


def _decoded(data: bytes, wanted: list[Entries]) -> list[ListedStats | None]:
    """The versions of the wanted entries; None for those that the worker left to this process."""
    numbers = np.frombuffer(data, np.int64)
    counts = (numbers[: len(wanted)] * [len(entries) for entries in wanted]).tolist()
    columns = numbers[len(wanted) :].reshape(3, -1)
    decoded: list[ListedStats | None] = []
    start = 0
    for count in counts:
        end = start + count
        decoded.append(ListedStats(*columns[:, start:end]) if count else None)
        start = end
    return decoded
