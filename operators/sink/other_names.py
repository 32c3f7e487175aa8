"""Source files that are gone from where they were read, and lie beside it under other names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from dagflow.errors import StorageError
from dagflow.storage.context import StorageContext
from dagflow.storage.file_stat import FileStat
from dagflow.storage.location import parent
from operators.files.metadata import BlockMetadata
from operators.files.small_file_batch import SmallFileBatch


class OtherNames:
    """Finds versions that are gone from their URLs under other names in their directories; each is listed once.

    Args:
        storage: Reaches the files.
        reports: What was read, by window: no other files are looked for.
    """

    def __init__(
        self, storage: StorageContext, reports: Mapping[int, Sequence[BlockMetadata | SmallFileBatch]]
    ) -> None:
        self._storage = storage
        self._reports = reports
        self._names: dict[str, Mapping[int, str]] = {}

    def has(self, block: BlockMetadata, *, has_grown: bool) -> bool:
        """Whether a block's version is there under another name.

        Args:
            block: The block.
            has_grown: Whether it counts only where it was appended to. A version that is as it was may be what a link
                leads to that was removed, or have another name for other reasons.
        """
        if not block.version.file_id:
            return False
        backend, directory = self._storage.backend(block.url), parent(block.url)
        if directory not in self._names:
            self._names[directory] = backend.sources.names_of(directory, self._wanted)
        name = self._names[directory].get(block.version.file_id)
        if name is None:
            return False
        try:
            # The number of a file that was removed may be that of a new one by now.
            backend.files.require_version(replace(stat_of(block), url=name, fingerprint=block.fingerprint))
            return not has_grown or backend.files.stat(name).size_bytes > block.version.size_bytes
        except StorageError:
            return False

    @cached_property
    def _wanted(self) -> frozenset[int]:
        blocks = (block for reports in self._reports.values() for report in reports for block in blocks_of(report))
        return frozenset(block.version.file_id for block in blocks)


def blocks_of(report: BlockMetadata | SmallFileBatch) -> Iterator[BlockMetadata]:
    """What was read; of a small-file batch its empty files too."""
    return map(report.block, range(len(report))) if isinstance(report, SmallFileBatch) else iter((report,))


def stat_of(block: BlockMetadata) -> FileStat:
    """The version of a block as a look at it would find it."""
    version = block.version
    return FileStat(block.url, version.size_bytes, version.mtime_ns, version.etag, file_id=version.file_id)
