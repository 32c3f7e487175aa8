"""From what a scan finds to what is to be read: new files, changed files, nothing twice."""

from __future__ import annotations

import heapq
import itertools
import logging
from collections import Counter, deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from dagflow.errors import SourceChangedError
from dagflow.metrics import names
from dagflow.storage.fingerprint import UNKNOWN, read_until
from dagflow.storage.location import redacted
from operators.splitter.change_policy import OnChange, change_of, seems_appended
from operators.splitter.clock import Clock
from operators.splitter.index.file_index import Answers, FileIndex, Seen
from operators.splitter.index.fingerprinter import Ends, Fingerprinter
from operators.splitter.index.pending_fingerprints import PendingFingerprints, UnderWay
from operators.splitter.scan.listed_files import Found, FoundFiles
from operators.splitter.scan.scanner import Scanner
from operators.splitter.scan.walk import FIRST_STEP, LAST_STEP

logger = logging.getLogger(__name__)

NEWEST_HELD = 100_000  # files that wait in memory where the latest are read first, at 300 bytes each


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file that is to be taken.

    Attributes:
        found: The file, and its version.
        start: First byte to be read.
        is_noted: Whether its version is only to be remembered, and nothing of it read.
        fingerprint: Of the version's ends; UNKNOWN where nobody looked at them.
    """

    found: Found
    start: int = 0
    is_noted: bool = False
    fingerprint: int = UNKNOWN

    @classmethod
    def of(cls, files: FoundFiles, position: int) -> Candidate:
        """One of several new files."""
        return cls(files[position], fingerprint=files.fingerprints[position] if files.fingerprints else UNKNOWN)

    @property
    def found_bytes(self) -> int:
        """How much of it is to be read."""
        return 0 if self.is_noted else max(self.found.stat.size_bytes - self.start, 0)


_Due = FoundFiles | tuple[Found, Seen | None]
"""New files in a row, or one that may be new, with what was taken of it."""


@dataclass(frozen=True, slots=True)
class Rules:
    """Which of the files that a scan finds are taken.

    Attributes:
        on_change: What to do about files that changed.
        settle_millis: How long a file must have been left alone.
        done_marker: Name of the file that says that a file is complete, with `{name}` for the file's own; "" for none.
        latest_first: Whether the newest files are read first.
        may_grow: Whether files may grow while they are read, so that tasks must look at them before that.
    """

    on_change: OnChange = OnChange()  # noqa: RUF009  # frozen
    settle_millis: int = 0
    done_marker: str = ""
    latest_first: bool = False
    may_grow: bool = False


class ChangeDetector:
    """Compares scans with the index.

    Args:
        scanner: What is there.
        index: What was taken.
        rules: What is to be taken.
        counters: Where changes are counted.
        clock: The time.
        fingerprinter: Looks at the ends of files.
        awaited: Files whose fingerprints will be told by those who read them.

    Attributes:
        has_more: Whether the scan that candidates() ended last found more new files than it gave.
    """

    def __init__(
        self,
        scanner: Scanner,
        index: FileIndex,
        rules: Rules,
        counters: Counter[str],
        clock: Clock,
        fingerprinter: Fingerprinter,
        awaited: PendingFingerprints,
    ) -> None:
        self._scanner = scanner
        self._index = index
        self._rules = rules
        self._counters = counters
        self._clock = clock
        self._fingerprinter = fingerprinter
        self._awaited = awaited
        self._unsettled = 0
        self.has_more = False

    def candidates(self) -> Iterator[Candidate]:
        """Scan once; where the newest come first, and not all were held, has_more says then that others are left.

        The caller records all candidates in the index before it scans again.

        Raises:
            StorageError: Something cannot be listed or examined; SourceChangedError where policy says so.
        """
        return _singles(self._newest() if self._rules.latest_first else self._fingerprinted(self._steps(self._rules)))

    def stretches(self) -> Generator[Candidate | FoundFiles]:
        """All candidates; new files that come in a row in one piece, where the order allows it.

        The caller records each in the index before it asks for the next.

        Raises:
            StorageError: As candidates() does.
        """
        return self._newest_first() if self._rules.latest_first else self._fingerprinted(self._steps(self._rules))

    def everything(self) -> Iterator[Candidate]:
        """Scan once, only to remember what is there and was not taken, however lately it was modified."""
        steps = self._steps(replace(self._rules, settle_millis=0))
        noted = ([replace(each, start=0, is_noted=True) for each in _singles(step)] for step in steps)
        return _singles(self._fingerprinted(noted))

    def _newest_first(self) -> Generator[Candidate | FoundFiles]:
        yield from self._newest()
        while self.has_more:
            # All of them are out, and the index knows them, before the next scan looks at it.
            yield from self._newest()

    def _newest(self) -> Generator[Candidate | FoundFiles]:
        """Scan once, for as many of the newest as are held."""
        self.has_more = False
        count = 0
        held: list[tuple[int, bytes, Candidate]] = []
        for candidate in _singles(each for step in self._steps(self._rules) for each in step):
            if candidate.is_noted:
                yield from self._fingerprinted([[candidate]])
                continue
            count += 1
            entry = (candidate.found.stat.mtime_ns, candidate.found.key, candidate)
            if len(held) < NEWEST_HELD:
                heapq.heappush(held, entry)
            else:
                heapq.heappushpop(held, entry)
        held.sort(reverse=True)
        yield from self._fingerprinted(
            [candidate for _, _, candidate in held[start : start + LAST_STEP]]
            for start in range(0, len(held), LAST_STEP)
        )
        self.has_more = count > NEWEST_HELD

    def _fingerprinted(self, steps: Iterable[Sequence[Candidate | FoundFiles]]) -> Generator[Candidate | FoundFiles]:
        """What is to be taken, with the fingerprints that no reader will tell; one step ahead, as tasks take them."""
        if not self._rules.on_change.tells_appends:
            for step in steps:
                yield from step
            return
        with ThreadPoolExecutor(1, thread_name_prefix="fingerprints") as jobs:
            waiting: deque[tuple[Sequence[Candidate | FoundFiles], Future[list[int]]]] = deque()
            for step in steps:
                wanted = [ends for each in step for ends in self._ends(each)]
                if not (wanted or waiting):
                    yield from step
                    continue
                waiting.append((step, jobs.submit(self._fingerprinter.look, wanted)))
                if len(waiting) > 1:
                    yield from self._marked(*waiting.popleft())
            while waiting:
                yield from self._marked(*waiting.popleft())

    def _ends(self, each: Candidate | FoundFiles) -> Sequence[Ends]:
        """What tasks look at before it is taken: nothing of object stores, which replace whole objects."""
        if isinstance(each, FoundFiles):
            is_looked_at = self._rules.may_grow and each.root.is_local
            return list(zip(each.keys, each.size_bytes.tolist(), strict=True)) if is_looked_at else ()
        found = each.found
        is_looked_at = (self._rules.may_grow or each.is_noted) and found.root.is_local and not each.fingerprint
        return [(found.key, found.stat.size_bytes)] if is_looked_at else ()

    def _marked(
        self, step: Sequence[Candidate | FoundFiles], looked: Future[list[int]]
    ) -> Iterator[Candidate | FoundFiles]:
        prints = iter(looked.result())
        for each in step:
            if own := list(itertools.islice(prints, len(self._ends(each)))):
                yield (
                    replace(each, fingerprints=own)
                    if isinstance(each, FoundFiles)
                    else replace(each, fingerprint=own[0])
                )
            else:
                yield each

    def _steps(self, rules: Rules) -> Iterator[list[Candidate | FoundFiles]]:
        now_millis = self._clock.now_millis()
        # Before the view: what readers tell after that, the view does not say.
        under_way = self._awaited.under_way()
        view = self._index.view(now_millis)
        self._unsettled = 0
        for step in _stepped(self._scanner.steps()):
            answers = view.look_up(
                step[0].names if len(step) == 1 else [name for found in step for name in found.names]
            )
            start = 0
            due: list[_Due] = []
            lacking: list[Found] = []
            for found in step:
                end = start + len(found)
                own = answers.slice(start, end)
                unchanged = _unchanged(found, own)
                due += self._due(found, own, unchanged, rules, now_millis)
                lacking += self._lacking(found, own, unchanged)
                start = end
            if due or lacking:
                yield list(self._judged(due, lacking, under_way))
        if self._unsettled:
            self._counters[names.UNSETTLED] += self._unsettled
            logger.info("files left for later, as they are not complete yet files=%d", self._unsettled)

    def _due(
        self, files: FoundFiles, answers: Answers, unchanged: npt.NDArray[np.bool_], rules: Rules, now_millis: int
    ) -> Iterator[_Due]:
        """Those that are not as they were taken, as far as they are complete."""
        positions = np.flatnonzero(~unchanged)
        if not len(positions):
            return
        if not (rules.settle_millis or rules.done_marker or answers.known[positions].any()):
            yield files.take(positions)
            return
        for position in positions.tolist():
            found = files[position]
            if self._is_marker(found):
                continue
            if _is_settled(found, rules, now_millis):
                yield found, answers[position]
            else:
                self._unsettled += 1

    def _lacking(self, files: FoundFiles, answers: Answers, unchanged: npt.NDArray[np.bool_]) -> Iterator[Found]:
        """Those that are as they were taken, and of which nobody has told what they begin and end with."""
        if not (self._rules.on_change.tells_appends and files.root.is_local):
            return
        positions = np.flatnonzero(unchanged & (answers.fingerprint == UNKNOWN) & (files.size_bytes > 0))
        if len(positions):
            lacking = files.take(positions)
            expected = self._awaited.expected(lacking.names)
            yield from (lacking[at] for at in np.flatnonzero(~expected).tolist())

    def _judged(self, due: list[_Due], lacking: list[Found], under_way: UnderWay) -> Iterator[Candidate | FoundFiles]:
        """Those that are to be taken, or noted."""
        changed = [(each[0], each[1]) for each in due if isinstance(each, tuple) and each[1] is not None]
        longer = [(found, seen) for found, seen in changed if seems_appended(seen, found.stat)]
        early = _early(longer, under_way)
        self._unsettled += len(early)
        wanted = [(found.key, seen.size_bytes) for found, seen in longer if found.key not in early]
        wanted += [(found.key, found.stat.size_bytes) for found in lacking]
        looked = dict(zip(wanted, self._fingerprinter.look(wanted), strict=True))
        for found in lacking:
            # What cannot be opened has taught nothing, and nothing is noted of it.
            if told := looked[found.key, found.stat.size_bytes]:
                yield Candidate(found, is_noted=True, fingerprint=told)
        for each in due:
            if isinstance(each, FoundFiles):
                yield each
            elif each[0].key not in early and (candidate := self._judge(*each, looked)) is not None:
                yield candidate

    def _judge(self, found: Found, seen: Seen | None, looked: Mapping[Ends, int]) -> Candidate | None:
        if seen is None or found.is_directory:
            return Candidate(found)
        change = change_of(seen, found.stat, looked.get((found.key, seen.size_bytes), UNKNOWN))
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
        start = read_until(seen.fingerprint, seen.size_bytes) if action == "tail" else 0
        return Candidate(found, start, action == "ignore")

    def _is_marker(self, found: Found) -> bool:
        marker = self._rules.done_marker
        if not marker or found.is_directory:
            return False
        name = found.root.lister.url(found.key.rpartition(b"/")[2])
        before, has_name, after = marker.partition("{name}")
        if not has_name:
            return name == marker
        return len(name) > len(before) + len(after) and name.startswith(before) and name.endswith(after)


def _early(longer: list[tuple[Found, Seen]], under_way: UnderWay) -> set[bytes]:
    """Keys of those that cannot be told yet from files that were rewritten, but will be when their readers are done."""
    unsure = [found for found, seen in longer if seen.fingerprint == UNKNOWN]
    is_early = under_way.has([found.name for found in unsure]) if unsure else ()
    return {found.key for found, early in zip(unsure, is_early, strict=True) if early}


def _is_settled(found: Found, rules: Rules, now_millis: int) -> bool:
    if found.is_directory:
        return True
    if rules.settle_millis and now_millis - found.stat.mtime_ns // 1_000_000 < rules.settle_millis:
        return False
    if not rules.done_marker:
        return True
    directory, _, name = found.key.rpartition(b"/")
    marker = rules.done_marker.replace("{name}", found.root.lister.url(name))
    return found.root.lister.kind(directory + b"/" + marker.encode("utf-8", "surrogateescape")) is not None


def _singles(found: Iterable[Candidate | FoundFiles]) -> Iterator[Candidate]:
    for each in found:
        if isinstance(each, Candidate):
            yield each
        else:
            yield from (Candidate.of(each, position) for position in range(len(each)))


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


class OneScan:
    """What one scan found to be taken, made as it is asked for."""

    def __init__(self, found: Generator[Candidate | FoundFiles]) -> None:
        self._found = found
        self._head: Candidate | FoundFiles | None = None

    def peek(self) -> Candidate | FoundFiles | None:
        """What is next, or None at the end."""
        if self._head is None:
            self._head = next(self._found, None)
        return self._head

    @property
    def found_bytes(self) -> int:
        """Bytes in what peek gave last and pop has not taken."""
        return 0 if self._head is None else self._head.found_bytes

    def pop(self, count: int = 1) -> None:
        """Take the candidate that peek gave, or so many of the files."""
        head = self._head
        self._head = None
        if isinstance(head, FoundFiles) and count < len(head):
            self._head = head.slice(count, len(head))

    def stop(self) -> None:
        """End the scan, and what tasks look at for it."""
        self._found.close()
