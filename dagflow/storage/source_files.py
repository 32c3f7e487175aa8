"""Source files that have been processed, and are removed or archived."""

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

        Object stores remove what lies under a name: a version that is written between the look and the removal goes.

        Returns:
            Why the version was left although it is there; "" where it is removed.

        Raises:
            MissingError: Nothing is there.
            SourceChangedError: Another version is there, and stays.
            StorageError: The store refused.
        """
        if difference := expected.difference(self.files.stat(expected.url)):
            raise SourceChangedError(difference, url=redacted(expected.url))
        self.files.remove(expected.url)
        return ""

    def require_archive(self, url: str) -> None:
        """Make sure that files can be moved below a directory, which is made if it is not there.

        Raises:
            StorageError: The store archives no files, the directory cannot be made, or nothing can be written there.
        """
        raise StorageError("only files of a local disk can be archived", url=redacted(url))

    def archive_version(self, expected: FileStat, target: str) -> str:
        """Move a file elsewhere in its store if it is the version that was processed.

        Args:
            expected: The file.
            target: Its new name.

        Returns:
            Why the version was left although it is there; "" where it is in the archive now.

        Raises:
            MissingError: Nothing is there.
            SourceChangedError: Another version is there, and stays.
            StorageError: The store archives no files, or not to this place, or it refused.
        """
        raise StorageError("only files of a local disk can be archived", url=redacted(expected.url))

    def names_of(self, directory: str, file_ids: Container[int]) -> Mapping[int, str]:
        """Under which URLs files lie in a directory now; none where the store does not tell files by numbers.

        Args:
            directory: The directory.
            file_ids: The files, see FileStat.

        Returns:
            The URL by file; of several the last one that the store lists.
        """
        return {}
