"""Blocks of which only the refused records are read again."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dagflow.api.ports import TupleBatch
from dagflow.api.refused_records import RefusedRecords
from dagflow.api.saved_values import RowTable, require_fields
from operators.files.metadata import BlockMetadata


@dataclass(frozen=True, slots=True, eq=False)
class RefusedBlocks(TupleBatch):
    """Refused records, with the blocks in which they lie.

    Attributes:
        records: Their refused records, block by block, each block's in the order of their offsets.
        is_tried: Which of them are read again.
    """

    blocks: tuple[BlockMetadata, ...]
    records: RefusedRecords
    is_tried: npt.NDArray[np.bool_]

    kind: ClassVar[type] = BlockMetadata

    @classmethod
    def of(
        cls,
        blocks: Mapping[int, BlockMetadata],
        refused: RefusedRecords,
        is_tried: npt.NDArray[np.bool_],
        first_id: int,
        *,
        in_one_pass: bool,
    ) -> RefusedBlocks:
        """Match the refused records of a window with their blocks.

        Args:
            blocks: The blocks of that window in which they lie, by id.
            refused: The records.
            is_tried: Which of them are read again.
            first_id: Id of the first block; the others follow without a gap.
            in_one_pass: Whether a file is read from its first refused record to its last one, because a scan of all
                bytes before a block is needed to find the state in which it begins.
        """
        ids, offsets = refused.numbers("block_id"), refused.numbers("offset")
        ends = offsets + refused.numbers("length")
        reached: dict[int, int] = {}
        for block_id, end in zip(ids.tolist(), ends.tolist(), strict=True):
            reached[block_id] = max(end, reached.get(block_id, 0))
        merged: list[BlockMetadata] = []
        place: dict[int, int] = {}
        for block_id in sorted(
            reached, key=lambda block_id: (blocks[block_id].url, blocks[block_id].version.mtime_ns, block_id)
        ):
            block = _reaching(blocks[block_id], reached[block_id])
            last = merged[-1] if merged else None
            if in_one_pass and last is not None and (last.url, last.version) == (block.url, block.version):
                merged[-1] = replace(last, end=max(last.end, block.end), is_last=last.is_last or block.is_last)
            else:
                merged.append(replace(block, block_id=first_id + len(merged), previous_block_id=-1))
            place[block_id] = merged[-1].block_id
        own_ids = np.array([place[block_id] for block_id in ids.tolist()], np.int64)
        order = np.lexsort((offsets, own_ids))
        return cls(tuple(merged), refused.with_blocks(own_ids).take(order), is_tried[order])

    @property
    def weights(self) -> npt.NDArray[np.int64]:
        return np.array([block.size_bytes for block in self.blocks], np.int64)

    def of_block(self, index: int) -> tuple[BlockMetadata, RefusedRecords, npt.NDArray[np.bool_]]:
        """A block, its refused records, and which of them are read again."""
        start, end = self._rows(index, index + 1)
        return self.blocks[index], self.records.slice(start, end), self.is_tried[start:end]

    def slice(self, start: int, end: int) -> RefusedBlocks:
        first, last = self._rows(start, end)
        return RefusedBlocks(self.blocks[start:end], self.records.slice(first, last), self.is_tried[first:last])

    def _rows(self, start: int, end: int) -> tuple[int, int]:
        if start == end:
            return 0, 0
        ids = self.records.numbers("block_id")
        first, last = self.blocks[start].block_id, self.blocks[end - 1].block_id
        return int(np.searchsorted(ids, first, side="left")), int(np.searchsorted(ids, last, side="right"))

    def __iter__(self) -> Iterator[BlockMetadata]:
        return iter(self.blocks)

    def to_json(self) -> dict[str, Any]:
        return {
            "blocks": asdict(BlockMetadata.to_table(self.blocks)),
            "records": base64.b64encode(self.records.to_bytes()).decode(),
            "is_tried": base64.b64encode(np.packbits(self.is_tried).tobytes()).decode(),
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> RefusedBlocks:
        require_fields(cls, value, ("blocks", "records", "is_tried"))
        records = RefusedRecords.from_bytes(base64.b64decode(value["records"]))
        bits = np.unpackbits(np.frombuffer(base64.b64decode(value["is_tried"]), np.uint8), count=len(records))
        return cls(tuple(BlockMetadata.from_table(RowTable(**value["blocks"]))), records, bits.astype(bool))


def _reaching(block: BlockMetadata, end: int) -> BlockMetadata:
    """A block that is extended over its refused records: where a head is wrong, that is the rest of the file."""
    size = block.version.size_bytes
    if end <= block.end or block.continuation.decompressed is not None or block.end >= size:
        return block
    return replace(block, end=min(end, size), is_last=end >= size)
