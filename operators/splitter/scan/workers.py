"""Workers that list directories and examine files ahead of a scan: processes of the driver, or tasks."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, Generic, TypeVar

import re2

from operators.splitter.scan import worker_program

InTasks = Callable[[Callable[[Any], Any], list[Any]], list[Any]]
"""Applies a function to items in tasks and returns the results in order; see ControlServices.in_tasks."""

AFTER_FILES = 20_000
"""Number of files that the scan examines itself: for fewer, worker processes cost more than they save."""

AFTER_NEW_FILES = 4_000
"""The same if all files are new: the scan comes this far while the first windows run, and the listings of workers
meanwhile are ready for the first large one.
"""

WORKER_PROCESSES = 3
"""On two cores, the third process has a request at hand whenever the scan itself is busy."""

CONCURRENT_TASKS = 16
"""Number of requests that run as tasks at a time: listing in tasks pays where each directory is slow to list."""

_SET_PIPE_BYTES = getattr(fcntl, "F_SETPIPE_SZ", None)
_PIPE_BYTES = 1 << 20
"""Bytes of an answer that fits into the pipe, so that a worker need not wait until it is read."""

_SITE = str(Path(re2.__file__).parent.parent)
"""Where a worker finds RE2."""

P = TypeVar("P")


class Workers(ABC, Generic[P]):
    """Answers requests of one scan, separately from the scan's own thread; see worker_program.answer.

    A request that ask() accepted is pending until its answer is taken.

    Args:
        after_files: Files that the scan examines itself before it may ask.
    """

    def __init__(self, max_pending: int, after_files: int) -> None:
        self.max_pending = max_pending
        self._files_before = after_files

    @property
    def is_started(self) -> bool:
        """Whether the scan has come far enough to ask."""
        return self._files_before <= 0

    def defer(self, files: int) -> bool:
        """Whether the scan must examine the next files itself, because it is too early to ask; they are counted."""
        if self.is_started:
            return False
        self._files_before -= files
        return True

    @property
    @abstractmethod
    def has_idle(self) -> bool:
        """Whether ask() may accept a request, as far as is known."""

    @abstractmethod
    def ask(self, request: bytes) -> P | None:
        """Start a request, if it is not too early.

        Returns:
            The pending request; None if no worker is free.
        """

    @abstractmethod
    def ready(self, pending: Iterable[P], *, waits: bool) -> list[P]:
        """The pending requests whose answers have begun to arrive; waits for at least one if `waits`."""

    @abstractmethod
    def answer(self, pending: P) -> bytes | None:
        """Wait for the answer to a request; None if its worker died."""

    @abstractmethod
    def close(self) -> None:
        """Stop all workers, even at work."""


class WorkerProcess:
    """A process that runs worker_program and answers one request at a time."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        assert process.stdin is not None and process.stdout is not None
        self._requests, self._answers = process.stdin, process.stdout
        if _SET_PIPE_BYTES is not None:
            with contextlib.suppress(OSError):
                fcntl.fcntl(self._answers, _SET_PIPE_BYTES, _PIPE_BYTES)

    @classmethod
    def started(cls) -> WorkerProcess | None:
        """A new process; None if the system refuses."""
        # Without site packages, which it does not need, it starts in a fifth of the time.
        command = [sys.executable or "", "-I", "-S", str(Path(worker_program.__file__)), _SITE]
        pipe, null = subprocess.PIPE, subprocess.DEVNULL
        try:
            return cls(subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=null))
        except OSError:
            return None

    def ask(self, request: bytes) -> bool:
        """Send a request; False if the process is dead. The answer must be taken before the next request."""
        try:
            self._requests.write(worker_program.framed(request))
            self._requests.flush()
        except OSError:
            return False
        return True

    def fileno(self) -> int:
        return self._answers.fileno()

    def answer(self) -> bytes | None:
        return worker_program.received(self._answers)

    def close(self) -> None:
        self.process.kill()
        with contextlib.suppress(OSError):
            self._requests.close()
        self._answers.close()
        self.process.wait()


class WorkerProcesses(Workers[WorkerProcess]):
    """Workers that are processes of the driver's machine, started by the first request.

    Guarantee: a process that dies, or cannot be started, leaves its work to the scan.

    Args:
        after_files: Files that the scan examines itself before it may ask.
        count: Number of processes; None for WORKER_PROCESSES, or none on a single core.
    """

    def __init__(self, after_files: int = AFTER_FILES, count: int | None = None) -> None:
        if count is None:
            count = WORKER_PROCESSES if (os.cpu_count() or 1) > 1 else 0
        super().__init__(count, after_files)
        self.processes: tuple[WorkerProcess, ...] = ()
        self._idle: list[WorkerProcess] | None = None

    @property
    def has_idle(self) -> bool:
        return self.is_started and (self._idle is None or bool(self._idle))

    def ask(self, request: bytes) -> WorkerProcess | None:
        if not self.is_started:
            return None
        if self._idle is None:
            started = (WorkerProcess.started() for _ in range(self.max_pending))
            self.processes = tuple(process for process in started if process is not None)
            self._idle = list(self.processes)
        # One request at a time: two sides that both write and do not read would wait for each other forever.
        while self._idle:
            process = self._idle.pop(0)
            if process.ask(request):
                return process
        return None

    def ready(self, pending: Iterable[WorkerProcess], *, waits: bool) -> list[WorkerProcess]:
        # Not select(), which cannot take descriptors above 1023.
        poll = select.poll()
        by_descriptor = {process.fileno(): process for process in pending}
        for descriptor in by_descriptor:
            poll.register(descriptor, select.POLLIN)
        return [by_descriptor[descriptor] for descriptor, _ in poll.poll(None if waits else 0)]

    def answer(self, pending: WorkerProcess) -> bytes | None:
        if (answer := pending.answer()) is not None and self._idle is not None:
            self._idle.append(pending)
        return answer

    def close(self) -> None:
        for process in self.processes:
            process.close()


class TaskWorkers(Workers["Future[bytes]"]):
    """Workers that are tasks of the run, on all machines of a cluster; they begin with the first directory."""

    def __init__(self, in_tasks: InTasks, count: int = CONCURRENT_TASKS) -> None:
        super().__init__(count, after_files=0)
        self._in_tasks = in_tasks
        self._pending: set[Future[bytes]] = set()
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="listing-tasks")

    @property
    def has_idle(self) -> bool:
        return len(self._pending) < self.max_pending

    def ask(self, request: bytes) -> Future[bytes] | None:
        if not self.has_idle:
            return None
        self._pending.add(pending := self._threads.submit(self._answered, request))
        return pending

    def _answered(self, request: bytes) -> bytes:
        answer: bytes
        [answer] = self._in_tasks(worker_program.answer, [request])
        return answer

    def ready(self, pending: Iterable[Future[bytes]], *, waits: bool) -> list[Future[bytes]]:
        return list(wait(pending, None if waits else 0, FIRST_COMPLETED).done)

    def answer(self, pending: Future[bytes]) -> bytes | None:
        """The answer."""
        self._pending.discard(pending)
        return pending.result()

    def close(self) -> None:
        """Cancel requests that have not begun; running tasks end by themselves, and their answers are dropped."""
        self._threads.shutdown(wait=False, cancel_futures=True)
