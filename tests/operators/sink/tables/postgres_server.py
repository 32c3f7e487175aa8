"""A server of PostgreSQL for tests, as a user who is not root."""

from __future__ import annotations

import contextlib
import glob
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

_UNPRIVILEGED = 65534
"""The number of a user that owns no files."""


def programs() -> str | None:
    """The directory of the server's programs, None where there is none."""
    found = glob.glob("/usr/lib/postgresql/*/bin/initdb") or list(filter(None, [shutil.which("initdb")]))
    return os.path.dirname(found[-1]) if found else None


class Server:
    """A server with its data in a directory; it listens on a socket there."""

    def __init__(self, folder: Path, user: str | None) -> None:
        self._folder = folder
        self._user = user
        self.address = f"postgresql://postgres@/postgres?host={folder}"

    def run(self, program: str, *arguments: str) -> None:
        """Run one of the server's programs."""
        path = f"{programs()}/{program}"
        subprocess.run([path, *arguments], check=True, user=self._user, stdout=subprocess.DEVNULL, cwd=self._folder)

    def start(self) -> None:
        """Start it, and wait until it answers."""
        options = f"-k {self._folder} -c listen_addresses= -c fsync=off"
        self.run("pg_ctl", "-D", f"{self._folder}/data", "-o", options, "-l", f"{self._folder}/log", "-w", "start")

    def stop(self, mode: str) -> None:
        """Stop it: `fast`, or `immediate` as after a crash."""
        self.run("pg_ctl", "-D", f"{self._folder}/data", "-m", mode, "-w", "stop")


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
