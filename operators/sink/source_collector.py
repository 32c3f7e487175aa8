"""Collects which blocks the records of a file come from, while it is written."""

from __future__ import annotations

from dagflow.api.records import RecordBatch
from dagflow.api.sources import WHOLE, FileSources, block_ids
from operators.files.compression import compression_of_name


class SourceCollector:
    """The sources of one file."""

    def __init__(self) -> None:
        self._ids: list[int] = []
        self._is_known = True
        self._start = self._end = WHOLE

    def add(self, batch: RecordBatch, first: int, last: int) -> None:
        """Take note of the records of a batch that the file takes; of none, where it takes note of an empty batch."""
        ids = block_ids(batch, first, last) if self._is_known else None
        if ids is None:
            self._is_known = False
        elif ids != self._ids[-1:]:
            self._ids += ids

    def end_before(self, batch: RecordBatch, position: int) -> int:
        """Take note that a record goes to the next file.

        Returns:
            Its offset where this file has records of its block too; that is where the next file starts.
        """
        ids = block_ids(batch, position, position + 1) if self._is_known else None
        if ids and self._ids and ids[0] == max(self._ids) and (origin := batch.origin) is not None:
            block = batch.block_of(position)
            offset = int(origin.offsets(len(batch))[position])
            # In compressed files offsets are those of the content.
            if block.start < offset < block.end and compression_of_name(block.url) is None:
                self._end = offset
        return self._end

    def start_at(self, offset: int) -> None:
        """Take note of what end_before() of the file before has returned."""
        self._start = offset

    def found(self) -> FileSources | None:
        """The sources; None where they are not known."""
        return FileSources.of(self._ids, self._start, self._end) if self._is_known else None
