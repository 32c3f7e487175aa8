"""Collects which blocks the records of a file come from, while it is written."""

from __future__ import annotations

from array import array

from dagflow.api.records import RecordBatch
from dagflow.api.sources import WHOLE, FileSources, block_ids
from operators.files.compression import compression_of_name


class SourceCollector:
    """The sources of one file."""

    def __init__(self) -> None:
        self._ids = array("q")
        self._is_known = True
        self._start = self._end = WHOLE

    def add(self, batch: RecordBatch, first: int, last: int) -> None:
        """Note the blocks of the records [first, last) of a batch, which go to the file.

        The batch may be empty: its blocks were read, and have no records.
        """
        ids = block_ids(batch, first, last) if self._is_known else None
        if ids is None:
            self._is_known = False
        # Batches of one block follow each other; its id is kept once.
        elif len(ids) != 1 or not self._ids or ids[0] != self._ids[-1]:
            self._ids.frombytes(ids.tobytes())

    def end_before(self, batch: RecordBatch, position: int) -> int:
        """Note that a record goes to the next file.

        Returns:
            The offset of the record, where the file has records of the same block; the next file starts there.
        """
        ids = block_ids(batch, position, position + 1) if self._is_known else None
        is_shared = ids is not None and len(self._ids) > 0 and max(self._ids) in ids
        if is_shared and (origin := batch.origin) is not None:
            block = batch.block_of(position)
            offset = int(origin.offsets(len(batch))[position])
            # In compressed files offsets are those in the content.
            if block.start < offset < block.end and compression_of_name(block.url) is None:
                self._end = offset
        return self._end

    def start_at(self, offset: int) -> None:
        """Start at the offset that end_before() has returned for the file before."""
        self._start = offset

    def found(self) -> FileSources | None:
        """The sources; None where they are not known."""
        return FileSources.of(self._ids, self._start, self._end) if self._is_known else None
