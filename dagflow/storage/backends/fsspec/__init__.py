"""Any store that fsspec has a file system for."""

from __future__ import annotations

from typing_extensions import override

from dagflow.storage.backends.fsspec.client import FsspecClient
from dagflow.storage.backends.fsspec.files import FsspecFiles
from dagflow.storage.backends.fsspec.objects import open_objects
from dagflow.storage.backends.fsspec.pending import FsspecPendingFiles
from dagflow.storage.base import Backend
from dagflow.storage.files import Files
from dagflow.storage.objects import ObjectStore
from dagflow.storage.options import StorageOptions
from dagflow.storage.pending import PendingFiles
from dagflow.storage.roots import Roots


class FsspecBackend(Backend):
    """A store by fsspec's file system for its scheme; subclasses use what one kind of store can do beyond that."""

    def __init__(self, scheme: str, options: StorageOptions) -> None:
        super().__init__(scheme, options)
        self.client = self.make_client()

    def make_client(self) -> FsspecClient:
        """The client that all parts of the backend share."""
        return FsspecClient(self.scheme, self.options)

    @property
    @override
    def is_concurrent(self) -> bool:
        return self.client.is_concurrent

    @property
    @override
    def files(self) -> Files:
        return FsspecFiles(self.client)

    @property
    @override
    def pending(self) -> PendingFiles:
        return FsspecPendingFiles(self.client)

    @override
    def objects(self, url: str, roots: Roots) -> ObjectStore:
        return open_objects(self.client, url, roots)


__all__ = ["FsspecBackend"]
