"""Small objects that are created once and hardly ever changed: the parts of a journal."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator

from dagflow.errors import AlreadyExistsError, MissingError, StorageError, TransientStorageError
from dagflow.storage.location import redacted
from dagflow.storage.roots import Roots

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
        """Fail from now on instead of creating a directory again that was moved away.

        Args:
            url: The directory; where the store has no directories, nothing is required.
        """
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
