"""The process that serves the pages of a run: whatever is asked of it, the driver keeps its descriptors and time."""

from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass

from dagflow.web.checkpoints import Checkpoint

_NICE = 10
"""The priority below that of the run."""


@dataclass(frozen=True)
class Address:
    host: str
    port: int
    token: str

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/" + (f"?token={self.token}" if self.token else "")


class PagesProcess:
    """Starts the process, and waits for its end."""

    def __init__(self, listening: socket.socket, checkpoints: Mapping[str, Checkpoint], address: Address) -> None:
        self._listening = listening
        self._task = [(each.id, each.url, each.storage, each.app) for each in checkpoints.values()], address
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._has_ended = False

    def run(self) -> None:
        descriptor = self._listening.fileno()
        command = [sys.executable, "-P", "-m", "dagflow.web.pages_process", str(descriptor)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        with self._lock:
            if self._has_ended:
                return
            self._process = process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[descriptor],
                env=environment,
            )
        assert process.stdin is not None
        with process:
            try:
                # Storage options hold secrets, which other users would see on a command line.
                process.stdin.write(pickle.dumps(self._task))
                process.stdin.flush()
            except BrokenPipeError:
                return
            process.wait()

    def end(self) -> None:
        with self._lock:
            self._has_ended = True
            if self._process is not None:
                self._process.kill()


def _serve(descriptor: int) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # The driver may have time left to end in order.
        signal.signal(number, signal.SIG_IGN)
    os.nice(_NICE)
    shown, address = pickle.load(sys.stdin.buffer)
    end_with_stdin()
    # Slow to import, which the driver does not wait for.
    from dagflow.web.application import application, serve, server_of

    checkpoints = {name: Checkpoint(name, url, storage, app) for name, url, storage, app in shown}
    with socket.socket(fileno=descriptor) as listening:
        serve(server_of(application(checkpoints, address.token, [address.host])), listening)


def end_with_stdin() -> None:
    """End this process when stdin is closed: the process that holds its other end has ended."""

    def wait() -> None:
        # Not by sys.stdin, which a thread that reads may not keep at the end of Python.
        while os.read(0, 1):
            pass
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
