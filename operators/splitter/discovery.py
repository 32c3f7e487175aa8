"""From what a scan finds to what is to be read: new files, changed files, nothing twice."""

from __future__ import annotations

import heapq
import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dagflow.errors import SourceChangedError
from dagflow.metrics import names
from dagflow.storage.fingerprint import fingerprint
from dagflow.storage.location import redacted
from operators.splitter.changes import OnChange, change_of
from operators.splitter.clock import Clock
from operators.splitter.file_index import Answers, FileIndex, Seen
from operators.splitter.found import Found, FoundFiles
from operators.splitter.scanner import FIRST_STEP, LAST_STEP, Scanner

logger = logging.getLogger(__name__)

NEWEST_HELD = 100_000  # files that wait in memory where the latest are read first, at 300 bytes each


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file that is to be taken.

    Attributes:
        found: The file, and its version.
        start: First byte to be read.
        is_noted: Whether its version is only to be remembered, and nothing of it read.
    """

    found: Found
    start: int = 0
    is_noted: bool = False


@dataclass(frozen=True, slots=True)
class Rules:
    """Which of the files that a scan finds are taken.

    Attributes:
        on_change: What to do about files that changed.
        settle_millis: How long a file must have been left alone.
        done_marker: Name of the file that says that a file is complete, with `{name}` for the file's own; "" for none.
        latest_first: Whether the newest files are read first.
    """

    on_change: OnChange = OnChange()  # noqa: RUF009  # frozen
    settle_millis: int = 0
    done_marker: str = ""
    latest_first: bool = False


class Discovery:
    """Compares scans with the index.

    Args:
        scanner: What is there.
        index: What was taken.
        rules: What is to be taken.
        counters: Where changes are counted.
        clock: The time.
    """

    def __init__(self, scanner: Scanner, index: FileIndex, rules: Rules, counters: Counter[str], clock: Clock) -> None:
        self._scanner = scanner
        self._index = index
        self._rules = rules
        self._counters = counters
        self._clock = clock
        self._unsettled = 0

    def candidates(self) -> Iterator[Candidate]:
        """Scan once.

        The caller records each candidate in the index before it asks for the next.

        Raises:
            StorageError: Something cannot be listed or examined; SourceChangedError where policy says so.
        """
        if not self._rules.latest_first:
            yield from self._one_by_one()
            return
        while True:
            count = 0
            held: list[tuple[int, bytes, Candidate]] = []
            for candidate in self._one_by_one():
                count += 1
                entry = (candidate.found.stat.mtime_ns, candidate.found.key, candidate)
                if len(held) < NEWEST_HELD:
                    heapq.heappush(held, entry)
                else:
                    heapq.heappushpop(held, entry)
            held.sort(reverse=True)
            yield from (candidate for _, _, candidate in held)
            if count <= NEWEST_HELD:
                return

    def stretches(self) -> Iterator[Candidate | FoundFiles]:
        """Scan once, as candidates() does; new files that come in a row in one piece, where the order allows it."""
        return self.candidates() if self._rules.latest_first else self._scanned()

    def everything(self) -> Iterator[Candidate]:
        """Scan once, only to remember what is there and was not taken."""
        for candidate in self._one_by_one():
            yield Candidate(candidate.found, is_noted=True)

    def _one_by_one(self) -> Iterator[Candidate]:
        for each in self._scanned():
            if isinstance(each, Candidate):
                yield each
            else:
                yield from map(Candidate, each)

    def _scanned(self) -> Iterator[Candidate | FoundFiles]:
        now_millis = self._clock.now_millis()
        view = self._index.view(now_millis)
        self._unsettled = 0
        for step in _stepped(self._scanner.steps()):
            answers = view.look_up(
                step[0].names if len(step) == 1 else [name for found in step for name in found.names]
            )
            start = 0
            for found in step:
                end = start + len(found)
                yield from self._judged(found, answers.slice(start, end), now_millis)
                start = end
        if self._unsettled:
            self._counters[names.UNSETTLED] += self._unsettled
            logger.info("files left for later, as they are not complete yet files=%d", self._unsettled)

    def _judged(self, files: FoundFiles, answers: Answers, now_millis: int) -> Iterator[Candidate | FoundFiles]:
        """Those that are to be taken."""
        rules = self._rules
        positions = np.flatnonzero(~_unchanged(files, answers))
        if not len(positions):
            return
        if not (rules.settle_millis or rules.done_marker or answers.known[positions].any()):
            yield files.take(positions)
            return
        for position in positions.tolist():
            found = files[position]
            if not self._is_settled(found, now_millis):
                self._unsettled += 1
            elif (candidate := self._judge(found, answers[position])) is not None:
                yield candidate

    def _is_settled(self, found: Found, now_millis: int) -> bool:
        if found.is_directory:
            return True
        rules = self._rules
        if rules.settle_millis and now_millis - found.stat.mtime_ns // 1_000_000 < rules.settle_millis:
            return False
        if not rules.done_marker:
            return True
        directory, _, name = found.key.rpartition(b"/")
        marker = rules.done_marker.replace("{name}", found.root.lister.url(name))
        return found.root.lister.kind(directory + b"/" + marker.encode("utf-8", "surrogateescape")) is not None

    def _judge(self, found: Found, seen: Seen | None) -> Candidate | None:
        if seen is None:
            return None if self._is_marker(found) else Candidate(found)
        if found.is_directory:
            return Candidate(found)
        change = change_of(seen, found.stat, lambda: fingerprint(found.key, seen.size_bytes))
        action = self._rules.on_change.action(change)
        self._counters[names.changed(change)] += 1
        url = redacted(found.url)
        logger.warning("file changed after it was taken change=%s action=%s url=%s", change, action, url)
        if action == "fail":
            raise SourceChangedError(
                f"it was {change} after it was read: {seen.size_bytes} bytes then, {found.stat.size_bytes} now",
                url=url,
                hint=f"say what to do about it, for example on_change: {{{change}: reread}} or {{{change}: ignore}}",
            )
        return Candidate(found, seen.size_bytes if action == "tail" else 0, action == "ignore")

    def _is_marker(self, found: Found) -> bool:
        marker = self._rules.done_marker
        if not marker or found.is_directory:
            return False
        name = found.root.lister.url(found.key.rpartition(b"/")[2])
        before, has_name, after = marker.partition("{name}")
        if not has_name:
            return name == marker
        return len(name) > len(before) + len(after) and name.startswith(before) and name.endswith(after)


def _stepped(found: Iterable[FoundFiles]) -> Iterator[list[FoundFiles]]:
    """Gather what a thousand roots give one by one: a join in larger steps costs less."""
    step: list[FoundFiles] = []
    count, size = 0, FIRST_STEP
    for each in found:
        step.append(each)
        count += len(each)
        if count >= size:
            yield step
            step, count, size = [], 0, min(2 * size, LAST_STEP)
    if step:
        yield step


def _unchanged(files: FoundFiles, answers: Answers) -> npt.NDArray[np.bool_]:
    """For each file, whether the version that was taken is the one that was found."""
    if not answers.known.any():
        return answers.known
    same: npt.NDArray[np.bool_] = answers.known & (files.size_bytes == answers.size_bytes)
    tagged = files.tagged
    if not tagged.any():
        same &= files.mtime_ns == answers.mtime_ns
        return same
    same &= np.where(tagged, files.identities == answers.identity, files.mtime_ns == answers.mtime_ns)
    return same
