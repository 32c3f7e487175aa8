"""File systems of this machine, including mounted network file systems."""

from __future__ import annotations

import contextlib
import errno
import filecmp
import os
import stat
import time
from collections.abc import Collection, Iterable, Iterator

from typing_extensions import Buffer

from dagflow.errors import LostOutputError, MissingError, StorageError
from dagflow.storage.backends.local.disk import make_directories, move_exclusive, sync, translated, write_all
from dagflow.storage.backends.local.local_file import LocalFile, LocalSourceFiles, load, require_version, stat_of
from dagflow.storage.base import PROBE, Backend, ObjectStore
from dagflow.storage.files import Files, FileStat, LoadedFiles, ReadableFile, SmallFiles
from dagflow.storage.fingerprint import updated_crc32
from dagflow.storage.location import Roots, join
from dagflow.storage.options import StorageOptions
from dagflow.storage.pending import (
    PENDING_DIRECTORY,
    Durability,
    PendingFile,
    PendingFiles,
    PendingWriter,
    conflict,
    lost_output,
)


class LocalBackend(Backend):
    """File systems of this machine, by plain paths."""

    is_local = True

    def __init__(self, scheme: str, options: StorageOptions) -> None:
        files = LocalFiles()
        super().__init__(scheme, options, files, LocalPendingFiles(), LocalSourceFiles(files))

    def objects(self, url: str, roots: Roots) -> LocalObjectStore:
        return LocalObjectStore(url, roots)


class LocalFiles(Files):
    """Files of this machine's file systems; a planned version may be appended to, and renamed within its directory."""

    # Batches of this size stay in the second-level cache from the read to the write.
    batch_bytes = 1 << 20

    def stat(self, url: str) -> FileStat:
        with translated(url, "look at"):
            return stat_of(url, os.stat(url))

    def open(self, url: str, expected: FileStat | None = None) -> ReadableFile:
        return LocalFile(url, expected)

    def list(self, url: str) -> Iterator[FileStat]:
        with translated(url, "list"), os.scandir(url) as listing:
            entries = [(os.fsencode(entry.name) + (b"/" if _is_directory(entry) else b""), entry) for entry in listing]
        entries.sort(key=lambda pair: pair[0])
        for _, entry in entries:
            try:
                found = stat_of(join(url, entry.name), entry.stat())
            except OSError as error:
                # It has vanished, leads nowhere or to itself, or is a pipe or the like.
                if isinstance(error, FileNotFoundError | StorageError) or error.errno == errno.ELOOP:
                    continue
                with translated(join(url, entry.name), "look at"):
                    raise
            yield found

    def remove(self, url: str) -> None:
        with translated(url, "remove"):
            os.unlink(url)

    def require_version(self, expected: FileStat) -> None:
        require_version(expected, self.stat(expected.url), expected.url)

    def has_version(self, expected: FileStat) -> bool:
        """Whether the version is there; a pipe, or a file in place of the directory, counts as another version."""
        try:
            with translated(expected.url, "look at"):
                status = os.stat(expected.url)
        except StorageError as error:
            if isinstance(error, MissingError) or isinstance(error.__cause__, NotADirectoryError):
                return False
            raise
        return stat.S_ISREG(status.st_mode) and not expected.difference(stat_of(expected.url, status))

    def load(self, files: SmallFiles, buffer: memoryview, endings: bytes) -> LoadedFiles:
        return load(files, buffer, endings)


def _is_directory(entry: os.DirEntry[str]) -> bool:
    with contextlib.suppress(OSError):
        return entry.is_dir()
    return False


_TEMPORARY = "tmp"
_STALE_S = 3600.0  # far above the time that one create() takes, even on a loaded machine


