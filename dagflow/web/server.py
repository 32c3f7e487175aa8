"""Serves pages from a process of its own: whatever is asked of it, this process keeps its descriptors and its time.

The process listens at once, and loads the application with the first request.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import secrets
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from typing import NoReturn

from dagflow.errors import DagflowError
from dagflow.frozen import frozen
from dagflow.web import is_loopback
from dagflow.web.checkpoints import Checkpoint, named

_QUEUED = 128
_NICE = 10
"""The priority below that of the run."""


class ServerError(DagflowError):
    """Raised when the server cannot listen where it was asked to."""


@frozen
class Address:
    host: str
    port: int
    token: str

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/" + (f"?token={self.token}" if self.token else "")


@contextlib.contextmanager
def serving(checkpoints: Iterable[Checkpoint], host: str = "127.0.0.1", port: int = 0) -> Iterator[Address]:
    """Serve checkpoints for as long as the block lasts, or this process.

    Guarantee: the server takes from this process one pipe, whatever is asked of it.

    Args:
        host: Where to listen; any address but a loopback one needs the token that is made for it.
        port: The port; 0 for any that is free.
    """
    with _listening(host, port) as listening:
        descriptor = listening.fileno()
        token = "" if is_loopback(host) else secrets.token_urlsafe(24)
        address = Address(host, listening.getsockname()[1], token)
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "dagflow.web.server", str(descriptor)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[descriptor],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
    with process:
        assert process.stdin is not None
        try:
            with contextlib.suppress(BrokenPipeError):
                # Storage options hold secrets, which other users would see on a command line.
                shown = [(each.url, each.storage, each.app) for each in checkpoints]
                process.stdin.write(pickle.dumps((shown, address)))
                process.stdin.flush()
            yield address
        finally:
            process.kill()


def _listening(host: str, port: int) -> socket.socket:
    with contextlib.ExitStack() as unless_it_listens:
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            listening = unless_it_listens.enter_context(socket.socket(family, kind, protocol))
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(_QUEUED)
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            hint = "name another one with --host and --port"
            raise ServerError(f"cannot listen on {host}:{port}: {reason}", hint=hint) from error
        unless_it_listens.pop_all()
        return listening


def _serve(descriptor: int) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # The driver may have time left to end in order.
        signal.signal(number, signal.SIG_IGN)
    os.nice(_NICE)
    shown, address = pickle.load(sys.stdin.buffer)
    checkpoints = named(Checkpoint(*each) for each in shown)

    def answer() -> None:
        with socket.socket(fileno=descriptor) as listening:
            select.select([listening], [], [])
            # Slow to import: a run whose pages are never opened does not need it.
            from dagflow.web.application import application, serve

            serve(application(checkpoints, address.token, [address.host]), listening)

    # The server would handle signals in the main thread.
    threading.Thread(target=answer, daemon=True).start()
    end_with_stdin()


def end_with_stdin() -> NoReturn:
    """End this process when stdin is closed: the process that holds its other end has ended."""
    # Not by sys.stdin, which a thread that reads may not keep at the end of Python.
    while os.read(0, 1):
        pass
    os._exit(0)


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
