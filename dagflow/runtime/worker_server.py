"""Starts the processes that run tasks on this machine: imports what every task needs once, and forks for each of them.

Started by TaskServer, with the descriptor of one end of a socket as its last argument. The driver has the other end:
when it closes, the server ends with all of its processes, even after a SIGKILL of the driver.
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
from multiprocessing.connection import Connection
from typing import Any, cast

from dagflow.errors import DagflowError, text_of
from dagflow.execution.messages import Program
from dagflow.execution.task_process import warm, withhold_sockets
from dagflow.execution.task_watch import TaskHost, TaskMessage
from dagflow.frozen import frozen
from dagflow.runtime.daemon import shared_imports
from dagflow.runtime.task_server import SIZE_BYTES

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that a terminal or a service manager sends to all processes of a run; the driver handles them."""


Job = Callable[[Program, Callable[[TaskMessage], None], TaskHost], Any]
"""A piece of work for one process; it and its result are picklable."""


@frozen
class ServerSetup:
    """The data that the server gets when it starts.

    Attributes:
        path: The driver's module search path, with the modules of the app's author.
        modules: Modules to import before the first fork.
    """

    path: list[str]
    modules: Sequence[str]
    program: bytes


@frozen
class Reply:
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
        # Before the driver has read its app, which it then sends at once.
        for module in ("dagflow.execution.task", "pyarrow.compute"):
            _import(module)
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
    # A task that needs a missing module meets the error again, and reports it.
    with contextlib.suppress(ImportError):
        importlib.import_module(module)


def _received(control: socket.socket) -> bytes:
    """The driver's setup, once it arrives; later output goes to the driver's log."""
    size, descriptors, _, _ = socket.recv_fds(control, SIZE_BYTES, 1, socket.MSG_WAITALL)
    if not descriptors:  # the driver has ended, or had no work
        os._exit(0)
    for stream in (1, 2):
        os.dup2(descriptors[0], stream)
    os.close(descriptors[0])
    return control.recv(int.from_bytes(size), socket.MSG_WAITALL)


def _work(connection: Connection, program: Program) -> None:
    """Run the jobs that arrive, one after the other, until the driver closes the connection; never returns."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    withhold_sockets()
    lock, pid = threading.Lock(), os.getpid()

    def send_bytes(message: bytes) -> None:
        """Send a pickled message; also called by the thread that watches a task."""
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
            arrived = [connection.recv_bytes()]
        except (EOFError, OSError):
            os._exit(0)
        with warm():
            send_bytes(_reply(arrived, program, send))


def _reply(arrived: list[bytes], program: Program, send: Callable[[TaskMessage], None]) -> bytes:
    """The outcome of a job, pickled; the result of an author's function may refuse pickling."""
    try:
        # Parts of results may be large, and are not held twice.
        job, is_retry = cast("tuple[Job, bool]", pickle.loads(arrived.pop()))
        result = job(program, send, TaskHost(owns_process=True, is_retry=is_retry))
        return pickle.dumps(Reply(result), protocol=5)
    except DagflowError as error:
        failure = error
    except BaseException as error:  # raised by an author's code, not a signal; it would end the process silently
        failure = DagflowError(f"a task failed: {type(error).__name__}: {text_of(error)}")
    return pickle.dumps(Reply(error=failure), protocol=5)


if __name__ == "__main__":
    main()
