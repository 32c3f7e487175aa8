"""Each kind of store that comes with dagflow keeps the laws of all."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

from dagflow.testing.storage_contract import StorageContract
from tests.hdfs_cluster import hdfs, hdfs_root
from tests.storage.shared import unfinished_uploads

__all__ = ["hdfs", "hdfs_root"]


class TestLocal(StorageContract):
    """A local disk."""

    @pytest.fixture
    def root(self, tmp_path: Path) -> str:
        """A directory that does not exist yet."""
        return str(tmp_path / "root")


class TestMemory(StorageContract):
    """A store that only fsspec knows."""

    @pytest.fixture
    def root(self) -> str:
        """A name that no other test has."""
        return f"memory://{uuid.uuid4().hex}"


class TestS3(StorageContract):
    """A server that speaks S3's protocol."""

    shows_owners = False

    @pytest.fixture
    def root(self, s3_root: str) -> str:
        """A prefix in a bucket of this test's own."""
        return f"{s3_root}/some/where"

    def uploads(self, root: str) -> list[Any]:
        """Multipart uploads that are not completed."""
        return unfinished_uploads(root)


@pytest.mark.hdfs
class TestHdfs(StorageContract):
    """A real HDFS."""

    @pytest.fixture
    def root(self, hdfs_root: str) -> str:
        """A directory that does not exist yet."""
        return f"{hdfs_root}/some/where"
