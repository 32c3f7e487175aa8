"""The reader as an operator: what leaves which port, what is counted, what it notices."""

from __future__ import annotations

import base64
import gzip
import inspect
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from dagflow.api.operator import Operator
from dagflow.errors import MissingError, RecordError, SourceChangedError, StorageError
from dagflow.storage.context import StorageContext
from dagflow.testing.operators import OperatorHarness, run_operator
from operators.files.metadata import BlockMetadata, FileVersion
from operators.reader.block_reader import BlockReader
from operators.reader.compression.stream import CorruptArchiveError


def blocks_of(path: Path, block_size: int) -> list[BlockMetadata]:
    """The blocks of a file as a splitter makes them."""
    found = StorageContext.default().stat(str(path))
    version = FileVersion(found.size_bytes, found.mtime_ns, found.etag)
    size = found.size_bytes
    return [
        BlockMetadata(index, str(path), version, start, min(start + block_size, size), start + block_size >= size)
        for index, start in enumerate(range(0, size, block_size))
    ]


STORAGE = StorageContext.default()
SUMS = {"content_bytes": 9, "record_bytes": 6, "delimiter_bytes": 3}


def test_records_come_in_batches_that_know_block_and_offset(tmp_path: Path) -> None:
    """Every block's records leave with their origin, and the block itself when it is read."""
    path = tmp_path / "a.txt"
    path.write_bytes(b"aa\nbb\ncc\n")
    blocks = blocks_of(path, 4)
    harness = OperatorHarness(BlockReader())
    harness.window({"blocks_metadata_input": blocks})
    assert harness.emitted["messages"] == [b"aa", b"bb", b"cc"]
    assert [batch.offsets().tolist() for batch in harness.batches["messages"]] == [[0, 3], [6], []]
    assert [batch.blocks for batch in harness.batches["messages"]] == [(block,) for block in blocks]
    assert harness.emitted["blocks_metadata_output"] == blocks
    assert harness.counters == {"blocks": 3, "bytes": 9, **SUMS}


def test_rejects_leave_the_errors_port_as_json_lines(tmp_path: Path) -> None:
    """A reject has file, offset, length, reason and bytes; records are emitted as before."""
    path = tmp_path / "a.bin"
    path.write_bytes(b"abcd\xff")
    reader = BlockReader(format={"type": "fixed", "length": 4})
    harness = OperatorHarness(reader, connected=["messages", "errors"])
    harness.window({"blocks_metadata_input": blocks_of(path, 10)})
    assert harness.emitted["messages"] == [b"abcd"]
    [line] = harness.emitted["errors"]
    facts = json.loads(line)
    assert base64.b64decode(facts.pop("raw")) == b"\xff"
    assert facts == {
        "url": str(path),
        "offset": 4,
        "length": 1,
        "reason": "the file ends after 1 of the 4 bytes of a record",
    }
    assert harness.batches["errors"][0].blocks == tuple(blocks_of(path, 10))
    assert (harness.counters["rejected"], harness.counters["rejected_bytes"]) == (1, 1)


def test_a_reject_fails_the_run_if_errors_is_not_connected(tmp_path: Path) -> None:
    """The error has file, offset and cause, and says how to go on."""
    path = tmp_path / "a.bin"
    path.write_bytes(b"abcd\xff")
    harness = OperatorHarness(BlockReader(format={"type": "fixed", "length": 4}), connected=["messages"])
    with pytest.raises(RecordError, match=r"a\.bin offset 4 \(1 bytes\): the file ends .*\n.*add `rejects: DIRECTORY`"):
        harness.window({"blocks_metadata_input": blocks_of(path, 10)})


def test_another_version_of_the_file_is_noticed_when_it_is_opened(tmp_path: Path) -> None:
    """A file that was replaced or removed is not read; where the run shall end for that, the hint says how to go on."""
    path = tmp_path / "a.txt"
    path.write_bytes(b"aa\n")
    blocks = blocks_of(path, 10)
    path.write_bytes(b"bb\ncc\n")
    with pytest.raises(SourceChangedError, match=r"had 3 bytes, now it has 6[\s\S]*set on_vanished: skip"):
        run_operator(BlockReader(on_vanished="fail"), blocks, port="blocks_metadata_input")
    path.unlink()
    with pytest.raises(MissingError, match=r"a\.txt[\s\S]*set on_vanished: skip"):
        run_operator(BlockReader(on_vanished="fail"), blocks, port="blocks_metadata_input")
    assert run_operator(BlockReader(), blocks, port="blocks_metadata_input")["messages"] == []


