"""The log of another process, limited to a few megabytes: its beginning and its end are kept."""

from __future__ import annotations

import os
import threading
from pathlib import Path

HEAD_BYTES = 1 << 20
"""Bytes kept from the beginning: how a process started, and its first error, often the cause of later ones."""

TAIL_BYTES = 4 << 20
"""Bytes kept from the end, at least; the file grows to twice as much before it is cut."""

_READ_BYTES = 1 << 16
_MARK = b"\n... %d bytes are left out here ...\n"


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
