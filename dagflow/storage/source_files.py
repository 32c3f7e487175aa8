"""Removes or archives source files that have been processed."""

from __future__ import annotations

import os
from collections.abc import Container, Mapping

from dagflow.errors import SourceChangedError, StorageError
from dagflow.storage.file_stat import FileStat
from dagflow.storage.files import Files
from dagflow.storage.location import redacted


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
            StorageError: The store refused.
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
            expected: The file.
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
            directory: The directory.
            file_ids: The files, see FileStat.

        Returns:
            The URL by file; if a file has several, the last one that the store lists.
        """
        return {}
