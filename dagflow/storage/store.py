"""Former names; go when every caller has a StorageContext."""

from __future__ import annotations

from dagflow.storage.context import StorageContext
from dagflow.storage.objects import ObjectStore

Store = ObjectStore


def open_store(url: str) -> ObjectStore:
    """See StorageContext.objects."""
    return StorageContext.default().objects(url)
