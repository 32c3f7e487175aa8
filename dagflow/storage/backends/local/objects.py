"""Objects as files of a local disk."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Collection, Iterable, Iterator

from typing_extensions import override

from dagflow.storage.backends.local.disk import (
    make_directories,
    move_exclusive,
    sync_directory,
    translated,
    write_all,
)
from dagflow.storage.objects import PROBE, ObjectStore

_TEMPORARY = "tmp"
_STALE_S = 3600.0  # far above the time that one create() takes, even on a loaded machine


class LocalObjectStore(ObjectStore):
    """Objects as files.

    Guarantee: an object is written and synced under another name, then linked to its own, so that a crash or a power
    loss leaves it whole or absent, and exactly one of several writers wins. Only the user who created it may read it. A
    store that has created an object does not create its root again: a root that was moved away can be moved back.
    """

    @override
    def create_if_absent(self, name: str, data: bytes) -> None:
        path = self.path_of(name)
        temporary = self._temporary()
        with translated(path, "create"):
            try:
                self._write(temporary, data)
                self._make_directory(path, durable=True)
                move_exclusive(temporary, path)
                sync_directory(os.path.dirname(path))
                self.required_directory = self.required_directory or self.url
            except OSError:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
                raise

    def _make_directory(self, path: str, *, durable: bool) -> None:
        directory = os.path.dirname(path)
        make_directories(directory, durable=durable, private=self.url, required=self.required_directory)

    def _temporary(self) -> str:
        return self.path_of(f"{_TEMPORARY}/{os.getpid()}-{os.urandom(8).hex()}")

    def _write(self, path: str, data: bytes) -> None:
        self._make_directory(path, durable=False)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            write_all(descriptor, memoryview(data))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    @override
    def replace(self, name: str, data: bytes) -> None:
        path = self.path_of(name)
        temporary = self._temporary()
        with translated(path, "replace"):
            try:
                # Creates no directory: a checkpoint that was moved away must not come back as an empty one.
                with open(temporary, "xb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
                    file.write(data)
                os.rename(temporary, path)
            except OSError:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
                raise

    @override
    def read(self, name: str) -> bytes:
        path = self.path_of(name)
        with translated(path, "read"), open(path, "rb") as file:
            return file.read()

    @override
    def list(self, directory: str, after: str = "") -> Iterator[str]:
        path = self.path_of(directory)
        with translated(path, "list"):
            try:
                with os.scandir(path) as entries:
                    # Names that begin with a dot are the system's, such as .DS_Store and .nfs…: no object has one.
                    names = [directory + e.name for e in entries if e.name[0] != "." and not e.is_dir()]
            except FileNotFoundError:
                return
        yield from sorted(name for name in names if name > after)

    @override
    def path_of(self, name: str) -> str:
        return os.path.join(self.url, name)

    @override
    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            path = self.path_of(name)
            with translated(path, "delete"), contextlib.suppress(FileNotFoundError):
                os.unlink(path)

    @override
    def close_to_others(self, directories: Collection[str]) -> str:
        """Also closes the root, if it contains nothing that others may have to reach."""
        own = {_TEMPORARY, PROBE, *directories}
        with translated(self.url, "look at"):
            names = set(os.listdir(self.url))
            closed = [self.path_of(name) for name in sorted(names & own)]
            if names <= own:
                closed.append(self.url)
            for path in closed:
                with contextlib.suppress(PermissionError):
                    os.chmod(path, 0o700)
            return next(filter(None, map(_exposure, [self.url, *closed])), "")

    @override
    def probe(self) -> None:
        """Also removes the leftovers of dead writers."""
        super().probe()
        with contextlib.suppress(OSError), os.scandir(self.path_of(_TEMPORARY)) as entries:
            for entry in entries:
                if time.time() - entry.stat().st_mtime > _STALE_S:
                    os.unlink(entry.path)


def _exposure(path: str) -> str:
    """Why another user may change the content of a directory; "" if no reason is found."""
    found = os.stat(path)
    if found.st_uid not in (os.geteuid(), 0):
        return f"{path} belongs to another user, with the id {found.st_uid}"
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not found.st_mode & stat.S_ISVTX:
        return f"the mode of {path} is {stat.S_IMODE(found.st_mode):o}"
    return ""
