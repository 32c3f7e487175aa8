"""The store of a visitor keeps the laws of all stores."""

from __future__ import annotations

import uuid

import pytest

from dagflow.storage.context import StorageContext
from dagflow.testing.storage import StorageContract


class TestShelf(StorageContract):
    """Keeps files in a dictionary."""

    storage = StorageContext({"shelf": {"backend": "tests.visitors.shelf_store.Shelf"}})

    @pytest.fixture
    def root(self) -> str:
        """A new shelf."""
        return f"shelf://{uuid.uuid4().hex}"
