"""Small objects that are created once and never changed: what a journal is made of."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Protocol

from dagflow.errors import AlreadyExistsError, MissingError, StorageError, TransientStorageError
from dagflow.storage.location import absolute, is_local, redacted

_ATTEMPTS = 3


class Store(Protocol):
    """Named objects below one URL.

    Names are parts joined by "/". Guarantee: an object is there as a whole or not at all, also after a crash,
    and of several writers of one name one wins.
    """

    @property
    def url(self) -> str:
        """Where the store is rooted."""

    def create(self, name: str, data: bytes) -> None:
        """Create an object, durably, unless the name is taken.

        After an error that leaves the outcome in doubt the object is read back: equal bytes are taken for one's
        own, so data must carry something that no other writer has.

        Raises:
            AlreadyExistsError: The name holds other bytes.
            TransientStorageError: It is not known whether the object is there, or will be.
            StorageError: The store refused.
        """

    def read(self, name: str) -> bytes:
        """The bytes of an object.

        Raises:
            MissingError: There is none.
            StorageError: The store refused.
        """

    def list(self, directory: str, after: str = "") -> Iterator[str]:
        """The names of the objects directly in a directory, sorted.

        Args:
            directory: "log/" or the like, or "" for the root.
            after: Only names behind this one, which is a full name.

        Raises:
            StorageError: The store refused.
        """

    def delete(self, names: Iterable[str]) -> None:
        """Remove objects; those that are not there are no error.

        Raises:
            StorageError: The store refused.
        """

    def probe(self) -> None:
        """Find out whether create really excludes.

        Raises:
            StorageError: It does not; no journal may be kept here.
        """


class ReadBackStore(ABC):
    """A store whose create() settles doubtful outcomes by reading back.

    Args:
        url: Where it is rooted.
    """

    def __init__(self, url: str) -> None:
        self._url = url

    @property
    def url(self) -> str:
        """Where the store is rooted."""
        return self._url

    @abstractmethod
    def create_once(self, name: str, data: bytes) -> None:
        """One attempt of create(), without the reading back.

        Raises:
            StorageError: It failed, or it is not known whether it succeeded.
        """

    @abstractmethod
    def read(self, name: str) -> bytes:
        """See Store."""

    @abstractmethod
    def list(self, directory: str, after: str = "") -> Iterator[str]:
        """See Store."""

    @abstractmethod
    def delete(self, names: Iterable[str]) -> None:
        """See Store."""

    def create(self, name: str, data: bytes) -> None:
        """See Store."""
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return self.create_once(name, data)
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
        """See Store."""
        name = f"probe/{os.urandom(8).hex()}"
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


def open_store(url: str) -> Store:
    """The store rooted at a URL; nothing is created before the first object.

    Raises:
        StorageError: The URL's scheme is unknown, or its package is not installed.
    """
    # The implementations build on this module, and the remote one loads fsspec, which local runs do without.
    if is_local(url):
        from dagflow.storage.local_store import LocalStore

        return LocalStore(absolute(url))
    from dagflow.storage.object_store import open_object_store

    return open_object_store(absolute(url))