def test_a_change_while_a_block_is_read_is_noticed_at_its_end(tmp_path: Path) -> None:
    """The block does not count as read."""
    path = tmp_path / "a.txt"
    path.write_bytes(b"aa\nbb\n")
    [block] = blocks_of(path, 10)
    reader = BlockReader(on_vanished="fail")
    done: list[BlockMetadata] = []
    reader.messages.connect(lambda batch: os.utime(path, ns=(1, 1)))
    reader.blocks_metadata_output.connect(done.append)
    with pytest.raises(SourceChangedError, match="it changed while it was read"):
        list(reader.read(block))
    assert done == []


def test_a_prescan_gives_each_block_the_state_it_begins_in(tmp_path: Path) -> None:
    """States are kept from one window to the next, also over a restart."""
    path = tmp_path / "a.csv"
    path.write_bytes(b'a\n"x\ny\nz"\nb\n')
    blocks = blocks_of(path, 3)
    reader = BlockReader(format={"type": "csv", "on_long": "cut"})
    prescan, restarted = reader.prescan(), reader.prescan()
    results = [prescan.scan(block, STORAGE) if prescan.needs_scan(block) else None for block in blocks]
    assert results[-1] is None
    first = prescan.resolve(blocks[:2], results[:2])
    restarted.restore(prescan.snapshot())  # type: ignore[arg-type]  # a file is left
    resolved = first + restarted.resolve(blocks[2:], results[2:])
    assert [block.entry_state for block in resolved] == [0, 1, 1, 0]
    assert restarted.snapshot() is None
    emitted = run_operator(reader, resolved, port="blocks_metadata_input")
    assert emitted["messages"] == [{"a": "x\ny\nz"}, {"a": "b"}]


@pytest.mark.parametrize("block_size", [1, 3, 5])
def test_a_reader_finds_by_itself_how_blocks_of_rows_begin(tmp_path: Path, block_size: int) -> None:
    """None of them is looked at before its window is planned, where rows are no longer than a limit."""
    path = tmp_path / "a.csv"
    path.write_bytes(b'a\n"x\ny\nz"\nb\n""\n')
    reader, blocks = BlockReader(format="csv"), blocks_of(path, block_size)
    prescan = reader.prescan()
    assert not any(map(prescan.needs_scan, blocks))
    resolved = prescan.resolve(blocks, [None] * len(blocks))
    assert prescan.snapshot() is None
    emitted = run_operator(reader, resolved, port="blocks_metadata_input")
    assert emitted["messages"] == [{"a": "x\ny\nz"}, {"a": "b"}, {"a": ""}]


def test_a_prescan_leaves_a_missing_file_to_the_reader(tmp_path: Path) -> None:
    """The reader decides, when it reads the block, whether the run goes on without the file."""
    path = tmp_path / "a.csv"
    path.write_bytes(b'a\n"b\nc"\n')
    block = blocks_of(path, 4)[0]
    path.unlink()
    with pytest.raises(MissingError, match=r"a\.csv"):
        BlockReader(format="csv", on_vanished="fail").prescan().scan(block, STORAGE)
    reader = BlockReader(format={"type": "csv", "on_long": "cut"})
    prescan = reader.prescan()
    assert prescan.needs_scan(block)
    assert prescan.resolve([block], [prescan.scan(block, STORAGE)]) == [block]
    harness = OperatorHarness(reader)
    harness.window({"blocks_metadata_input": [block]})
    assert harness.emitted["messages"] == []
    assert harness.counters["vanished"] == 1


def test_what_cannot_be_read_from_the_middle_on_is_read_as_a_whole(tmp_path: Path) -> None:
    """A file that is one record is a new record when something was appended to it."""
    path = tmp_path / "a"
    path.write_bytes(b"one, and two")
    tail = replace(blocks_of(path, 100)[0], start=3).continued(resumes=True)
    harness = OperatorHarness(BlockReader(format="whole_file"))
    harness.window({"blocks_metadata_input": [tail]})
    assert harness.emitted["messages"] == [b"one, and two"]


