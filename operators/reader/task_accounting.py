"""Byte accounting and rejects of what one task reads, in the terms of the run."""

from __future__ import annotations

from collections.abc import Iterator

from dagflow.api.context import OperatorContext
from dagflow.api.records import LINE_FEED, Origin, RecordBatch
from dagflow.metrics.names import CONTENT_BYTES
from dagflow.storage.location import name_of
from operators.files.metadata import BlockMetadata
from operators.reader.byte_accounting import BlockAccounting


class TaskAccounting:
    """Makes the accounting of each block, holds its rejects, and books the sums of a file into the run's.

    Args:
        context: Of the task.
        adds_up: Whether each byte of a file is accounted for exactly once, so that the run can check it.
    """

    def __init__(self, context: OperatorContext, adds_up: bool) -> None:
        self._context = context
        self._adds_up = adds_up
        self._takes_rejects = "errors" in context.connected
        self._rejects: dict[BlockMetadata, list[bytes]] = {}
        self._blocks: list[BlockAccounting] = []

    def of(self, block: BlockMetadata) -> BlockAccounting:
        """The accounting of a block, which counts until the next booking."""
        listener = self._rejects.setdefault(block, []).append if self._takes_rejects else None
        self._blocks.append(BlockAccounting(block.url, self._context.counters, listener))
        return self._blocks[-1]

    def take_rejects(self) -> Iterator[RecordBatch]:
        """What was refused since the last call, one batch per block."""
        for block, rejects in self._rejects.items():
            if rejects:
                yield RecordBatch.from_records(rejects, LINE_FEED, Origin((block,)))
                rejects.clear()
        if not self._blocks:
            self._rejects.clear()

    @property
    def waiting_urls(self) -> set[str]:
        """Files at whose ends bytes wait for a later version."""
        return {block.url for block in self._blocks if block.waiting_bytes}

    @property
    def left_out_urls(self) -> set[str]:
        """Files that are in no output."""
        return {block.url for block in self._blocks if block.is_left_out}

    def book(self, key: str) -> None:
        """Book what was due, less what was covered, under the name of a file version or of many small files."""
        context = self._context
        context.counters[CONTENT_BYTES] += sum(block.due for block in self._blocks)
        if self._adds_up:
            context.accounting[key] += sum(block.due - block.covered for block in self._blocks)
        context.accounting[f"records of {key}"] += sum(block.lost for block in self._blocks)
        self._blocks.clear()

    def discard(self) -> None:
        """Forget the blocks of a read that was not finished."""
        self._rejects.clear()
        self._blocks.clear()


def accounting_key(block: BlockMetadata) -> str:
    """The name of a file version in the run's byte accounting."""
    # Not its path: a tree may be moved before the rest of the file is read. Two files that share a name, and all
    # else, share a sum, which must come to zero too.
    version = block.version
    return f"{name_of(block.url)} of {version.size_bytes} bytes, {version.mtime_ns} {version.etag}".rstrip()
