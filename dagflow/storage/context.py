"""What a run knows of storage: the options of each protocol, and the named roots."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from dagflow.storage import files
from dagflow.storage.files import FileStat, ReadableFile
from dagflow.storage.options import StorageOptions
from dagflow.storage.roots import Roots
from dagflow.storage.store import Store, open_store


@dataclass(frozen=True)
class StorageContext:
    """Reaches every store that an app names; picklable, and the same in the driver and in tasks.

    Attributes:
        options: Options of file systems by protocol, credentials among them.
        roots: The app's named roots.
    """

    options: StorageOptions = field(default_factory=dict, repr=False)
    roots: Roots = field(default_factory=Roots)

    @classmethod
    def default(cls) -> StorageContext:
        """A context without options and without named roots: what the environment says holds."""
        return cls()

    @classmethod
    def of(cls, options: StorageOptions, roots: Mapping[str, str]) -> StorageContext:
        """The context of an app.

        Args:
            options: Options of file systems by protocol.
            roots: Locations of the named roots, by name.

        Raises:
            StorageError: One root lies in another.
        """
        return cls(options, Roots.of(roots))

    def open_file(self, url: str, expected: FileStat | None = None) -> ReadableFile:
        """Open a file, and make sure that it is the version that was planned.

        Args:
            url: Where it is.
            expected: The version, or None where any will do.

        Raises:
            MissingError: There is no such file.
            SourceChangedError: It is another version.
            StorageError: It is no regular file, or the store failed.
        """
        return files.open_file(url, expected)

    def stat(self, url: str) -> FileStat:
        """What is at a location; symbolic links are followed.

        Raises:
            MissingError: Nothing is.
            StorageError: It is neither a file nor a directory, or the store failed.
        """
        return files.stat(url)

    def list_directory(self, url: str) -> Iterator[FileStat]:
        """The files and directories directly in a directory, sorted by the bytes of their names.

        Raises:
            MissingError: There is no such directory.
            StorageError: It is no directory, or the store failed.
        """
        return files.list_directory(url)

    def objects(self, url: str) -> Store:
        """The store of small objects that is rooted at a URL, as a journal needs it.

        Raises:
            StorageError: The URL's scheme is unknown, or its package is not installed.
        """
        return open_store(url)
