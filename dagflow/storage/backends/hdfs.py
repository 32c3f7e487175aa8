"""HDFS, whose rename is atomic and refuses a name that is taken."""

from __future__ import annotations

import contextlib
import os
import re
import time
from typing import Any

from dagflow.errors import StorageError
from dagflow.storage.backends.fsspec import FsspecBackend, FsspecObjectStore
from dagflow.storage.backends.fsspec.client import FsspecClient
from dagflow.storage.backends.fsspec.files import FsspecFiles
from dagflow.storage.location import Roots
from dagflow.storage.options import options_of

_TEMPORARY = "tmp"
_STALE_S = 3600.0  # far above the time that one create() takes


class HdfsClient(FsspecClient):
    """Makes hdfs-native's file systems; they take one request at a time, from any thread, and cache no listings."""

    # It takes requests of several threads, though it is not asynchronous.
    is_concurrent = True

    def arguments(self) -> dict[str, Any]:
        return {name: str(value) for name, value in options_of(self.options, self.scheme).items()}

    def is_transient(self, error: Exception) -> bool:
        """Recognise the error by its message: hdfs-native has one class for all errors."""
        if type(error) is RuntimeError and re.search(r"[Cc]onnect|timed out|SafeMode|Standby", str(error)):
            return True
        return super().is_transient(error)


class HdfsObjectStore(FsspecObjectStore):
    """Objects in HDFS.

    Guarantee: an object is written under another name, and appears whole under its own.
    """

    def create_if_absent(self, name: str, data: bytes) -> None:
        path, temporary = self.path_in_store(name), self.path_in_store(f"{_TEMPORARY}/{os.urandom(16).hex()}")
        with self.client.translated(self.url, f"create {name}"):
            self.filesystem.makedirs(path.rpartition("/")[0], exist_ok=True)
            with self.filesystem.open(temporary, "wb", overwrite=False) as file:
                file.write(data)
            try:
                self.filesystem.mv(temporary, path)
            except BaseException:
                with contextlib.suppress(Exception):  # the next probe sweeps what remains
                    self.filesystem.rm_file(temporary)
                raise

    def probe(self) -> None:
        super().probe()
        with contextlib.suppress(StorageError):
            self.delete(
                entry.url[len(self.url) + 1 :]
                for entry in FsspecFiles(self.client).list(f"{self.url}/{_TEMPORARY}")
                if time.time() - entry.mtime_ns / 1e9 > _STALE_S
            )


class HdfsBackend(FsspecBackend):
    """HDFS and viewfs, by hdfs-native."""

    client_class = HdfsClient

    def objects(self, url: str, roots: Roots) -> HdfsObjectStore:
        return HdfsObjectStore(self.client, url, roots)
