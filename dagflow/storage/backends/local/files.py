"""Files of a local disk, for reading."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

from typing_extensions import override

from dagflow.errors import MissingError, StorageError
from dagflow.storage.backends.local.disk import translated
from dagflow.storage.backends.local.local_file import LocalFile, require_version, stat_of
from dagflow.storage.backends.local.small_files import load
from dagflow.storage.file_stat import FileStat
from dagflow.storage.files import Files, ReadableFile
from dagflow.storage.location import join
from dagflow.storage.small_files import LoadedFiles, SmallFiles


class LocalFiles(Files):
    """Files of this machine's file systems; a planned version may be appended to, and renamed within its directory."""

    # Batches of this size stay in the second-level cache from the read to the write.
    batch_bytes = 1 << 20

    @override
    def stat(self, url: str) -> FileStat:
        with translated(url, "look at"):
            return stat_of(url, os.stat(url))

    @override
    def open(self, url: str, expected: FileStat | None = None) -> ReadableFile:
        return LocalFile(url, expected)

    @override
    def list(self, url: str) -> Iterator[FileStat]:
        with translated(url, "list"), os.scandir(url) as found:
            entries = [(os.fsencode(entry.name) + (b"/" if entry.is_dir() else b""), entry) for entry in found]
        entries.sort(key=lambda pair: pair[0])
        for _, entry in entries:
            try:
                yield stat_of(join(url, entry.name), entry.stat())
            except FileNotFoundError:
                continue
            except OSError as error:
                if isinstance(error, StorageError):
                    continue
                with translated(join(url, entry.name), "look at"):
                    raise

    @override
    def remove(self, url: str) -> None:
        with translated(url, "remove"):
            os.unlink(url)

    @override
    def require_version(self, expected: FileStat) -> None:
        require_version(expected, self.stat(expected.url), expected.url)

    @override
    def has_version(self, expected: FileStat) -> bool:
        """Whether the version is there; a pipe, or a file in place of the directory, counts as another version."""
        try:
            with translated(expected.url, "look at"):
                found = os.stat(expected.url)
        except StorageError as error:
            if isinstance(error, MissingError) or isinstance(error.__cause__, NotADirectoryError):
                return False
            raise
        return stat.S_ISREG(found.st_mode) and not expected.difference(stat_of(expected.url, found))

    @override
    def load(self, files: SmallFiles, buffer: memoryview, endings: bytes) -> LoadedFiles:
        return load(files, buffer, endings)
