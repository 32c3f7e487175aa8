"""Which blocks are pre-scanned, and the results that they are given."""

from __future__ import annotations

import bz2
import json
import os
from pathlib import Path

import msgspec
import pytest

from dagflow.errors import CredentialsError, DagflowError
from dagflow.execution.messages import Program, pickled_operator
from dagflow.execution.task import run_prescan
from dagflow.plan.physical import PhysicalPlan
from dagflow.storage.context import StorageContext
from operators import BlockReader
from operators.files.metadata import BlockMetadata, FileVersion
from operators.reader.compression.splitting import CutProgress
from operators.reader.formats import RECORD_FORMATS
from operators.reader.formats.base import PreScanned
from operators.reader.prescan import BlockPreScan, FileEntryState, PreScanState
from tests.operators.reader.test_block_reader import blocks_of
from tests.s3_faults import Fault, faulty_store
from tests.storage.shared import put


def block(start: int, end: int, size_bytes: int = 10, url: str = "a.csv") -> BlockMetadata:
    """A block of a file."""
    return BlockMetadata(0, url, FileVersion(size_bytes), start, end, end == size_bytes)


SCANNED = {"type": "csv", "on_long": "cut"}
"""A row of any length may have begun before a block."""


@pytest.mark.parametrize(("format", "needed"), [(SCANNED, True), ("csv", False), ("lines", False)])
def test_only_blocks_that_others_depend_on_are_scanned(format: str | dict[str, str], needed: bool) -> None:
    """The last block of a file, and so the only one, never is."""
    prescan = BlockPreScan(RECORD_FORMATS.make(format))
    assert prescan.needs_scan(block(0, 5)) is needed
    assert not prescan.needs_scan(block(0, 10))
    assert not prescan.needs_scan("not a block")


def test_state_keeps_only_files_whose_next_block_is_still_to_come() -> None:
    """A restored state goes on where the first one was left; a file that is through leaves nothing."""
    format = RECORD_FORMATS.make(SCANNED)
    assert isinstance(format, PreScanned)
    prescan, restored = BlockPreScan(format), BlockPreScan(format)
    scanned = format.prescan(source := _Quoted(), block(0, 5))
    prescan.resolve([block(0, 5)], [scanned])
    state = prescan.snapshot()
    assert state == PreScanState((FileEntryState("a.csv", FileVersion(10), 1),))
    restored.restore(state)
    assert [each.entry_state for each in restored.resolve([block(5, 10)], [None])] == [1]
    assert restored.snapshot() is None
    assert source.size_bytes == 10


def test_state_is_written_as_data() -> None:
    """Its fields are plain values, from which it is made again."""
    cut = CutProgress(7, 9, ((0, 0), (3, 4)))
    state = PreScanState((FileEntryState("a", FileVersion(1, 2, "x"), 1), FileEntryState("b", FileVersion(3), cut=cut)))
    written = json.loads(json.dumps(msgspec.to_builtins(state)))
    assert msgspec.convert(written, PreScanState) == state


def test_a_cut_that_is_over_needs_no_further_scan() -> None:
    """All that is left of the file belongs to a block already."""
    prescan = BlockPreScan(RECORD_FORMATS.make("lines"))
    prescan.restore(PreScanState((FileEntryState("a.zst", FileVersion(10), cut=CutProgress(place=-1)),)))
    assert not prescan.needs_scan(block(5, 10, url="a.zst"))
    assert prescan.needs_scan(block(0, 5, url="b.zst"))


@pytest.mark.parametrize("is_there", [True, False])
def test_a_task_that_scans_leaves_no_file_open(tmp_path: Path, *, is_there: bool) -> None:
    """A process scans for many windows, and may have a limited number of files open."""
    path = tmp_path / "a.csv"
    path.write_bytes(b'a\n"b\n\nc"d\n')
    blocks = [blocks_of(path, 4)[0], *([] if is_there else [block(0, 5, url=str(tmp_path / "gone.csv"))])]
    reader = pickled_operator("reader", BlockReader(format="csv", on_vanished="fail"))
    results = [*run_prescan(Program("app", PhysicalPlan((), (), ()), {"reader": reader}), "reader", blocks)]
    assert [isinstance(each, DagflowError) for each in results] == [False, True][: len(blocks)]
    opened = [os.path.realpath(each) for each in Path("/proc/self/fd").iterdir()]
    assert str(path) not in opened


@pytest.mark.parametrize(("name", "content"), [("a.csv", b'a\n"b\n\nc"d\n'), ("a.bz2", bz2.compress(b"12"))])
def test_a_scan_with_refused_credentials_decides_nothing(
    s3_server: str, s3_root: str, name: str, content: bytes
) -> None:
    """The block is not taken for one that cannot be read, and left out."""
    url = put(f"{s3_root}/{name}", content)
    with faulty_store(s3_server) as store:
        storage = StorageContext({"s3": {"endpoint_url": store.url, "key": "testing", "secret": "testing"}})
        found = storage.stat(url)
        part = BlockMetadata(0, url, FileVersion(found.size_bytes, found.mtime_ns, found.etag), 0, 8, False)
        store.faults = [Fault("GET", name, 400, "ExpiredToken")]
        prescan = BlockPreScan(RECORD_FORMATS.make("csv"), on_error="skip")
        with pytest.raises(CredentialsError, match="ExpiredToken"):
            prescan.scan(part, storage)


class _Quoted:
    """A file in which a quote is opened in the first half, and closed in the second."""

    size_bytes = 10

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """See ByteSource."""
        piece = b'a\n"b\n\nc"d\n'[offset : offset + len(buffer)]
        buffer[: len(piece)] = piece
        return len(piece)
