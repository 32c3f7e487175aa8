"""A kind of store: all operations that dagflow needs of a file system or an object store."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Container, Mapping
from typing import ClassVar

from dagflow.errors import SourceChangedError, StorageError
from dagflow.storage.files import Files, FileStat
from dagflow.storage.location import redacted
from dagflow.storage.objects import ObjectStore
from dagflow.storage.options import StorageOptions
from dagflow.storage.pending import PendingFiles
from dagflow.storage.roots import Roots


class Backend(ABC):
    """One kind of store, reached by the URLs of its schemes.

    StorageContext makes one for each scheme in each process. An implementation is one file, named in registry.py or in
    the app's attributes by `storage: {SCHEME: {backend: package.module.Class}}`. It must pass the suite
    dagflow.testing.storage_contract.StorageContract.

    Args:
        scheme: The scheme by which it was found; "" for plain paths.
        options: Options by protocol, as in the app's attribute `storage`.
        files: Files to read.
        pending: Output that waits to be published.
        sources: Processed source files; by default they can be removed, and not archived.
    """

    is_local: ClassVar[bool] = False
    """Whether locations are paths on this machine, which functions of `os` accept and other hosts may not see."""

    def __init__(
        self,
        scheme: str,
        options: StorageOptions,
        files: Files,
        pending: PendingFiles,
        sources: SourceFiles | None = None,
    ) -> None:
        self.scheme = scheme
        self.options = options
        self.files = files
        self.pending = pending
        self.sources = sources or SourceFiles(files)

    @property
    def is_concurrent(self) -> bool:
        """Whether several calls at a time, from several threads, are allowed, and faster than one after the other."""
        return False

    def object_store_options(self, url: str) -> dict[str, str] | None:
        """The options for clients by Rust's object_store, such as deltalake, to reach a location as this backend does.

        Returns:
            The options by their names there, including credentials; None where such clients cannot reach it.

        Raises:
            StorageError: The store cannot be reached.
        """
        return {} if self.is_local else None

    @abstractmethod
    def objects(self, url: str, roots: Roots) -> ObjectStore:
        """The objects below a URL; nothing is created before the first object.

        Args:
            url: The root of the store; an absolute location.
            roots: Named roots of the run.

        Raises:
            StorageError: The store cannot create exclusively.
        """


def flush_disks() -> None:
    """Wait until everything that this machine has written is on its disks."""
    os.sync()


class SourceFiles:
    """Removes and archives the source files of one kind of store. URLs are absolute, see location.absolute.

    Args:
        files: The store's files.
    """

    def __init__(self, files: Files) -> None:
        self.files = files

    def remove_version(self, expected: FileStat) -> str:
        """Remove a file if it is the version that was processed.

        Object stores remove by name: a version that is written between the look and the removal is removed, too.

        Returns:
            Why the version was left although it exists; "" where it was removed.

        Raises:
            MissingError: There is no such file.
            SourceChangedError: The name has another version, which stays.
        """
        if difference := expected.difference(self.files.stat(expected.url)):
            raise SourceChangedError(difference, url=redacted(expected.url))
        self.files.remove(expected.url)
        return ""

    def require_archive(self, url: str) -> None:
        """Check that files can be moved below a directory, which is created if it does not exist.

        Raises:
            StorageError: The store archives no files, or the directory cannot be created or written to.
        """
        raise StorageError("only files of a local disk can be archived", url=redacted(url))

    def archive_version(self, expected: FileStat, target: str) -> str:
        """Move a file elsewhere in its store if it is the version that was processed.

        Args:
            target: Its new name.

        Returns:
            Why the version was left although it exists; "" where it is in the archive now.

        Raises:
            MissingError: There is no such file.
            SourceChangedError: The name has another version, which stays.
            StorageError: The store archives no files, or not at this location, or it refused.
        """
        raise StorageError("only files of a local disk can be archived", url=redacted(expected.url))

    def names_of(self, directory: str, file_ids: Container[int]) -> Mapping[int, str]:
        """The present URLs of files in a directory; empty where the store does not identify files by numbers.

        Args:
            file_ids: The files, see FileStat.

        Returns:
            The URL by file; if a file has several, the last one that the store lists.
        """
        return {}
