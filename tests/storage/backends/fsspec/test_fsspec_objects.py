"""Objects in stores that fsspec reaches."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from fsspec.implementations.local import LocalFileSystem

from dagflow.errors import StorageError
from dagflow.storage.backends.fsspec import FsspecObjectStore
from dagflow.storage.backends.fsspec.client import FsspecClient
from dagflow.storage.base import ObjectStore
from dagflow.storage.context import StorageContext
from dagflow.storage.location import Roots


def test_a_store_that_overwrites_is_refused_by_the_probe(tmp_path: Path) -> None:
    """A file system that takes no notice of mode="create" cannot hold a journal."""

    class Careless(LocalFileSystem):  # type: ignore[misc]  # fsspec has no types
        def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **others: object) -> None:
            with open(path, "wb") as file:
                file.write(value)

    class Client(FsspecClient):
        def locate(self, url: str) -> tuple[Careless, str]:
            return Careless(), str(tmp_path)

    store = FsspecObjectStore(Client("careless", {}), "careless://x", Roots())
    with pytest.raises(StorageError, match="cannot keep two drivers apart"):
        store.probe()


def test_a_file_system_that_only_looks_before_it_writes_is_refused() -> None:
    """Two writers may pass fsspec's inherited look together, and no probe by one process can see it."""
    with pytest.raises(StorageError, match="no exclusive creation"):
        _open_looking_store()


def _open_looking_store() -> ObjectStore:
    import fsspec

    class Looking(LocalFileSystem):  # type: ignore[misc]  # fsspec has no types
        protocol = "looking"

    fsspec.register_implementation("looking", Looking, clobber=True)
    return StorageContext.default().objects("looking://x")


def test_a_client_that_cannot_connect_names_the_location() -> None:
    """Some connect as soon as they are made."""
    import fsspec

    class Unreachable(LocalFileSystem):  # type: ignore[misc]  # fsspec has no types
        protocol = "unreachable"

        def __init__(self, **options: object) -> None:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    fsspec.register_implementation("unreachable", Unreachable, clobber=True)
    with pytest.raises(StorageError, match="unreachable://host/x: cannot connect to the server: Name or service not"):
        StorageContext.default().backend("unreachable://host/x").files.stat("unreachable://host/x")


def test_an_unknown_scheme_is_named() -> None:
    """A typing error in a URL is reported as one."""
    with pytest.raises(StorageError, match="unknown scheme 's33'"):
        StorageContext.default().objects("s33://bucket/x")
