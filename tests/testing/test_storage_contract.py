"""The laws of stores hold for those that dagflow knows."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from dagflow.storage.context import StorageContext
from dagflow.testing.storage_contract import StorageContract


class BuiltInContract(StorageContract):
    """A store that needs no options."""

    @pytest.fixture
    def storage(self) -> StorageContext:
        """Reach the store as the environment says."""
        return StorageContext.default()


class TestLocal(BuiltInContract):
    """A directory of this machine."""

    @pytest.fixture
    def root(self, tmp_path: Path) -> str:
        """Return a directory that does not exist."""
        return str(tmp_path / "some" / "where")


class TestMemory(BuiltInContract):
    """A store that fsspec reaches."""

    @pytest.fixture
    def root(self) -> str:
        """Return a new place."""
        return f"memory://{uuid.uuid4().hex}"


class TestS3(BuiltInContract):
    """A bucket on a server of the protocol."""

    @pytest.fixture
    def root(self, s3_root: str) -> str:
        """Return a place in a new bucket."""
        return f"{s3_root}/some/where"
