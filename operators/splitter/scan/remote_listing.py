"""Lists object stores and other remote file systems, whose listings have the versions as well."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

from dagflow.errors import MissingError
from dagflow.storage.context import StorageContext
from dagflow.storage.location import redacted
from operators.splitter.scan.listed_stats import DIRECTORY, ListedStat, ListedStats
from operators.splitter.scan.listing import ENTRIES_AT_ONCE, Entries, Kind, Lister

logger = logging.getLogger(__name__)


class RemoteLister(Lister):
    """Lists stores that the storage layer reaches by URL.

    Args:
        storage: Reaches the stores.
    """

    def __init__(self, storage: StorageContext) -> None:
        self._storage = storage

    def entries(self, directory: bytes) -> Iterator[Entries]:
        """See Lister."""
        names, stats = [], []
        # If the key ends in several slashes, the others are part of the name: in S3 a key may have an empty part.
        is_store = directory.endswith(b"://")
        url = self.url(directory if is_store else directory.removesuffix(b"/"))
        for found in self._storage.list_directory(url):
            name = os.fsencode(found.url.rpartition("/")[2])
            names.append(name + b"/" if found.is_directory else name)
            stats.append(DIRECTORY if found.is_directory else ListedStat(found.size_bytes, found.mtime_ns, found.etag))
            if len(names) >= ENTRIES_AT_ONCE:
                yield Entries(names, ListedStats.of(stats))
                names, stats = [], []
        yield Entries(names, ListedStats.of(stats))

    def stat(self, path: bytes) -> ListedStat | None:
        """See Lister."""
        try:
            found = self._storage.stat(self.url(path))
        except MissingError:
            logger.warning("gone, left out url=%s", redacted(self.url(path)))
            return None
        return None if found.is_directory else ListedStat(found.size_bytes, found.mtime_ns, found.etag)

    def kind(self, path: bytes) -> Kind | None:
        """See Lister."""
        try:
            return "directory" if self._storage.stat(self.url(path)).is_directory else "file"
        except MissingError:
            return None

    def is_also_directory(self, path: bytes) -> bool:
        """See Lister."""
        return self._storage.is_also_directory(self.url(path))

    def identity(self, directory: bytes) -> object:
        """The directory's own name: object stores have no links."""
        return directory
