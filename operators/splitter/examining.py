"""Examining files in processes of their own, ahead of the walk."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import numpy as np

from dagflow.errors import StorageError
from operators.splitter import stat_helper
from operators.splitter.listing import Lister, LocalLister, Stats

AFTER_FILES = 20_000
"""So many files of a scan are examined here: for fewer the helpers are not worth their start."""

HELPERS = 3
"""Processes that examine files: on two cores the third has work at hand whenever the scan is busy."""


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


class Examiner:
    """Finds the versions of files; from some number of files on with helpers, which use the other cores.

    Guarantee: what the lister's stats() says, in the order of the groups, whatever becomes of a helper.

    Args:
        after_files: How many files are examined before helpers are started.
        helpers: How many are started.
    """

    def __init__(self, after_files: int = AFTER_FILES, helpers: int | None = None) -> None:
        self._here = after_files
        self._most = (HELPERS if (os.cpu_count() or 1) > 1 else 0) if helpers is None else helpers
        self._helpers: list[Helper] = []
        self._idle: list[Helper] | None = None

    @property
    def helpers(self) -> Sequence[Helper]:
        """Those that were started."""
        return tuple(self._helpers)

    def __enter__(self) -> Examiner:
        """Itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the helpers."""
        for helper in self._helpers:
            helper.close()

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
            while waiting and not (waiting[0][1] and self._idle and len(waiting) <= self._most):
                yield self._ended(lister, *waiting.popleft())
        while waiting:
            yield self._ended(lister, *waiting.popleft())
        if failed is not None:
            raise failed

    def _begun(self, step: list[Group]) -> Helper | None:
        """The helper that looks at a step; None where that is to be done here."""
        if self._here > 0:
            self._here -= sum(len(group.names) for group in step)
            return None
        if self._idle is None:
            self._helpers = [helper for _ in range(self._most) if (helper := Helper.started()) is not None]
            self._idle = list(self._helpers)
        wanted = _wanted(step)
        # One request at a time: two that both write, and neither reads, would wait for each other for ever.
        while wanted and self._idle:
            helper = self._idle.pop(0)
            if helper.ask(wanted):
                return helper
        return None

    def _ended(self, lister: Lister, step: list[Group], helper: Helper | None) -> list[Group]:
        told: Iterator[Stats | None] = iter(())
        if helper is not None and (answer := helper.answer(_wanted(step))) is not None:
            told = iter(answer)
            if self._idle is not None:
                self._idle.append(helper)
        ended = []
        for group in step:
            names, stats = group.names, group.stats
            if stats is None and (stats := next(told, None)) is None:
                names, stats = lister.stats(group.directory, names)
            ended.append(Group(group.directory, names, stats))
        return ended


def _wanted(step: list[Group]) -> list[Group]:
    return [group for group in step if group.stats is None]


class Helper:
    """A process that runs stat_helper.

    Args:
        process: It.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        assert process.stdin is not None and process.stdout is not None
        self._requests, self._answers = process.stdin, process.stdout

    @classmethod
    def started(cls) -> Helper | None:
        """A new one; None where that is refused."""
        # Without the packages of this Python, which it does not need, it starts in a fifth of the time.
        command = [sys.executable or "", "-I", "-S", str(Path(stat_helper.__file__))]
        pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
        try:
            return cls(subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=nowhere))
        except OSError:
            return None

    def ask(self, groups: list[Group]) -> bool:
        """Have files examined; False where it is dead."""
        request = b"\0\0".join(b"\0".join([group.directory, *group.names]) for group in groups)
        try:
            self._requests.write(stat_helper.framed(request))
            self._requests.flush()
        except OSError:
            return False
        return True

    def answer(self, groups: list[Group]) -> list[Stats | None] | None:
        """What it says of the groups that it was asked for, None for one that it leaves to others; None if it died."""
        said = stat_helper.received(self._answers)
        if said is None:
            return None
        numbers = np.frombuffer(said, np.int64)
        counts = (numbers[: len(groups)] * [len(group.names) for group in groups]).tolist()
        sizes, times, inodes = numbers[len(groups) :].reshape(3, -1).tolist()
        told: list[Stats | None] = []
        start = 0
        for count in counts:
            end = start + count
            told.append(Stats(sizes[start:end], times[start:end], inodes[start:end]) if count else None)
            start = end
        return told

    def close(self) -> None:
        """End it, whatever it does."""
        self.process.kill()
        with contextlib.suppress(OSError):
            self._requests.close()
        self._answers.close()
        self.process.wait()
