"""Processes of this machine that run the jobs of a run, each one at a time."""

from __future__ import annotations

import contextlib
import math
import os
import pickle
import queue
import re
import socket
import sys
import threading
import time
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from dagflow.errors import DagflowError, TransientStorageError, text_of
from dagflow.execution.messages import Program
from dagflow.execution.task_watch import StallReport, TaskMessage, TaskReport
from dagflow.runtime.base import MAX_ATTEMPTS
from dagflow.runtime.progress_board import LastReport, ProgressBoard, death_of
from dagflow.runtime.scratch import ProcessLog
from dagflow.runtime.start_checks import unwritable_log
from dagflow.runtime.task_server import END_S, TaskServer
from dagflow.runtime.worker_server import Job, Reply, ServerSetup

LOOK_EVERY_S = 1.0
"""Seconds between checks of a silent process."""

_FATAL = re.compile(r"(?:Fatal Python error: )+([^\n]+)")
"""The output of Python's faulthandler for a process that dies by its own signal; if two die at the same moment, the
beginnings of both may come first."""

Priority = tuple[float, ...]


class _ProcessDiedError(Exception):
    def __init__(self, last: LastReport | None) -> None:
        super().__init__()
        self.last = last


@dataclass(slots=True, order=True)
class _Request:
    """A waiting job; lower priorities come first, and within a priority the earliest job."""

    priority: Priority
    number: int
    job: Job | None = field(compare=False, default=None)
    future: Future[Any] = field(compare=False, default_factory=Future)


class WorkerPool:
    """Processes that run jobs, forked by a server process that has imported what they need.

    Guarantee: no process of the pool outlives this one by more than a moment, even if this one is killed.
    """

    def __init__(
        self, program: Program, workers: int, log: Path, board: ProgressBoard, server: TaskServer | None = None
    ) -> None:
        self._log = log
        self._board = board
        self._waiting: queue.PriorityQueue[_Request] = queue.PriorityQueue()
        self._lock = threading.Lock()
        self._submitted = 0
        self._is_closed = False
        self._server: TaskServer | None = None
        # Not all that this process has imported: much of it lists files, or commits to catalogs, which no task does.
        modules = program.modules_of("operators")
        self._setup = pickle.dumps(ServerSetup(list(map(str, sys.path)), modules, pickle.dumps(program)))
        self._threads = [
            threading.Thread(target=self._serve, name=f"worker-{number}", daemon=True) for number in range(workers)
        ]
        # Its imports take a while, in which the driver lists files.
        self._server = _begun(server, self._setup, log)
        for thread in self._threads:
            thread.start()

    def submit(self, job: Job, priority: Priority = ()) -> Future[Any]:
        """Queue a job; the future has its result, or raises a DagflowError, or CancelledError."""
        with self._lock:
            self._submitted += 1
            request = _Request(priority, self._submitted, job)
        self._waiting.put(request)
        if self._is_closed:
            self._drop_waiting()
        return request.future

    def cancel(self) -> None:
        """End all processes, and drop the jobs: their futures raise CancelledError."""
        self._is_closed = True
        self._drop_waiting()
        for _ in self._threads:
            self._waiting.put(_Request((-math.inf,), 0))
        with self._lock:
            server, self._server = self._server, None
        if server is not None:
            server.close()

    def close(self) -> None:
        self.cancel()
        for thread in self._threads:
            thread.join(END_S)

    def _drop_waiting(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                request = self._waiting.get_nowait()
                if request.job is not None:
                    request.future.set_exception(CancelledError())

    def _serve(self) -> None:
        process: Connection | None = None
        while (request := self._waiting.get()).job is not None:
            for attempt in range(MAX_ATTEMPTS):
                is_last = attempt + 1 == MAX_ATTEMPTS
                try:
                    process = process or self._forked()
                    request.future.set_result(self._done(process, request.job, is_retry=attempt > 0))
                    break
                except TransientStorageError as error:
                    failure: BaseException | None = error if is_last else None
                except DagflowError as error:
                    failure = error
                except _ProcessDiedError as died:
                    process = None
                    failure = self._death(died) if is_last else None
                except Exception as error:
                    failure = DagflowError(f"a task cannot be sent: {type(error).__name__}: {text_of(error)}")
                if self._is_closed:
                    failure = CancelledError()
                if failure is not None:
                    request.future.set_exception(failure)
                    break
        if process is not None:
            process.close()

    def _death(self, died: _ProcessDiedError) -> DagflowError:
        if died.last is None:
            return DagflowError("the process of a task died before it did anything", hint=f"{self._log} may say why")
        log = self._log.read_text(errors="replace") if self._log.exists() else ""
        fatal = _FATAL.findall(log)[-1:]
        return death_of(died.last, MAX_ATTEMPTS, f"{self._log} has its stack", "".join(fatal))

    def _forked(self) -> Connection:
        ours, theirs = socket.socketpair()
        with theirs, self._lock:
            if self._is_closed:
                raise _ProcessDiedError(None)
            if self._server is None:
                self._server = _begun(None, self._setup, self._log)
            try:
                self._server.fork(theirs)
            except OSError as error:
                self._server = None
                raise _ProcessDiedError(None) from error
        return Connection(ours.detach())

    def _done(self, process: Connection, job: Job, *, is_retry: bool) -> Any:
        last: LastReport | None = None
        reported_s = time.monotonic()
        try:
            process.send_bytes(pickle.dumps((job, is_retry), protocol=5))
            while True:
                while not process.poll(LOOK_EVERY_S):
                    self._board.look_for_silence()
                message: TaskMessage | Reply = pickle.loads(process.recv_bytes())
                if isinstance(message, Reply):
                    break
                last, reported_s = _last_of(message, last), time.monotonic()
                self._board.record(message)
        except (EOFError, OSError) as error:
            process.close()
            if last is not None and self._board.ends_after(time.monotonic() - reported_s):
                last = replace(last, is_timed_out=True)
            raise _ProcessDiedError(last) from error
        if message.error is not None:
            raise message.error
        return message.result


def _last_of(message: TaskMessage, before: LastReport | None) -> LastReport | None:
    if isinstance(message, StallReport):
        return LastReport(message.work, message.is_ended)
    if isinstance(message, TaskReport):
        return None if message.is_done else LastReport(message.work)
    return before


def _begun(server: TaskServer | None, setup: bytes, log: Path) -> TaskServer:
    try:
        written = ProcessLog()
        written.begin(log)
    except OSError as error:
        raise unwritable_log(error, log, "the log of the tasks") from error
    try:
        server = server or TaskServer()
        server.begin(setup, written.descriptor)
    finally:
        os.close(written.descriptor)
    return server
