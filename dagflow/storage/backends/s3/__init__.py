"""S3 and stores with its protocol: conditional writes, multipart uploads, reads of one version."""

from __future__ import annotations

from typing_extensions import override

from dagflow.storage.backends.fsspec import FsspecBackend
from dagflow.storage.backends.s3.client import S3Client
from dagflow.storage.backends.s3.files import S3Files
from dagflow.storage.backends.s3.objects import S3ObjectStore
from dagflow.storage.backends.s3.pending import S3PendingFiles
from dagflow.storage.roots import Roots


class S3Backend(FsspecBackend):
    """S3, by s3fs and, for small objects, obstore."""

    client: S3Client
    client_class = S3Client
    files_class = S3Files
    pending_class = S3PendingFiles

    @override
    def object_store_options(self, url: str) -> dict[str, str]:
        return self.client.object_store_options(url)

    @override
    def objects(self, url: str, roots: Roots) -> S3ObjectStore:
        return S3ObjectStore(self.client, url, roots)


__all__ = ["S3Backend"]
