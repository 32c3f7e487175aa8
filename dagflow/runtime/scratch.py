"""The files of one run's processes.

Temporary ones are in a directory that is removed when the run ends, or by a later run if it was killed. Logs have a
few megabytes: their beginning and their end are kept.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
import threading
from pathlib import Path

SHORT_DIRECTORIES = ("/tmp", "/dev/shm", "/var/tmp")
"""Directories for sockets, whose paths must be short."""

HEAD_BYTES = 1 << 20
"""Bytes kept from the beginning: how a process started, and its first error, often the cause of later ones."""

TAIL_BYTES = 4 << 20
"""Bytes kept from the end, at least; the file grows to twice as much before it is cut."""

_READ_BYTES = 1 << 16
_MARK = b"\n... %d bytes are left out here ...\n"

_LOCK = "lock"

_ATTEMPTS = 3


class Scratch:
    """A directory that only this user may enter, and that is removed by close() or by a later sweep().

    Guarantee: the directory is not swept before its process has ended. A lock shows whether that process is alive, not
    its id: the kernel drops a lock with the process, and process ids differ between containers.
    """

    def __init__(self, parent: str | Path) -> None:
        for _ in range(_ATTEMPTS):
            self.path = Path(tempfile.mkdtemp(prefix=_prefix(), dir=parent))
            self._lock = _locked(self.path)
            if self._lock is not None:
                return
            # A process that sweeps at this moment may take it for one of a dead process.
            shutil.rmtree(self.path, ignore_errors=True)
        # A file system without locks: no process can lock the directory, so none sweeps it.
        self.path = Path(tempfile.mkdtemp(prefix=_prefix(), dir=parent))

    def close(self) -> None:
        """Remove the directory with all its content; a second call does nothing."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def sweep(*directories: str | Path) -> None:
    """Remove what dead processes of this user have left; what cannot be removed stays."""
    for directory in set(map(Path, directories or (*_temporary_directories(), *SHORT_DIRECTORIES))):
        for path in _ours_in(directory):
            lock = _locked(path)
            if lock is not None:
                shutil.rmtree(path, ignore_errors=True)
                os.close(lock)


def _temporary_directories() -> list[str]:
    # If no directory can be written to, a run without work needs none.
    with contextlib.suppress(OSError):
        return [tempfile.gettempdir()]
    return []


def _ours_in(place: Path) -> list[Path]:
    try:
        with os.scandir(place) as entries:
            return [Path(entry) for entry in entries if entry.name.startswith(_prefix()) and _is_ours(entry.path)]
    except OSError:
        return []


def _prefix() -> str:
    return f"dagflow-{os.getuid()}-"


def _is_ours(path: str) -> bool:
    with contextlib.suppress(OSError):
        status = os.lstat(path)
        return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
    return False


def _locked(directory: Path) -> int | None:
    """The descriptor of a directory's lock; None where another process holds it, or the directory is gone."""
    path = directory / _LOCK
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The process that held the lock may have removed the directory.
        if os.path.samestat(os.fstat(descriptor), os.stat(path)):
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return None


class ProcessLog:
    """A log file of bounded size that another process writes through a pipe.

    The log of the run before is kept beside it, with `.1` behind its name.

    Attributes:
        descriptor: The other process writes to it; the caller closes it in this process once the other one has it.
            Until begin() the pipe holds what is written.
    """

    def __init__(self, head_bytes: int = HEAD_BYTES, tail_bytes: int = TAIL_BYTES) -> None:
        self._head_bytes = head_bytes
        self._tail_bytes = tail_bytes
        self._size_bytes = 0
        self._left_out_bytes = 0
        self._kept_from = head_bytes
        self._reading, self.descriptor = os.pipe2(os.O_CLOEXEC)
        self._copying: threading.Thread | None = None

    def begin(self, path: Path) -> None:
        """Start to write the file; only its owner may read it, because operators may print records."""
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if path.exists():
            path.replace(path.with_name(f"{path.name}.1"))
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        self._copying = threading.Thread(target=self._copy, args=(self._reading,), name="process-log", daemon=True)
        self._copying.start()

    def _copy(self, reading: int) -> None:
        with open(reading, "rb", buffering=0) as pipe:
            while data := pipe.read(_READ_BYTES):
                # If the disk is full, the process continues without a log.
                try:
                    self._write(data)
                except OSError:
                    continue
        os.close(self._file)

    def _write(self, data: bytes) -> None:
        self._size_bytes += os.pwrite(self._file, data, self._size_bytes)
        if self._size_bytes > self._kept_from + 2 * self._tail_bytes:
            self._cut()

    def _cut(self) -> None:
        tail = os.pread(self._file, self._tail_bytes, self._size_bytes - self._tail_bytes)
        self._left_out_bytes += self._size_bytes - self._tail_bytes - self._kept_from
        mark = _MARK % self._left_out_bytes
        self._kept_from = self._head_bytes + len(mark)
        kept = mark + tail
        os.pwrite(self._file, kept, self._head_bytes)
        self._size_bytes = self._head_bytes + len(kept)
        os.ftruncate(self._file, self._size_bytes)

    def wait(self, timeout_s: float) -> None:
        """Wait until all output is in the file; called when the other process has ended."""
        if self._copying is not None:
            self._copying.join(timeout_s)
