"""Listing local directories by helpers, ahead of the walk, with the versions of their files."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from operators.splitter.scan import worker_program
from operators.splitter.scan.listing import Entries, LocalLister, Stats
from operators.splitter.scan.queued_directories import QueuedDirectories
from operators.splitter.scan.worker_program import LIST, LISTED, NOT_REACHED, TO_BE_WALKED, WALK, WALKED
from operators.splitter.scan.workers import Helper, Helpers

DIRECTORIES = 512
"""So many directories a helper is asked for at a time, if they are small."""

MOST_FILES = 8192
"""So many files a helper is asked for at a time; a directory that has more is left to the walk."""

FIRST_FILES, MOST_FILES_HERE = 64, 1024
"""So many are listed at a time where there is no helper: the first ones are wanted at once."""

HELD = 5
"""So many times what a helper is asked for is listed ahead, some 50 bytes a file."""

DIRECTORY_FILES = 16
"""What is held of a directory without entries, in terms of these."""


@dataclass(frozen=True, slots=True)
class _Request:
    """Directories that are listed together.

    Attributes:
        directories: By path.
        is_walk: Whether with all that is below them.
    """

    directories: dict[bytes, None]
    is_walk: bool

    def text(self, most_files: int, passed_over: bytes) -> bytes:
        """As a helper understands it."""
        kind = [WALK + b"%d" % most_files, passed_over] if self.is_walk else [LIST + b"%d" % most_files]
        return b"\0".join([*kind, *self.directories])


class _Answer:
    """What was said of a request: as it came, for names by themselves take three times the room.

    Args:
        request: It.
        said: What a helper has said.

    Attributes:
        directories: Those of the request.
        outcomes: What became of each.
        counts: How many entries each has.
    """

    def __init__(self, request: _Request, said: bytes) -> None:
        self.directories = list(request.directories)
        told = np.frombuffer(said, np.int64, 3 * len(self.directories)).reshape(-1, 3)
        self.outcomes, self.counts, lengths = told.T.tolist()
        self._columns = np.frombuffer(said, np.int64, 3 * sum(self.counts), told.nbytes).reshape(3, -1)
        self._names = memoryview(said)[told.nbytes + self._columns.nbytes :]
        self._ends = np.append(0, np.cumsum(self.counts)).tolist()
        self._name_ends = np.append(0, np.cumsum(lengths)).tolist()

    def entries(self, first: int, end: int) -> tuple[list[bytes], npt.NDArray[np.int64]]:
        """Names and versions of the entries of directories [first, end)."""
        names = bytes(self._names[self._name_ends[first] : self._name_ends[end]]).split(b"\0")[:-1]
        return names, self._columns[:, self._ends[first] : self._ends[end]]

    def in_common(self, first: int, above: bytes, names: list[bytes]) -> int:
        """How many directories from the first on are those of these names, and were listed."""
        for count, name in enumerate(names[: len(self.directories) - first]):
            if self.directories[first + count] != above + name or self.outcomes[first + count] != LISTED:
                return count
        return min(len(self.directories) - first, len(names))

    @property
    def is_complete(self) -> bool:
        """Whether it says of each directory all that there is."""
        return all(outcome == LISTED for outcome in self.outcomes) and not self._has_left_over

    @property
    def _has_left_over(self) -> bool:
        return bool((self._columns[0] == TO_BE_WALKED).any())

    def to_be_walked(self) -> Iterator[bytes]:
        """Paths of directories that nobody has come to."""
        if not self._has_left_over:
            return
        for index, path in enumerate(self.directories):
            names, columns = self.entries(index, index + 1)
            above = _above(path)
            yield from (above + names[at] for at in np.flatnonzero(columns[0] == TO_BE_WALKED).tolist())


class PrefetchingLister(LocalLister):
    """Lists what LocalLister lists, with helpers where there is work for them, and many directories at a time.

    Guarantee: the same entries in the same order, whatever becomes of a helper.

    Args:
        helpers: Who may be asked.
        most_files: How many files one is asked for at a time.
        passed_over: Matches names of directories that are not entered.
    """

    def __init__(
        self, helpers: Helpers, most_files: int = MOST_FILES, passed_over: re.Pattern[str] | None = None
    ) -> None:
        super().__init__()
        self._helpers = helpers
        self._most_files = most_files
        self._most_files_here = FIRST_FILES
        self._passed_over = b"" if passed_over is None else os.fsencode(passed_over.pattern)
        # Others cannot be put into words for a helper.
        self._walks = b"\0" not in self._passed_over and (passed_over is None or passed_over.flags == re.UNICODE)
        self._upcoming = QueuedDirectories()
        # The others, which are most, are gone down into.
        self._only_listed: set[bytes] = set()
        self._asked: dict[Helper, _Request] = {}
        self._listed: dict[bytes, tuple[_Answer, int]] = {}
        self._left: set[bytes] = set()
        self._ahead = QueuedDirectories()
        self._held_files = 0
        # Until more is known, directories are taken for large ones.
        self._seen_directories, self._seen_files = 1, most_files // 8

    def expect(self, directories: Iterable[bytes], *, entirely: bool = False) -> None:
        """See Lister."""
        paths = list(directories)
        self._upcoming.add(paths)
        if not (entirely and self._walks):
            self._only_listed.update(paths)

    def stretches(self, directory: bytes) -> Iterator[Entries]:
        """See Lister."""
        found = self._found(directory)
        if found is not None:
            names, (sizes, *others) = found[0].entries(found[1], found[1] + 1)
            self._forget([directory])
            yield Entries(names, Stats(np.maximum(sizes, WALKED), *others))
            return
        count = 0
        for entries in super().stretches(directory):
            count += len(entries.names)
            yield entries
        self._saw(1, min(count, self._most_files))

    def below(self, directory: bytes, names: list[bytes]) -> Iterator[Entries]:
        """See Lister."""
        if not self._walks:
            yield from super().below(directory, names)
            return
        at = 0
        while at < len(names):
            path = directory + names[at]
            found = self._found(path)
            if found is None and path not in self._left:
                found = self._found_here(path)
            if found is None:
                self._left.discard(path)
                yield Entries([names[at]])
                at += 1
                continue
            answer, first = found
            count = answer.in_common(first, directory, names[at : at + DIRECTORIES])
            entries = answer.entries(first, first + count)
            at += count
            self._forget(answer.directories[first : first + count])
            yield from self._finished(directory, *entries)

    def _finished(self, directory: bytes, names: list[bytes], columns: npt.NDArray[np.int64]) -> Iterator[Entries]:
        """Entries, with those of the directories that nobody had come to."""
        stats, sizes = Stats(*columns), columns[0].tolist()

        def row(numbered: tuple[int, int]) -> tuple[int, object]:
            index, at = numbered
            return at - index, _above(names[at]) if sizes[at] == TO_BE_WALKED else at

        done = 0
        for _, group in itertools.groupby(enumerate(np.flatnonzero(columns[0] < WALKED).tolist()), row):
            positions = [at for _, at in group]
            first, end = positions[0], positions[-1] + 1
            if done < first:
                yield Entries(names[done:first], stats.slice(done, first), is_walked=True)
            done = end
            if sizes[first] != TO_BE_WALKED:
                yield Entries([names[first]])
                continue
            above = _above(names[first])
            for entries in self.below(directory + above, [name[len(above) :] for name in names[first:end]]):
                yield replace(entries, names=[above + name for name in entries.names])
        if done < len(names):
            yield Entries(names[done:], stats.slice(done, len(names)), is_walked=True)

    def _saw(self, directories: int, files: int) -> None:
        # What comes is rather like what came last.
        self._seen_directories = self._seen_directories // 2 + directories
        self._seen_files = self._seen_files // 2 + files

    def _found(self, directory: bytes) -> tuple[_Answer, int] | None:
        """What a helper has said of it; None where nobody was asked, or it was left to this process."""
        self._only_listed.difference_update(self._upcoming.enter(directory))
        # Without its slash it is behind what was passed over, and before itself.
        self._forget(self._ahead.enter(directory[:-1]))
        self._ask()
        is_awaited = True
        while self._asked and is_awaited:
            is_awaited = any(directory in request.directories for request in self._asked.values())
            for helper in self._helpers.done(self._asked, waits=is_awaited):
                request = self._asked.pop(helper)
                if (said := self._helpers.answer(helper)) is not None:
                    answer = self._receive(request, said)
                    self._saw(answer.outcomes.count(LISTED), sum(answer.counts))
            # Whoever is done goes on while others are waited for.
            self._ask()
        return self._listed.get(directory)

    def _found_here(self, directory: bytes) -> tuple[_Answer, int] | None:
        """What this process finds itself below a directory, and below the next ones that nobody was asked for."""
        most, self._most_files_here = self._most_files_here, min(2 * self._most_files_here, MOST_FILES_HERE)
        self._upcoming.add([directory])
        request = self._next(most)
        answer = self._receive(request, worker_program.answer(request.text(most, self._passed_over)))
        if answer.is_complete:
            # Of how much there is below a directory the beginning says nothing.
            self._saw(len(answer.directories), sum(answer.counts))
        return self._listed.get(directory)

    def _forget(self, directories: Iterable[bytes]) -> None:
        """Let go of what was taken, or passed over."""
        for path in directories:
            if (listed := self._listed.pop(path, None)) is not None:
                answer, index = listed
                self._held_files -= answer.counts[index] + DIRECTORY_FILES

    def _next(self, most_files: int) -> _Request:
        """The next directories, about as many as have so many files, all to be listed in the same way."""
        likely = self._seen_directories * most_files // max(self._seen_files, 1)
        directories = self._upcoming.take(max(1, min(likely, DIRECTORIES)))
        is_walk = directories[0] not in self._only_listed
        count = next((at for at, path in enumerate(directories) if (path in self._only_listed) == is_walk), None)
        if count is not None:
            self._upcoming.add(directories[count:])
            del directories[count:]
        self._only_listed.difference_update(directories)
        return _Request(dict.fromkeys(directories), is_walk)

    def _ask(self) -> None:
        """Give work to those who have none, as far as there is room for what they will find."""
        while self._upcoming and self._helpers.may_be_asked and self._has_room:
            # What a helper does not come to, it holds up: the walk needs it before what others are asked for.
            request = self._next(self._most_files)
            helper = self._helpers.ask(request.text(self._most_files, self._passed_over))
            if helper is None:
                self.expect(request.directories, entirely=request.is_walk)
                return
            self._asked[helper] = request

    @property
    def _has_room(self) -> bool:
        return self._held_files + len(self._asked) * self._most_files < HELD * self._most_files

    def _receive(self, request: _Request, said: bytes) -> _Answer:
        answer = _Answer(request, said)
        for index, (path, outcome) in enumerate(zip(answer.directories, answer.outcomes, strict=True)):
            if outcome == LISTED:
                self._listed[path] = answer, index
                self._ahead.add([path])
                self._held_files += answer.counts[index] + DIRECTORY_FILES
            elif outcome == NOT_REACHED:
                self.expect([path], entirely=request.is_walk)
            elif request.is_walk:
                self._left.add(path)
        self.expect(answer.to_be_walked(), entirely=True)
        return answer


def _above(path: bytes) -> bytes:
    """The path of a directory without its name; both have a slash at the end, or the first is empty."""
    return path[: path.rfind(b"/", 0, -1) + 1]
