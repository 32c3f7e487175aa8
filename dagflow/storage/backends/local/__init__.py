"""File systems of this machine, network file systems that are mounted among them."""

from __future__ import annotations

from dagflow.storage.backends.local.files import LocalFiles
from dagflow.storage.backends.local.objects import LocalObjectStore
from dagflow.storage.backends.local.pending import LocalPendingFiles
from dagflow.storage.backends.local.source_files import LocalSourceFiles
from dagflow.storage.base import Backend
from dagflow.storage.options import StorageOptions
from dagflow.storage.roots import Roots


class LocalBackend(Backend):
    """File systems of this machine, by plain paths."""

    is_local = True

    def __init__(self, scheme: str, options: StorageOptions) -> None:
        super().__init__(scheme, options)
        self._files = LocalFiles()
        self._pending = LocalPendingFiles()

    @property
    def files(self) -> LocalFiles:
        """See Backend."""
        return self._files

    @property
    def pending(self) -> LocalPendingFiles:
        """See Backend."""
        return self._pending

    @property
    def sources(self) -> LocalSourceFiles:
        """See Backend."""
        return LocalSourceFiles(self._files)

    def objects(self, url: str, roots: Roots) -> LocalObjectStore:
        """See Backend."""
        return LocalObjectStore(url, roots)


__all__ = ["LocalBackend"]
