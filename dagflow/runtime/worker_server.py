"""Starts the processes that run tasks on this machine: imports what every task needs once, and forks for each of them.

Started by TaskServer, with the descriptor of one end of a socket as its last argument. The driver is
at the other one: where that closes, the server ends, and all of its processes with it, also after a SIGKILL.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pickle
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Protocol, cast

from dagflow.errors import DagflowError, text_of
from dagflow.execution.forked import withhold_sockets
from dagflow.execution.program import Program
from dagflow.execution.task_progress import TaskMessage
from dagflow.execution.task_watch import TaskHost
from dagflow.execution.warm_worker import warm
from dagflow.runtime.shared_imports import shared_imports
from dagflow.runtime.task_server import SIZE_BYTES

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Sent to all processes of a run by a terminal or a service manager; the driver decides what they mean."""


class Job(Protocol):
    """A piece of work for one process; picklable."""

    def __call__(self, program: Program, send: Callable[[TaskMessage], None], host: TaskHost) -> Any:
        """Do the work.

        Args:
            program: The app.
            send: Takes reports while the work is under way.
            host: Where it runs.

        Returns:
            The result, which is pickled.
        """


@dataclass(frozen=True, slots=True)
class ServerSetup:
    """What the server is given when it starts.

    Attributes:
        path: The driver's module search path, with the modules of the app's author.
        modules: Modules to import before the first fork.
        program: The app.
    """

    path: list[str]
    modules: Sequence[str]
    program: bytes


@dataclass(frozen=True, slots=True)
class Reply:
    """The last message about a job.

    Attributes:
        result: What it returned; None where it failed.
        error: What it raised.
    """

    result: Any = None
    error: DagflowError | None = None


def main() -> None:
    """Fork a process for each socket that arrives, until the driver is gone."""
    for number in _SIGNALS:
        # A handler and not SIG_IGN, which programs that operators start would inherit.
        signal.signal(number, lambda *_: None)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    control = socket.socket(fileno=int(sys.argv[-1]))
    with shared_imports():
        # Before the driver knows its app, which it gives as soon as it does.
        _import("dagflow.execution.task")
        setup: ServerSetup = pickle.loads(_received(control))
        sys.path[:] = setup.path
        for module in setup.modules:
            _import(module)
    while True:
        _, descriptors, _, _ = socket.recv_fds(control, 1, 1)
        if not descriptors:
            os.killpg(0, signal.SIGKILL)
        if os.fork() == 0:
            control.close()
            _work(Connection(descriptors[0]), pickle.loads(setup.program))
        os.close(descriptors[0])


def _import(module: str) -> None:
    # What is missing is missed again, and told, by the task that needs it.
    with contextlib.suppress(ImportError):
        importlib.import_module(module)


def _received(control: socket.socket) -> bytes:
    """What the driver gives, once it does; what is printed from then on goes to its log."""
    size, descriptors, _, _ = socket.recv_fds(control, SIZE_BYTES, 1, socket.MSG_WAITALL)
    if not descriptors:  # it has ended, or had nothing to do
        os._exit(0)
    for stream in (1, 2):
        os.dup2(descriptors[0], stream)
    os.close(descriptors[0])
    return control.recv(int.from_bytes(size), socket.MSG_WAITALL)


def _work(connection: Connection, program: Program) -> None:
    """Do the jobs that arrive, one after the other, until the driver closes the connection; never returns."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    withhold_sockets()
    lock, pid = threading.Lock(), os.getpid()

    def send_bytes(message: bytes) -> None:
        """Send a pickled message; the thread that watches a task does so as well."""
        if os.getpid() != pid:
            return
        try:
            with lock:
                connection.send_bytes(message)
        except OSError:
            os._exit(0)  # the driver is gone

    def send(message: TaskMessage) -> None:
        send_bytes(pickle.dumps(message, protocol=5))

    while True:
        try:
            arrived = connection.recv_bytes()
        except (EOFError, OSError):
            os._exit(0)
        with warm():
            send_bytes(_reply(arrived, program, send))


def _reply(arrived: bytes, program: Program, send: Callable[[TaskMessage], None]) -> bytes:
    """What comes of a job, pickled; what an author's function returns may refuse that."""
    try:
        job, is_retry = cast("tuple[Job, bool]", pickle.loads(arrived))
        result = job(program, send, TaskHost(owns_process=True, is_retry=is_retry))
        return pickle.dumps(Reply(result), protocol=5)
    except DagflowError as error:
        failure = error
    except BaseException as error:  # no signal raises here: it is an author's, and would end the process without a word
        failure = DagflowError(f"a task failed: {type(error).__name__}: {text_of(error)}")
    return pickle.dumps(Reply(error=failure), protocol=5)


if __name__ == "__main__":
    main()
