"""A store of one's own: files are rows of an SQLite database, and are published by a transaction."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterable, Iterator

from typing_extensions import Buffer, override

from dagflow.errors import AlreadyExistsError, MissingError
from dagflow.storage.base import Backend, ObjectStore
from dagflow.storage.files import Files, FileStat, ReadableFile, require_same_version
from dagflow.storage.location import Roots, join, name_of, parent
from dagflow.storage.options import StorageOptions, options_of
from dagflow.storage.pending import (
    PENDING_DIRECTORY,
    Durability,
    PendingFile,
    PendingFiles,
    PendingWriter,
    conflict,
    lost_output,
)


class SqliteBackend(Backend):
    """The rows of the database that the option `database` names; a URL is `sqlite://any/path`."""

    def __init__(self, scheme: str, options: StorageOptions) -> None:
        self.database = Database(str(options_of(options, scheme)["database"]))
        super().__init__(scheme, options, SqliteFiles(self.database), SqlitePendingFiles(self.database))

    @override
    def objects(self, url: str, roots: Roots) -> ObjectStore:
        return SqliteObjects(self.database, url, roots)


class Database:
    """One table of files; each transaction has a connection of its own, so that threads and processes may share it."""

    def __init__(self, path: str) -> None:
        self.path = path

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection whose changes become visible together, or not at all."""
        with contextlib.closing(sqlite3.connect(self.path, timeout=60, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("CREATE TABLE IF NOT EXISTS files (url TEXT PRIMARY KEY, data BLOB, version TEXT)")
            yield connection
            connection.execute("COMMIT")

    def find(self, url: str) -> tuple[bytes, str] | None:
        """Return the bytes and the version of a file."""
        with self.transaction() as rows:
            found: tuple[bytes, str] | None = rows.execute(
                "SELECT data, version FROM files WHERE url = ?", (url,)
            ).fetchone()
            return found

    def below(self, url: str) -> dict[str, tuple[int, str]]:
        """Return the sizes and versions of all files below a URL."""
        query = "SELECT url, length(data), version FROM files WHERE substr(url, 1, ?) = ?"
        with self.transaction() as rows:
            found = rows.execute(query, (len(url) + 1, f"{url}/")).fetchall()
        return {file: (size_bytes, version) for file, size_bytes, version in found}

    def add(self, url: str, data: bytes) -> None:
        """Add a file.

        Raises:
            AlreadyExistsError: The name is taken.
        """
        try:
            with self.transaction() as rows:
                rows.execute("INSERT INTO files VALUES (?, ?, ?)", (url, data, os.urandom(8).hex()))
        except sqlite3.IntegrityError as error:
            raise AlreadyExistsError("the name is taken", url=url) from error

    def remove(self, urls: Iterable[str]) -> int:
        """Remove files, and return how many there were."""
        with self.transaction() as rows:
            return sum(rows.execute("DELETE FROM files WHERE url = ?", (url,)).rowcount for url in urls)


class SqliteFile(ReadableFile):
    """The bytes of one row."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    @property
    @override
    def size_bytes(self) -> int:
        return len(self._data)

    @override
    def read_into(self, offset: int, buffer: memoryview) -> int:
        piece = self._data[offset : offset + len(buffer)]
        buffer[: len(piece)] = piece
        return len(piece)


class SqliteFiles(Files):
    """Rows as files; directories are the prefixes of their names."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @override
    def stat(self, url: str) -> FileStat:
        found = self._database.find(url)
        if found is not None:
            return FileStat(url, len(found[0]), etag=found[1])
        if not self._database.below(url):
            raise MissingError("there is nothing", url=url)
        return FileStat(url, 0, is_directory=True)

    @override
    def open(self, url: str, expected: FileStat | None = None) -> ReadableFile:
        found = self._database.find(url)
        if found is None:
            raise MissingError("there is nothing", url=url)
        require_same_version(expected, FileStat(url, len(found[0]), etag=found[1]))
        return SqliteFile(found[0])

    @override
    def list(self, url: str) -> Iterator[FileStat]:
        files = self._database.below(url)
        if not files:
            raise MissingError("there is nothing", url=url)
        names = {file[len(url) + 1 :].partition("/")[:2] for file in files}
        for name, slash in sorted(names, key=lambda parts: "".join(parts).encode()):
            child = join(url, name)
            size_bytes, version = (0, "") if slash else files[child]
            yield FileStat(child, size_bytes, etag=version, is_directory=bool(slash))

    @override
    def remove(self, url: str) -> None:
        if not self._database.remove([url]):
            raise MissingError("there is nothing", url=url)


class SqliteWriter(PendingWriter):
    """Collects the bytes of a file, which becomes a row under a hidden name."""

    def __init__(self, database: Database, final_url: str, tag: str, checksum: bool) -> None:
        super().__init__(final_url, checksum=checksum)
        self._database = database
        self._pending_url = join(parent(final_url), PENDING_DIRECTORY, tag, os.urandom(16).hex())
        self._data = bytearray()

    @override
    def write(self, data: Buffer) -> None:
        view = memoryview(data).cast("B")
        self._data += view
        self._count(view)

    @override
    def close(self, *, records: int) -> PendingFile:
        self._database.add(self._pending_url, bytes(self._data))
        return self._written(self._pending_url, records)

    @override
    def abandon(self) -> None:
        self._data.clear()


class SqlitePendingFiles(PendingFiles):
    """Rows under hidden names; publishing is one transaction that renames a row."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @override
    def open(
        self, final_url: str, *, tag: str, durability: Durability = "process", checksum: bool = False
    ) -> PendingWriter:
        return SqliteWriter(self._database, final_url, tag, checksum)

    @override
    def publish(self, pending: PendingFile, durability: Durability = "process") -> None:
        if self._database.find(pending.pending_url) is None:
            return self._require_published(pending)
        try:
            with self._database.transaction() as rows:
                rows.execute("UPDATE files SET url = ? WHERE url = ?", (pending.final_url, pending.pending_url))
        except sqlite3.IntegrityError as error:
            raise conflict(pending) from error
        return None

    @override
    def replace(self, pending: PendingFile, durability: Durability = "process") -> None:
        if self._database.find(pending.pending_url) is None:
            return self._require_published(pending)
        with self._database.transaction() as rows:
            rows.execute("DELETE FROM files WHERE url = ?", (pending.final_url,))
            rows.execute("UPDATE files SET url = ? WHERE url = ?", (pending.final_url, pending.pending_url))
        return None

    @override
    def is_whole(self, pending: PendingFile) -> bool:
        found = self._database.find(pending.pending_url) or self._database.find(pending.final_url)
        return found is not None and len(found[0]) == pending.size_bytes

    @override
    def pending_urls(self, root_url: str) -> Iterator[str]:
        return (url for url in self._database.below(root_url) if name_of(parent(parent(url))) == PENDING_DIRECTORY)

    @override
    def remove(self, pending_url: str) -> None:
        self._database.remove([pending_url])

    def _require_published(self, pending: PendingFile) -> None:
        if not self.is_whole(pending):
            raise lost_output(pending)


class SqliteObjects(ObjectStore):
    """Rows that are added once; the primary key excludes a second creator."""

    def __init__(self, database: Database, url: str, roots: Roots) -> None:
        super().__init__(url, roots)
        self._database = database

    @override
    def create_if_absent(self, name: str, data: bytes) -> None:
        self._database.add(join(self.url, name), data)

    @override
    def read(self, name: str) -> bytes:
        found = self._database.find(join(self.url, name))
        if found is None:
            raise MissingError("there is nothing", url=join(self.url, name))
        return found[0]

    @override
    def list(self, directory: str, after: str = "") -> Iterator[str]:
        url = join(self.url, directory.rstrip("/")) if directory else self.url
        names = (file[len(self.url) + 1 :] for file in self._database.below(url))
        return iter(sorted(name for name in names if "/" not in name[len(directory) :] and name > after))

    @override
    def delete(self, names: Iterable[str]) -> None:
        self._database.remove(join(self.url, name) for name in names)
