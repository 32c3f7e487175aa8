"""Any store that fsspec has a file system for."""

from __future__ import annotations

from typing import Any, ClassVar

from typing_extensions import override

from dagflow.storage.backends.fsspec.client import FsspecClient
from dagflow.storage.backends.fsspec.files import FsspecFiles
from dagflow.storage.backends.fsspec.objects import open_objects
from dagflow.storage.backends.fsspec.pending import FsspecPendingFiles
from dagflow.storage.base import Backend
from dagflow.storage.objects import ObjectStore
from dagflow.storage.options import StorageOptions
from dagflow.storage.roots import Roots


class FsspecBackend(Backend):
    """A store by fsspec's file system for its scheme; subclasses use the further abilities of one kind of store."""

    client_class: ClassVar[type[FsspecClient]] = FsspecClient
    """Makes the client that all parts of the backend share."""

    files_class: ClassVar[type[FsspecFiles]] = FsspecFiles
    """Reads files by the client."""

    pending_class: ClassVar[type[Any]] = FsspecPendingFiles
    """A class of PendingFiles that is made with the client."""

    def __init__(self, scheme: str, options: StorageOptions) -> None:
        self.client = self.client_class(scheme, options)
        super().__init__(scheme, options, self.files_class(self.client), self.pending_class(self.client))

    @property
    @override
    def is_concurrent(self) -> bool:
        return self.client.is_concurrent

    @override
    def objects(self, url: str, roots: Roots) -> ObjectStore:
        return open_objects(self.client, url, roots)


__all__ = ["FsspecBackend"]
