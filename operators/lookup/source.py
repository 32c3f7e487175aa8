"""The interface of a table to join with: its version, its columns and its rows."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

import pyarrow as pa

from dagflow.errors import DagflowError
from dagflow.storage.context import StorageContext
from dagflow.storage.file_stat import FileStat
from dagflow.storage.location import absolute, is_local, name_of, redacted


class LookupSource(ABC):
    """A table that records are joined with. An operator holds it, so it is pickled, and holds no connection.

    Attributes:
        name: Its name in messages.
    """

    name: str

    @property
    @abstractmethod
    def is_near(self) -> bool:
        """Whether the table can be read without a network, so that its columns are known before a run."""

    @abstractmethod
    def version(self, storage: StorageContext) -> str:
        """A text that differs for each state of the table.

        Raises:
            DagflowError: The table does not exist.
        """

    @abstractmethod
    def columns(self, storage: StorageContext) -> pa.Schema:
        """The columns of the table.

        Raises:
            DagflowError: The table does not exist, or cannot be read.
        """

    @abstractmethod
    def batches(self, storage: StorageContext, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The rows of the table.

        Args:
            storage: Reaches the stores of the app.
            names: The columns to read, all of which the table has.

        Raises:
            DagflowError: The table cannot be read.
        """


class FilesSource(LookupSource):
    """A table of one file, or of the files directly in a directory.

    Args:
        kind: The kind in the property.
        location: The file or directory.
        extension: Suffix of the names of files in a directory; "" for all names.
    """

    def __init__(self, kind: str, location: str, extension: str = "") -> None:
        self._location = absolute(location)
        self._extension = extension
        self.name = f"table {kind}:{redacted(self._location)}"

    @property
    def is_near(self) -> bool:
        """Whether the location is on a disk of this machine."""
        return is_local(self._location)

    def files(self, storage: StorageContext) -> list[FileStat]:
        """The files, by name.

        Raises:
            DagflowError: The location does not exist, or its directory has no files, or something else in it.
        """
        found = storage.stat(self._location)
        if not found.is_directory:
            return [found]
        files = []
        for entry in storage.list_directory(self._location):
            name = name_of(entry.url)
            if name.startswith((".", "_")):
                continue
            if entry.is_directory or not name.endswith(self._extension):
                raise DagflowError(
                    f"{self.name} has {name} in it, and a table is made of the files directly in a directory"
                    + (f", which end in {self._extension}" if self._extension else ""),
                    hint="let table name a directory of such files, or one of them",
                )
            files.append(entry)
        if not files:
            raise DagflowError(f"{self.name} is an empty directory", hint="put the table there, or name where it is")
        return files

    def version(self, storage: StorageContext) -> str:
        """The versions of the files."""
        files = self.files(storage)
        facts = [(name_of(each.url), each.size_bytes, each.mtime_ns, each.etag, each.file_id) for each in files]
        digest = hashlib.blake2b(repr(facts).encode(), digest_size=6).hexdigest()
        return f"{len(files)} file{'s' * (len(files) > 1)}, {sum(each.size_bytes for each in files)} bytes, {digest}"
