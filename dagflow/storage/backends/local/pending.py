"""Pending output on a local disk: a hidden directory beside the final name, and an exclusive link."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterable, Iterator

from typing_extensions import Buffer, override

from dagflow.errors import LostOutputError
from dagflow.storage.backends.local.disk import make_directories, move_exclusive, sync_directory, translated, write_all
from dagflow.storage.checksums import updated_crc32
from dagflow.storage.pending import (
    PENDING_DIRECTORY,
    Durability,
    PendingFile,
    PendingFiles,
    PendingWriter,
    conflict,
    is_earlier_tag,
    lost_output,
)

_BUFFER_BYTES = 1 << 20
# Above this size a copy into the buffer costs more than the system call that it saves.
_DIRECT_BYTES = 1 << 18
_COMPARE_BYTES = 1 << 20
_OPEN_ATTEMPTS = 100
# An unreadable directory belongs to someone else, such as lost+found: no task has written there.
_NOTHING_OF_OURS = (FileNotFoundError, NotADirectoryError, PermissionError)
# Another program may have put a file in the place of the directory.
_GONE = (FileNotFoundError, NotADirectoryError)


class LocalPendingWriter(PendingWriter):
    """Writes to `.dagflow-pending/<tag>/<unique name>` beside the final name, on the same file system.

    Guarantee: any process can publish what close() returned; with durability "power" also after a power loss.
    """

    def __init__(self, final_url: str, tag: str, durability: Durability, checksum: bool) -> None:
        super().__init__(final_url, checksum=checksum)
        self._durability = durability
        self._buffer = bytearray()
        directory = os.path.join(os.path.dirname(final_url), PENDING_DIRECTORY, tag)
        self._path = os.path.join(directory, os.urandom(16).hex())
        with translated(final_url, "open a pending file for it"):
            self._descriptor = _create(self._path, durable=durability == "power")

    @override
    def write(self, data: Buffer) -> None:
        view = memoryview(data).cast("B")
        if len(view) < _DIRECT_BYTES:
            self._buffer += view
            if len(self._buffer) >= _BUFFER_BYTES:
                self._flush()
            return
        self._flush()
        self._put(view)

    def _flush(self) -> None:
        if self._buffer:
            self._put(memoryview(self._buffer))
            self._buffer = bytearray()

    def _put(self, view: memoryview) -> None:
        with translated(self._final, "write"):
            write_all(self._descriptor, view)
        self._count(view)

    @override
    def close(self, *, records: int) -> PendingFile:
        self._flush()
        with translated(self._final, "complete"):
            if self._durability == "power":
                os.fsync(self._descriptor)
                sync_directory(os.path.dirname(self._path))
            # Network file systems report a failed write no earlier than here.
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)
        return self._written(self._path, records)

    @override
    def abandon(self) -> None:
        if self._descriptor < 0:
            return
        descriptor, self._descriptor = self._descriptor, -1
        with contextlib.suppress(OSError):
            os.close(descriptor)
        with contextlib.suppress(OSError):
            os.unlink(self._path)
        _remove_empty(self._path)


class LocalPendingFiles(PendingFiles):
    """A hidden directory beside each final name, and an exclusive link to publish."""

    @override
    def open(
        self, final_url: str, *, tag: str, durability: Durability = "process", checksum: bool = False
    ) -> LocalPendingWriter:
        return LocalPendingWriter(final_url, tag, durability, checksum)

    @override
    def publish(self, pending: PendingFile, durability: Durability = "process") -> None:
        source, target = pending.pending_url, pending.final_url
        with translated(target, f"publish {source}"):
            try:
                staged_bytes = os.stat(source).st_size
            except _GONE:
                _require_published(pending)
            else:
                if staged_bytes != pending.size_bytes:
                    raise LostOutputError(
                        f"its pending file {source} has {staged_bytes} bytes, not the {pending.size_bytes} that were "
                        "written: another process has written to it, or a power loss took its end (durability: power "
                        "prevents that)",
                        url=target,
                    )
                _move(pending)
            # Also if another process moved the file: it may have died before its names were on disk.
            if durability == "power":
                sync_directory(os.path.dirname(target))
        _remove_empty(source)

    @override
    def replace(self, pending: PendingFile, durability: Durability = "process") -> None:
        source, target = pending.pending_url, pending.final_url
        with translated(target, f"replace by {source}"):
            try:
                if os.stat(source).st_size != pending.size_bytes:
                    raise lost_output(pending)
                os.replace(source, target)
            except _GONE:
                _require_published(pending)
            if durability == "power":
                sync_directory(os.path.dirname(target))
        _remove_empty(source)

    @override
    def is_whole(self, pending: PendingFile) -> bool:
        with translated(pending.final_url, f"look at {pending.pending_url}"):
            try:
                return os.stat(pending.pending_url).st_size == pending.size_bytes
            except _GONE:
                return os.path.exists(pending.final_url) and _is_published(pending)

    @override
    def discard(self, pending: PendingFile) -> None:
        with translated(pending.pending_url, "discard"), contextlib.suppress(*_GONE):
            os.unlink(pending.pending_url)
        _remove_empty(pending.pending_url)

    @override
    def sweep(
        self,
        root_url: str,
        *,
        owner: str,
        before_epoch: int,
        require_right: Callable[[], None],
        keep: Collection[str] = (),
    ) -> int:
        # By name, which is unique: a link may lead to the directory, so the path is not conclusive.
        kept = {os.path.basename(path) for path in keep}
        removed = 0
        with translated(root_url, "sweep"):
            for directory in _pending_directories(root_url):
                for tag in _names(directory):
                    if is_earlier_tag(tag, owner, before_epoch):
                        removed += _sweep_tag(os.path.join(directory, tag), kept)
                with contextlib.suppress(OSError):
                    os.rmdir(directory)
        return removed

    @override
    def sync_names(self, urls: Iterable[str]) -> None:
        for directory in sorted({os.path.dirname(url) for url in urls}):
            with translated(directory, "sync"), contextlib.suppress(FileNotFoundError):
                sync_directory(directory)


def _move(pending: PendingFile) -> None:
    source, target = pending.pending_url, pending.final_url
    try:
        try:
            move_exclusive(source, target)
        except FileExistsError:
            if not os.path.samefile(source, target) and not _same_bytes(source, target):
                raise conflict(pending) from None
            os.unlink(source)
    except FileNotFoundError:
        # A driver that was thought dead publishes the same committed file at this moment.
        _require_published(pending)


def _require_published(pending: PendingFile) -> None:
    try:
        is_published = _is_published(pending)
    except _GONE:
        raise lost_output(pending) from None
    if not is_published:
        raise conflict(pending)


def _is_published(pending: PendingFile) -> bool:
    if os.stat(pending.final_url).st_size != pending.size_bytes:
        return False
    return pending.crc32 is None or _crc32_of(pending.final_url) == pending.crc32


def _sweep_tag(directory: str, kept: Collection[str]) -> int:
    removed = 0
    for name in _names(directory):
        if name not in kept:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(directory, name))
                removed += 1
    with contextlib.suppress(OSError):
        os.rmdir(directory)
    return removed


def _names(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except _NOTHING_OF_OURS:
        return []


def _pending_directories(root: str) -> Iterator[str]:
    waiting = [root]
    while waiting:
        above = waiting.pop()
        try:
            with os.scandir(above) as entries:
                below = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
        except _NOTHING_OF_OURS:
            continue
        for path in below:
            if os.path.basename(path) == PENDING_DIRECTORY:
                yield path
            else:
                waiting.append(path)


def _create(path: str, *, durable: bool) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    for _ in range(_OPEN_ATTEMPTS):
        # Another task or the driver may remove the empty directory between the two calls.
        with contextlib.suppress(FileNotFoundError):
            return os.open(path, flags, 0o666)
        with contextlib.suppress(FileNotFoundError):
            make_directories(os.path.dirname(path), durable=durable)
    return os.open(path, flags, 0o666)


def _remove_empty(path: str) -> None:
    directory = os.path.dirname(path)
    with contextlib.suppress(OSError):
        os.rmdir(directory)
        os.rmdir(os.path.dirname(directory))


def _same_bytes(first: str, second: str) -> bool:
    if os.stat(first).st_size != os.stat(second).st_size:
        return False
    with open(first, "rb") as one, open(second, "rb") as other:
        while chunk := one.read(_COMPARE_BYTES):
            if chunk != other.read(_COMPARE_BYTES):
                return False
    return True


def _crc32_of(path: str) -> int:
    crc32 = 0
    with open(path, "rb") as file:
        while chunk := file.read(_COMPARE_BYTES):
            crc32 = updated_crc32(chunk, crc32)
    return crc32