def test_blocks_behind_one_that_was_not_scanned_are_read_if_they_are_back(tmp_path: Path) -> None:
    """Where their records begin is found by a scan of all that lies before them."""
    path = tmp_path / "a.csv"
    path.write_bytes(b'a\n"b\nc"\n"d\ne"\n')
    blocks = blocks_of(path, 4)
    away = path.rename(tmp_path / "away")
    reader = BlockReader(format="csv")
    unread = reader.prescan().scan(blocks[0], STORAGE)
    away.rename(path)
    prescan = reader.prescan()
    found = [unread, *(prescan.scan(block, STORAGE) if prescan.needs_scan(block) else None for block in blocks[1:])]
    harness = OperatorHarness(reader)
    harness.window({"blocks_metadata_input": prescan.resolve(blocks, found)})
    assert harness.emitted["messages"] == [{"a": "b\nc"}, {"a": "d\ne"}]
    assert prescan.snapshot() is None


def test_a_prescan_leaves_a_forbidden_file_to_the_reader(tmp_path: Path) -> None:
    """The reader decides what becomes of a file that may not be read, as of a missing one."""
    path = tmp_path / "a.csv"
    path.write_bytes(b'a\n"b\nc"\n')
    block = blocks_of(path, 4)[0]
    path.chmod(0)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        with pytest.raises(StorageError, match="denied"):
            BlockReader(format="csv").prescan().scan(block, STORAGE)
        prescan = BlockReader(format="csv", on_error="skip").prescan()
        assert prescan.resolve([block], [prescan.scan(block, STORAGE)]) == [block]
    finally:
        os.seteuid(user)


def test_a_damaged_archive_is_left_out_before_any_of_it_is_given(tmp_path: Path) -> None:
    """The damage shows at the end of the file, after its records would have been emitted."""
    path = tmp_path / "a.gz"
    compressed = gzip.compress(b"line\n" * 1000)
    path.write_bytes(compressed[:-8] + bytes(8))
    blocks = blocks_of(path, 1 << 20)
    harness = OperatorHarness(BlockReader(on_error="skip"))
    harness.window({"blocks_metadata_input": blocks})
    assert harness.emitted == {"blocks_metadata_output": [], "messages": [], "errors": []}
    assert harness.counters == {"skipped": 1, "skipped_bytes": len(compressed), "left_out_bytes": len(compressed)}
    with pytest.raises(CorruptArchiveError, match="on_error: skip"):
        OperatorHarness(BlockReader()).window({"blocks_metadata_input": blocks})


def test_blocks_of_formats_without_prescan_are_unchanged() -> None:
    """Blocks of a format without pre-scan are returned unchanged."""
    block = BlockMetadata(7, "x", FileVersion(10), 5, 8, False)
    prescan = BlockReader().prescan()
    assert not prescan.needs_scan(block)
    assert prescan.resolve([block], [None])[0] is block


def test_blocks_before_an_offset_are_not_read(tmp_path: Path) -> None:
    """The first block of a compressed file has all of its records, whatever its name."""
    (plain := tmp_path / "plain").write_bytes(b"aa\n" * 8)
    (packed := tmp_path / "packed").write_bytes(gzip.compress(b"aa\n" * 800))
    (first, second) = blocks_of(plain, 12)
    whole = blocks_of(packed, 1000)
    found = BlockReader().seek([first, second, *whole], 12, StorageContext.default())
    assert found == [second, *whole]


def test_block_reader_has_under_ten_methods_of_its_own() -> None:
    """Beside those of every operator: its roles are objects that it gives out, or declared by one method or two."""
    own = [name for name in dir(BlockReader) if name[0] != "_" and not hasattr(Operator, name)]
    methods = {name for name in own if inspect.isfunction(getattr(BlockReader, name))}
    assert methods == {
        *("columns_at", "read", "prefetch", "prescan", "seek"),
        *("check_arriving", "process_stats", "define_partitions", "retry_batch"),
    }
