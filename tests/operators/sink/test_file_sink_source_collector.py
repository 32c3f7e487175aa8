"""Which blocks the records of a file come from."""

from __future__ import annotations

import pytest

from dagflow.api.records import Origin, RecordBatch
from dagflow.api.sources import FileSources
from operators.files.metadata import BlockMetadata, FileVersion
from operators.sink import file_sink
from operators.sink.file_sink import SourceCollector


def records_of(*block_ids: int) -> RecordBatch:
    """A record whose origin names these blocks."""
    blocks = [BlockMetadata(block_id, "in", FileVersion(100), 0, 100, True) for block_id in block_ids]
    return RecordBatch.from_records([b"a"], origin=Origin(tuple(blocks)))


def test_records_of_no_block_add_none() -> None:
    """An author's operator may name no blocks; also for a record that begins the next file."""
    collector = SourceCollector()
    for batch in (records_of(), records_of(7), records_of(), records_of(7), records_of(8)):
        collector.add(batch, 0, 1)
        collector.end_before(records_of(), 0)
    found = collector.found()
    assert found is not None
    assert found.ids() == [7, 8]


class CountingCollector(SourceCollector):
    """Counts how often the blocks are added up."""

    sums = 0

    def found(self) -> FileSources | None:
        self.sums += 1
        return super().found()


def test_blocks_of_many_small_files_are_seldom_added_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each batch would otherwise take as long as all blocks of its file before."""
    monkeypatch.setattr(file_sink, "_MOST_RUNS", 8)
    collector = CountingCollector()
    for block_id in range(1000):
        collector.add(records_of(block_id), 0, 1)
    assert collector.sums <= 8
    found = collector.found()
    assert found is not None
    assert (found.runs, set(found.counts)) == ((0, 1000), {1})
