"""File systems of this machine, including mounted network file systems."""

from __future__ import annotations

from typing_extensions import override

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
        files = LocalFiles()
        super().__init__(scheme, options, files, LocalPendingFiles(), LocalSourceFiles(files))

    @override
    def objects(self, url: str, roots: Roots) -> LocalObjectStore:
        return LocalObjectStore(url, roots)


__all__ = ["LocalBackend"]
