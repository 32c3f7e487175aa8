"""Listing local directories by helpers, ahead of the walk, with the versions of their files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from operators.splitter.helpers import Helper, Helpers
from operators.splitter.listing import Entries, LocalLister, Stats
from operators.splitter.scan_helper import LIST, LISTED, NOT_REACHED
from operators.splitter.upcoming import Upcoming

DIRECTORIES = 64
"""So many directories a helper is asked for at a time, if they are small."""

MOST_FILES = 8192
"""So many files a helper is asked for at a time; a directory that has more is left to the walk."""

HELD = 5
"""So many times what a helper is asked for is listed ahead, some 50 bytes a file."""

DIRECTORY_FILES = 16
"""What is held of a directory without entries, in terms of these."""


class _Listed(NamedTuple):
    """What a helper said of a directory: as it came, for names by themselves take three times the room."""

    names: memoryview
    columns: npt.NDArray[np.int64]

    @property
    def size(self) -> int:
        return len(self.columns[0])

    def entries(self) -> Entries:
        return Entries(bytes(self.names).split(b"\0") if self.size else [], Stats(*self.columns))


class AheadLister(LocalLister):
    """Lists what LocalLister lists, with helpers where there is work for them.

    Guarantee: the same entries in the same order, whatever becomes of a helper.

    Args:
        helpers: Who may be asked.
        most_files: How many files one is asked for at a time.
    """

    def __init__(self, helpers: Helpers, most_files: int = MOST_FILES) -> None:
        super().__init__()
        self._helpers = helpers
        self._most_files = most_files
        self._upcoming = Upcoming()
        self._asked: dict[Helper, list[bytes]] = {}
        self._listed: dict[bytes, _Listed] = {}
        self._ahead = Upcoming()
        self._held_files = 0
        # Until more is known, directories are taken for large ones.
        self._seen_directories, self._seen_files = 1, most_files // 8

    def expect(self, directories: Iterable[bytes]) -> None:
        """See Lister."""
        self._upcoming.add(directories)

    def stretches(self, directory: bytes) -> Iterator[Entries]:
        """See Lister."""
        self._upcoming.enter(directory)
        self._ask()
        found = self._taken(directory)
        if found is not None:
            yield found
            return
        count = 0
        for entries in super().stretches(directory):
            count += len(entries.names)
            yield entries
        self._saw(1, min(count, self._most_files))

    def _saw(self, directories: int, files: int) -> None:
        # What comes is rather like what came last.
        self._seen_directories = self._seen_directories // 2 + directories
        self._seen_files = self._seen_files // 2 + files

    def _taken(self, directory: bytes) -> Entries | None:
        """What a helper has found there; None where nobody was asked, or it was left to this process."""
        is_awaited = True
        while self._asked and is_awaited:
            is_awaited = any(directory in directories for directories in self._asked.values())
            for helper in self._helpers.done(self._asked, waits=is_awaited):
                self._receive(helper)
            # Whoever is done goes on while others are waited for.
            self._ask()
        found = None
        for path in self._ahead.enter(directory):
            listed = self._listed.pop(path)
            self._held_files -= listed.size + DIRECTORY_FILES
            found = listed.entries() if path == directory else None
        return found

    def _ask(self) -> None:
        """Give work to those who have none, as far as there is room for what they will find."""
        while self._upcoming and self._helpers.may_be_asked and self._has_room:
            # What a helper does not come to, it holds up: the walk needs it before what others are asked for.
            likely = self._seen_directories * self._most_files // max(self._seen_files, 1)
            directories = self._upcoming.take(max(1, min(likely, DIRECTORIES)))
            helper = self._helpers.ask(LIST + b"\0".join([b"%d" % self._most_files, *directories]))
            if helper is None:
                self._upcoming.add(directories)
                return
            self._asked[helper] = directories

    @property
    def _has_room(self) -> bool:
        return self._held_files + len(self._asked) * self._most_files < HELD * self._most_files

    def _receive(self, helper: Helper) -> None:
        directories = self._asked.pop(helper)
        if (said := self._helpers.answer(helper)) is None:
            return
        told = np.frombuffer(said, np.int64, 3 * len(directories)).reshape(-1, 3)
        outcomes, counts, lengths = told.T.tolist()
        columns = np.frombuffer(said, np.int64, 3 * sum(counts), told.nbytes).reshape(3, -1)
        self._saw(outcomes.count(LISTED), sum(counts))
        first, position = 0, told.nbytes + columns.nbytes
        for path, outcome, count, length in zip(directories, outcomes, counts, lengths, strict=True):
            if outcome == LISTED:
                names = memoryview(said)[position : position + length]
                self._listed[path] = _Listed(names, columns[:, first : first + count])
                self._ahead.add([path])
                self._held_files += count + DIRECTORY_FILES
                first, position = first + count, position + length
            elif outcome == NOT_REACHED:
                self._upcoming.add([path])
