"""Source files that are gone from where they were read, and are beside it under other names."""

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
        reports: Reports by window: no other files are looked for.
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
            has_grown: Whether it counts only if it was appended to. An unchanged version may be the target of a link
                that was removed, or have another name for other reasons.
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
            # The inode number of a removed file may be that of a new one now.
            backend.files.require_version(replace(stat_of(block), url=name, fingerprint=block.fingerprint))
            return not has_grown or backend.files.stat(name).size_bytes > block.version.size_bytes
        except StorageError:
            return False

    @cached_property
    def _wanted(self) -> frozenset[int]:
        blocks = (block for reports in self._reports.values() for report in reports for block in blocks_of(report))
        return frozenset(block.version.file_id for block in blocks)


def blocks_of(report: BlockMetadata | SmallFileBatch) -> Iterator[BlockMetadata]:
    """The blocks of reports, including those of empty files in small-file batches."""
    return map(report.block, range(len(report))) if isinstance(report, SmallFileBatch) else iter((report,))


def stat_of(block: BlockMetadata) -> FileStat:
    """The version of the block, as a listing would give it."""
    version = block.version
    return FileStat(block.url, version.size_bytes, version.mtime_ns, version.etag, file_id=version.file_id)
