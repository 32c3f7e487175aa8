"""A kind of store: all operations that dagflow needs of a file system or an object store."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from typing import ClassVar

from dagflow.errors import AlreadyExistsError, MissingError, SourceChangedError, StorageError, TransientStorageError
from dagflow.storage.files import Files, FileStat
from dagflow.storage.location import Roots, redacted
from dagflow.storage.options import StorageOptions
from dagflow.storage.pending import PendingFiles

PROBE = "probe"
"""The directory of the objects that probe() creates, and removes."""

_ATTEMPTS = 3


class ObjectStore(ABC):
    """Named objects below one URL. Each method raises StorageError where the store fails or refuses.

    Names are parts joined by "/". Guarantee: an object exists as a whole or not at all, also after a crash, and if
    several writers create one name, one wins. Picklable.

    Attributes:
        url: The root of the store; an absolute location.
        roots: Named roots; objects contain locations below a root by its name.
    """

    def __init__(self, url: str, roots: Roots = Roots()) -> None:  # noqa: B008  # frozen
        self.url = url
        self.roots = roots
        self.required_directory: str | None = None

    @abstractmethod
    def create_if_absent(self, name: str, data: bytes) -> None:
        """Attempt create() once, without reading back.

        Raises:
            AlreadyExistsError: The name is taken.
            StorageError: The object was not created, or it is not known whether it was.
        """

    @abstractmethod
    def read(self, name: str) -> bytes:
        """The bytes of an object.

        Raises:
            MissingError: There is no such object.
        """

    @abstractmethod
    def list(self, directory: str, after: str = "") -> Iterator[str]:
        """The names of the objects directly in a directory, sorted.

        Args:
            directory: "log/" or the like, or "" for the root.
            after: Only names after this one, which is a full name.
        """

    @abstractmethod
    def delete(self, names: Iterable[str]) -> None:
        """Remove objects; a missing object is no error."""

    def require_directory(self, url: str) -> None:
        """Fail from now on instead of creating a directory again that was moved away, if the store has directories."""
        self.required_directory = url

    def replace(self, name: str, data: bytes) -> None:
        """Replace the bytes of an object; only for objects that may be lost, as it need not survive a power loss.

        A reader finds the old bytes or the new ones; in stores without such a call it may find nothing for a moment, or
        only the first bytes. Only the directory of a created object need exist: no other one is created.
        """
        self.delete([name])
        self.create(name, data)

    def path_of(self, name: str) -> str | None:
        """The local path of an object; None where the store has no local paths."""
        return None

    def close_to_others(self, directories: Collection[str]) -> str:
        """Deny other users of this machine access, if the store is a directory of this machine.

        Args:
            directories: The names of all directories that this program keeps directly below the root.

        Returns:
            Why others may still change objects; "" where only users can whom the store admits.
        """
        return ""

    def create(self, name: str, data: bytes) -> None:
        """Create an object, durably, unless the name is taken.

        After an error that leaves the outcome in doubt the object is read back: equal bytes count as this writer's own,
        so data must contain something that no other writer has.

        Raises:
            AlreadyExistsError: The name has other bytes.
            TransientStorageError: It is not known whether the object is there, or will be.
        """
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return self.create_if_absent(name, data)
            except StorageError as error:
                present = self._content(name, error)
                if present == data:
                    return None
                if present is not None:
                    place = redacted(f"{self.url}/{name}")
                    raise AlreadyExistsError("the name is taken by other bytes", url=place) from error
                # A reply that says "taken" for a name that is free again is as doubtful as no reply.
                if attempt == _ATTEMPTS or not isinstance(error, (TransientStorageError, AlreadyExistsError)):
                    raise
        return None

    def _content(self, name: str, error: StorageError) -> bytes | None:
        try:
            return self.read(name)
        except MissingError:
            return None
        except StorageError:
            raise error from None

    def probe(self) -> None:
        """Check that create really excludes other writers.

        Raises:
            StorageError: It does not exclude them; no journal may be kept here.
        """
        name = f"{PROBE}/{os.urandom(8).hex()}"
        self.create(name, b"first " + name.encode())
        try:
            self.create(name, b"second " + name.encode())
        except AlreadyExistsError:
            return
        finally:
            self.delete([name])
        raise StorageError(
            "a second creation of the same name succeeded: this store cannot keep two drivers apart",
            url=redacted(self.url),
            hint="put the checkpoint on a local disk or on an object store with conditional writes",
        )


class Backend(ABC):
    """One kind of store, reached by the URLs of its schemes.

    StorageContext makes one for each scheme in each process. An implementation is one file, named in BACKENDS or in
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
        """The objects below an absolute location; nothing is created before the first object.

        Raises:
            StorageError: The store cannot create exclusively.
        """


class SourceFiles:
    """Removes and archives the source files of one kind of store. URLs are absolute, see location.absolute."""

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
        """Give a file another name in its store if it is the version that was processed.

        Returns:
            Why the version was left although it exists; "" where it is in the archive now.

        Raises:
            MissingError: There is no such file.
            SourceChangedError: The name has another version, which stays.
            StorageError: The store archives no files, or not at this location, or it refused.
        """
        raise StorageError("only files of a local disk can be archived", url=redacted(expected.url))

    def names_of(self, directory: str, file_ids: Container[int]) -> Mapping[int, str]:
        """The present URLs of files in a directory, by FileStat.file_id; of several URLs the last that is listed.

        Empty where the store does not identify files by numbers.
        """
        return {}
