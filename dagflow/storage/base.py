"""A kind of store: all operations that dagflow needs of a file system or an object store."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from dagflow.storage.files import Files
from dagflow.storage.objects import ObjectStore
from dagflow.storage.options import StorageOptions
from dagflow.storage.pending import PendingFiles
from dagflow.storage.roots import Roots
from dagflow.storage.source_files import SourceFiles


class Backend(ABC):
    """One kind of store, reached by the URLs of its schemes.

    StorageContext makes one for each scheme in each process. An implementation is one file, named in registry.py or in
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
        """The objects below a URL; nothing is created before the first object.

        Args:
            url: The root of the store; an absolute location.
            roots: Named roots of the run.

        Raises:
            StorageError: The store cannot create exclusively.
        """
