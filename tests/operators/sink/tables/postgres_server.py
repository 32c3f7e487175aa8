"""A server of PostgreSQL for tests, as a user who is not root."""

from __future__ import annotations

import contextlib
import glob
import os
import pwd
import shutil
import socket
import socketserver
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

_SOCKET = ".s.PGSQL.5432"
_UNPRIVILEGED = 65534
"""The number of a user that owns no files."""


def programs() -> str | None:
    """The directory of the server's programs, None where there is none."""
    found = glob.glob("/usr/lib/postgresql/*/bin/initdb") or list(filter(None, [shutil.which("initdb")]))
    return os.path.dirname(found[-1]) if found else None


class Server:
    """A server with its data in a directory; it listens on a socket there."""

    def __init__(self, folder: Path, user: str | None) -> None:
        self.folder = folder
        self._user = user
        self.address = f"postgresql://postgres@/postgres?host={folder}"

    def run(self, program: str, *arguments: str) -> None:
        """Run one of the server's programs."""
        path = f"{programs()}/{program}"
        subprocess.run([path, *arguments], check=True, user=self._user, stdout=subprocess.DEVNULL, cwd=self.folder)

    def start(self) -> None:
        """Start it, and wait until it answers."""
        options = f"-k {self.folder} -c listen_addresses= -c fsync=off"
        self.run("pg_ctl", "-D", f"{self.folder}/data", "-o", options, "-l", f"{self.folder}/log", "-w", "start")

    def stop(self, mode: str) -> None:
        """Stop it: `fast`, or `immediate` as after a crash."""
        self.run("pg_ctl", "-D", f"{self.folder}/data", "-m", mode, "-w", "stop")


@contextlib.contextmanager
def running_server() -> Iterator[Server]:
    """A new server, which is removed afterwards; the test is skipped where PostgreSQL is not installed."""
    if programs() is None:
        pytest.skip("PostgreSQL is not installed: no initdb")
    with tempfile.TemporaryDirectory(prefix="postgres") as name:
        user = pwd.getpwuid(_UNPRIVILEGED).pw_name if os.geteuid() == 0 else None  # a server refuses to run as root
        if user:
            shutil.chown(name, user)
        server = Server(Path(name), user)
        server.run("initdb", "-D", f"{name}/data", "-A", "trust", "-U", "postgres", "-E", "UTF8", "--no-sync")
        server.start()
        try:
            yield server
        finally:
            server.stop("immediate")


class _Connection(socketserver.BaseRequestHandler):
    server: DyingServer

    def handle(self) -> None:
        with socket.socket(socket.AF_UNIX) as server:
            server.connect(f"{self.server.folder}/{_SOCKET}")
            answers = threading.Thread(target=self._pass_on, args=(server, self.request, "after"))
            answers.start()
            self._pass_on(self.request, server, "before")
            answers.join()

    def _pass_on(self, source: socket.socket, sink: socket.socket, moment: str) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if b"COMMIT\0" in data and self.server.dies(moment):
                    break
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


class DyingServer(socketserver.ThreadingUnixStreamServer):
    """Stands before a server, which it kills once, and starts again, at the k-th commit.

    Args:
        server: The server, which listens on a socket in its directory.
        at: The number of the message, counted from 1.
        moment: "before" a message that asks for a commit arrives, of which each commit has two, or "after" it was made,
            and before its answer arrives.
    """

    daemon_threads = True

    def __init__(self, server: Server, at: int, moment: Literal["before", "after"]) -> None:
        self._server, self.folder = server, server.folder
        self._left, self._moment = at, moment
        self._own = tempfile.TemporaryDirectory(prefix="postgres")
        super().__init__(f"{self._own.name}/{_SOCKET}", _Connection)
        self.address = server.address.replace(str(server.folder), self._own.name)
        threading.Thread(target=self.serve_forever).start()

    @property
    def has_died(self) -> bool:
        """Whether there were as many commits."""
        return self._left <= 0

    def dies(self, moment: str) -> bool:
        """Called at each commit; whether this was the one."""
        self._left -= moment == self._moment
        if self._left or moment != self._moment:
            return False
        self._server.stop("immediate")
        self._server.start()
        return True

    def server_close(self) -> None:
        """End, and remove the socket."""
        self.shutdown()
        super().server_close()
        self._own.cleanup()
