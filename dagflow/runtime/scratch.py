"""A directory for the temporary files of one run; removed when the run ends, or by a later run if it was killed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from pathlib import Path

SHORT_DIRECTORIES = ("/tmp", "/dev/shm", "/var/tmp")
"""Directories for sockets, whose paths must be short."""

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
