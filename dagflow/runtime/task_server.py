"""Starts the process that forks task processes: it imports what tasks need while the driver still reads its app.

Imports nothing that takes long: the command line starts the process before any other import.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys

SIZE_BYTES = 8
"""Bytes of the size that precedes the data for the server."""

END_S = 5.0
"""Seconds to wait for the end of a killed server."""

SERVER = "dagflow.runtime.worker_server"
"""The module of the server; an argument of its process, by which dagflow knows that it runs tasks."""


class TaskServer:
    """A process that imports what tasks need, then gets an app, and forks a process for each connection."""

    def __init__(self) -> None:
        # Not `-m`, which would look for dagflow, and all that it imports, in the working directory first.
        code = f"import sys; sys.path[:] = {[str(entry) for entry in sys.path]}; from {SERVER} import main; main()"
        self._control, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-X", "faulthandler", "-c", code, SERVER, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                # A process group of its own: Ctrl-C does not reach it, and it can be ended with all that it has forked.
                process_group=0,
            )
        self._is_over = False

    def begin(self, setup: bytes, log: int) -> None:
        """Send the pickled setup to the server; from now on it and its processes write to the descriptor `log`."""
        with contextlib.suppress(OSError):  # it ended at once; fork() then fails as well
            socket.send_fds(self._control, [len(setup).to_bytes(SIZE_BYTES)], [log])
            self._control.sendall(setup)

    def fork(self, connection: socket.socket) -> None:
        socket.send_fds(self._control, [b"f"], [connection.fileno()])

    def close(self) -> None:
        """End the server, with all processes of its group; a second call does nothing."""
        if self._is_over:
            return
        self._is_over = True
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._control.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(END_S)
