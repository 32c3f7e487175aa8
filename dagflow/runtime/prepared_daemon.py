"""Spark's Python daemon, prepared while Spark starts: it imports what tasks need before Spark asks for a daemon.

Spark starts its daemon with the first task, as a child of its Java process. That child connects to a prepared process
by a socket, hands it everything that Spark gave it, and waits for its end. Where the two do not match, the child works
itself.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import runpy
import select
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from dagflow.runtime.shared_imports import shared_imports

ADDRESS = "DAGFLOW_PREPARED_DAEMON"
"""The environment variable that names the socket."""

_MESSAGE_BYTES = 1 << 20
_END_S = 5.0

# Variables that Python and numeric libraries read while they start; names with PYTHON_ are Spark's own.
_READ_AT_START = ("PYTHON", "OMP_", "OPENBLAS_", "MKL_", "ARROW_", "MALLOC_", "LD_", "LC_", "LANG")
_NOT_READ_AT_START = ("PYTHON_", "PYTHONPATH")

_WORKERS_OWN = {"PYTHONHASHSEED": "0", "PYTHONUNBUFFERED": "YES", "OMP_NUM_THREADS": "1"}
"""Variables that Spark gives to its daemon, and the driver may not have."""


class PreparedDaemon:
    """A process that becomes Spark's Python daemon.

    Args:
        path: Where its socket will be, in a directory that no other user may enter.
        environ: The environment of Spark's Java process.

    Raises:
        OSError: The process cannot be started.
    """

    def __init__(self, path: Path, environ: Mapping[str, str]) -> None:
        # The other end closes with this process, however it ends.
        self._control, theirs = socket.socketpair()
        with theirs, socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            listener.listen(1)
            code = f"import sys; sys.path[:] = {[str(each) for each in sys.path]}; from {__name__} import main; main()"
            descriptors = [theirs.fileno(), listener.fileno()]
            self._process = subprocess.Popen(
                [sys.executable, "-c", code, *map(str, descriptors)],
                env={**environ, **_WORKERS_OWN},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=descriptors,
                # A daemon has a process group of its own, to which it sends signals.
                process_group=0,
            )

    def close(self) -> None:
        """End the process; if it was Spark's daemon, it ends the processes that it has forked."""
        self._control.close()
        self._process.terminate()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def main() -> None:
    """Run the prepared process: import, wait for what Spark gives to its daemon, and serve as that daemon."""
    control, listener = (socket.socket(fileno=int(each)) for each in sys.argv[1:3])
    at_start = _read_at_start(os.environ)
    import_for_tasks("pyspark.worker")
    # Not select(), which takes no descriptor from 1024 on: these have the numbers that they have in the driver.
    waiting = select.poll()
    for each in (control, listener):
        waiting.register(each, select.POLLIN)
    if listener.fileno() not in dict(waiting.poll()):
        return
    connection, _ = listener.accept()
    connection.sendall(json.dumps([at_start, _origins(sys.path)]).encode() + b"\n")
    message, descriptors, _, _ = socket.recv_fds(connection, _MESSAGE_BYTES, 3)
    if len(descriptors) != 3:
        return  # the two do not match
    while not message.endswith(b"\n"):
        message += connection.recv(_MESSAGE_BYTES)
    given: dict[str, Any] = json.loads(message)
    control.close()
    listener.close()
    for target, descriptor in enumerate(descriptors):
        os.dup2(descriptor, target)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(given["environ"])
    sys.path[:], sys.argv[:] = given["path"], given["argv"]
    runpy.run_module("pyspark.daemon", run_name="__main__")


def import_for_tasks(worker: str) -> None:
    """Import what every task needs; all processes that are forked later share it."""
    with shared_imports():
        for module in (worker, "dagflow.execution.task"):
            importlib.import_module(module)


def handed_over(path: Sequence[str]) -> bool:
    """Let the prepared process do the work of this one, which Spark has started, and wait for its end.

    Args:
        path: The module search path of this process.

    Returns:
        Whether there was a matching process: one that started with the same variables and has the same modules.
    """
    address = os.environ.get(ADDRESS, "")
    if not os.path.exists(address):
        return False
    with socket.socket(socket.AF_UNIX) as connection, contextlib.suppress(OSError, ValueError):
        connection.connect(address)
        with connection.makefile("rb") as incoming:
            if json.loads(incoming.readline()) != [_read_at_start(os.environ), _origins(path)]:
                return False
        given = {"environ": dict(os.environ), "path": list(path), "argv": sys.argv}
        data = json.dumps(given).encode() + b"\n"
        sent = socket.send_fds(connection, [data], [0, 1, 2])
        connection.sendall(data[sent:])
        for descriptor in range(3):  # Java reads until all have closed them
            os.close(descriptor)
        connection.recv(1)
        return True
    return False


def _read_at_start(environ: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in sorted(environ.items())
        if name.startswith(_READ_AT_START) and not name.startswith(_NOT_READ_AT_START)
    }


def _origins(path: Sequence[str]) -> list[str | None]:
    """The files that the packages of a daemon are imported from."""
    specs = (PathFinder.find_spec(name, list(path)) for name in ("pyspark", "dagflow", "pyarrow"))
    return [None if spec is None else spec.origin for spec in specs]
