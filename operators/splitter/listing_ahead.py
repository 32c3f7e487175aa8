"""Listing local directories by helpers, ahead of the walk, with the versions of their files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from operators.splitter.helpers import Helper, Helpers
from operators.splitter.listing import Entries, LocalLister, Stats
from operators.splitter.scan_helper import LIST, LISTED, MOST_FILES, NOT_REACHED
from operators.splitter.upcoming import Upcoming

DIRECTORIES = 64
"""Directories that a helper is asked for at a time; it says when they are too much."""

HELD_FILES = 8 * MOST_FILES
"""So many entries are listed ahead, some 50 bytes each."""


class AheadLister(LocalLister):
    """Lists what LocalLister lists, with helpers where there is work for them.

    Guarantee: the same entries in the same order, whatever becomes of a helper.

    Args:
        helpers: Who may be asked.
    """

    def __init__(self, helpers: Helpers) -> None:
        super().__init__()
        self._helpers = helpers
        self._upcoming = Upcoming()
        self._asked: dict[Helper, list[bytes]] = {}
        self._listed: dict[bytes, Entries | None] = {}
        self._held_files = 0

    def expect(self, directories: Iterable[bytes]) -> None:
        """See Lister."""
        self._upcoming.add(directories)

    def stretches(self, directory: bytes) -> Iterator[Entries]:
        """See Lister."""
        self._upcoming.enter(directory)
        found = self._taken(directory)
        self._ask()
        if found is None:
            yield from super().stretches(directory)
        else:
            yield found

    def _taken(self, directory: bytes) -> Entries | None:
        """What a helper has found there; None where nobody was asked, or it was left to this process."""
        for helper, directories in list(self._asked.items()):
            if directory in directories or helper.has_answered:
                self._receive(helper)
        # The walk goes by path: what comes before it was passed over.
        for passed in [path for path in self._listed if path < directory]:
            self._drop(passed)
        return self._drop(directory)

    def _drop(self, directory: bytes) -> Entries | None:
        found = self._listed.pop(directory, None)
        self._held_files -= len(found.names) if found is not None else 0
        return found

    def _ask(self) -> None:
        """Give work to those who have none, as far as there is room for what they will find."""
        while self._upcoming and self._held_files + len(self._asked) * MOST_FILES < HELD_FILES:
            directories = self._upcoming.take(DIRECTORIES)
            helper = self._helpers.ask(LIST + b"\0".join(directories))
            if helper is None:
                self._upcoming.add(directories)
                return
            self._asked[helper] = directories

    def _receive(self, helper: Helper) -> None:
        directories = self._asked.pop(helper)
        if (said := self._helpers.answer(helper)) is None:
            return
        told = np.frombuffer(said, np.int64, 3 * len(directories)).reshape(-1, 3)
        outcomes, counts, lengths = told.T.tolist()
        columns = np.frombuffer(said, np.int64, 3 * sum(counts), told.nbytes).reshape(3, -1)
        first, position = 0, told.nbytes + columns.nbytes
        for path, outcome, count, length in zip(directories, outcomes, counts, lengths, strict=True):
            if outcome == LISTED:
                names = said[position : position + length].split(b"\0") if count else []
                self._listed[path] = Entries(names, Stats(*columns[:, first : first + count]))
                self._held_files += count
                first, position = first + count, position + length
            elif outcome == NOT_REACHED:
                self._upcoming.add([path])