class LocalObjectStore(ObjectStore):
    """Objects as files.

    Guarantee: an object is written and synced under another name, then linked to its own, so that a crash or a power
    loss leaves it whole or absent, and exactly one of several writers wins. Only the user who created it may read it. A
    store that has created an object does not create its root again: a root that was moved away can be moved back.
    """

    def create_if_absent(self, name: str, data: bytes) -> None:
        path = self.path_of(name)
        with translated(path, "create"):
            self._make_directory(self.path_of(f"{_TEMPORARY}/"), durable=False)
            with self._written(data, durable=True) as temporary:
                self._make_directory(path, durable=True)
                move_exclusive(temporary, path)
            sync(os.path.dirname(path))
            self.required_directory = self.required_directory or self.url

    def _make_directory(self, path: str, *, durable: bool) -> None:
        directory = os.path.dirname(path)
        make_directories(directory, durable=durable, private=self.url, required=self.required_directory)

    @contextlib.contextmanager
    def _written(self, data: bytes, *, durable: bool) -> Iterator[str]:
        """A file with these bytes, which is removed where the caller cannot give it its name."""
        path = self.path_of(f"{_TEMPORARY}/{os.getpid()}-{os.urandom(8).hex()}")
        try:
            with open(path, "xb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
                file.write(data)
                if durable:
                    file.flush()
                    descriptor = file.fileno()
                    os.fsync(descriptor)
            yield path
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(path)
            raise

    def replace(self, name: str, data: bytes) -> None:
        path = self.path_of(name)
        # Creates no directory: a checkpoint that was moved away must not come back as an empty one.
        with translated(path, "replace"), self._written(data, durable=False) as temporary:
            os.rename(temporary, path)

    def read(self, name: str) -> bytes:
        path = self.path_of(name)
        with translated(path, "read"), open(path, "rb") as file:
            return file.read()

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

    def path_of(self, name: str) -> str:
        return os.path.join(self.url, name)

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            path = self.path_of(name)
            with translated(path, "delete"), contextlib.suppress(FileNotFoundError):
                os.unlink(path)

    def close_to_others(self, directories: Collection[str]) -> str:
        """Also closes the root, if it contains nothing that others may have to reach."""
        ours = {_TEMPORARY, PROBE, *directories}
        with translated(self.url, "look at"):
            names = set(os.listdir(self.url))
            closed = [self.path_of(name) for name in sorted(names & ours)]
            if names <= ours:
                closed.append(self.url)
            for path in closed:
                with contextlib.suppress(PermissionError):
                    os.chmod(path, 0o700)
            return next(filter(None, map(_exposure, [self.url, *closed])), "")

    def probe(self) -> None:
        super().probe()
        with contextlib.suppress(OSError), os.scandir(self.path_of(_TEMPORARY)) as entries:
            for entry in entries:
                if time.time() - entry.stat().st_mtime > _STALE_S:
                    os.unlink(entry.path)


def _exposure(path: str) -> str:
    """Why another user may change the content of a directory; "" if no reason is found."""
    status = os.stat(path)
    if status.st_uid not in (os.geteuid(), 0):
        return f"{path} belongs to another user, with the id {status.st_uid}"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not status.st_mode & stat.S_ISVTX:
        return f"the mode of {path} is {stat.S_IMODE(status.st_mode):o}"
    return ""


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

    def close(self, *, records: int) -> PendingFile:
        self._flush()
        with translated(self._final, "complete"):
            if self._durability == "power":
                os.fsync(self._descriptor)
                sync(os.path.dirname(self._path))
            # Network file systems report a failed write no earlier than here.
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)
        return self._written(self._path, records)

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

    def open(
        self, final_url: str, *, tag: str, durability: Durability = "process", checksum: bool = False
    ) -> LocalPendingWriter:
        return LocalPendingWriter(final_url, tag, durability, checksum)

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
                sync(os.path.dirname(target))
        _remove_empty(source)

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
                sync(os.path.dirname(target))
        _remove_empty(source)

    def is_whole(self, pending: PendingFile) -> bool:
        with translated(pending.final_url, f"look at {pending.pending_url}"):
            try:
                return os.stat(pending.pending_url).st_size == pending.size_bytes
            except _GONE:
                return os.path.exists(pending.final_url) and _is_published(pending)

    def remove(self, pending_url: str) -> None:
        with translated(pending_url, "discard"), contextlib.suppress(*_GONE):
            os.unlink(pending_url)
        _remove_empty(pending_url)

    def pending_urls(self, root_url: str) -> Iterator[str]:
        waiting = [root_url]
        while waiting:
            directory = waiting.pop()
            is_tag = os.path.basename(os.path.dirname(directory)) == PENDING_DIRECTORY
            files: list[str] = []
            with contextlib.suppress(*_NOTHING_OF_OURS), os.scandir(directory) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    elif is_tag:
                        files.append(entry.path)
            yield from files
            if is_tag:
                _remove_empty(f"{directory}/")
            elif os.path.basename(directory) == PENDING_DIRECTORY:
                # Left by a driver that died before it removed this one as well.
                with contextlib.suppress(OSError):
                    os.rmdir(directory)

    def sync_names(self, urls: Iterable[str]) -> None:
        for directory in sorted({os.path.dirname(url) for url in urls}):
            with translated(directory, "sync"), contextlib.suppress(FileNotFoundError):
                sync(directory)


def _move(pending: PendingFile) -> None:
    source, target = pending.pending_url, pending.final_url
    try:
        try:
            move_exclusive(source, target)
        except FileExistsError:
            if not os.path.samefile(source, target) and not filecmp.cmp(source, target, shallow=False):
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


def _crc32_of(path: str) -> int:
    crc32 = 0
    with open(path, "rb") as file:
        while chunk := file.read(_COMPARE_BYTES):
            crc32 = updated_crc32(chunk, crc32)
    return crc32
