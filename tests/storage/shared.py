"""What tests of storage share: a context without options, and looks at a store by other means than dagflow's."""

from __future__ import annotations

import os
from typing import Any

from dagflow.storage.backends.fsspec import FsspecBackend
from dagflow.storage.backends.s3.client import S3Client
from dagflow.storage.context import StorageContext
from dagflow.storage.location import scheme_of
from dagflow.storage.options import StorageOptions
from dagflow.storage.pending import PendingFile, PendingFiles, pending_tag

STORAGE = StorageContext.default()
TAG = pending_tag("app", 1)


def filesystem_of(url: str, options: StorageOptions | None = None) -> tuple[Any, str]:
    """Fsspec's file system of a URL, and the path in it."""
    backend = StorageContext(options or {}).backend(url)
    if isinstance(backend, FsspecBackend):
        return backend.client.locate(url)
    return FsspecBackend(scheme_of(url), options or {}).client.locate(os.path.abspath(url))


def s3_client(options: StorageOptions | None = None) -> S3Client:
    """The client of S3 with these options."""
    return S3Client("s3", options or {})


def pending_of(file: PendingFile) -> PendingFiles:
    """Where a file waits to be published."""
    return STORAGE.backend(file.final_url).pending


def write(url: str, data: bytes, *, tag: str = TAG, checksum: bool = False) -> PendingFile:
    """A pending file with these bytes."""
    writer = STORAGE.open_pending(url, tag=tag, checksum=checksum)
    writer.write(data)
    return writer.close(records=3)


def put(url: str, data: bytes) -> str:
    """Write a file by other means than dagflow's."""
    filesystem, path = filesystem_of(url)
    filesystem.makedirs(path.rpartition("/")[0], exist_ok=True)
    filesystem.pipe_file(path, data)
    return url


def alone() -> None:
    """No other driver has come."""


def publish(file: PendingFile) -> None:
    """Publish a pending file."""
    pending_of(file).publish(file)


def sweep(root: str, **arguments: Any) -> int:
    """Remove what dead drivers left below a root."""
    return STORAGE.backend(root).pending.sweep(root, **arguments)


def content(url: str) -> bytes:
    """The bytes of a file."""
    with STORAGE.open_file(url) as file:
        buffer = bytearray(file.size_bytes)
        file.read_into(0, memoryview(buffer))
    return bytes(buffer)


def everything(root: str) -> set[str]:
    """The names of all files below a root, hidden or not."""
    filesystem, path = filesystem_of(root)
    return {name.removeprefix(path).lstrip("/") for name in filesystem.find(path)}


def unfinished_uploads(root: str) -> list[Any]:
    """The multipart uploads of S3 that are not completed."""
    filesystem, path = filesystem_of(root)
    if "s3" not in filesystem.protocol:
        return []
    found: list[Any] = filesystem.call_s3("list_multipart_uploads", Bucket=path.partition("/")[0]).get("Uploads", [])
    return found
