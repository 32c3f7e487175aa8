"""Compressed files that are cut give what the plain ones give, whatever the cuts, and whatever looks like a unit."""

from __future__ import annotations

import bz2
import gzip
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from backports import zstd
from hypothesis import given, settings
from hypothesis import strategies as st

from dagflow.engine.run import run
from dagflow.plan.logical import LogicalPlan, OperatorNode
from dagflow.runtime.local import InlineRuntime
from dagflow.spec.app_spec import Attributes
from operators.files.compression import COMPRESSION_BY_NAME, COMPRESSIONS, CUT_SUFFIXES, stays_whole
from operators.files.metadata import BlockMetadata, FileVersion
from operators.reader.block_reader import BlockReader
from operators.reader.compression.splitting import CutProgress, assign_range, chains_of
from operators.reader.compression.stream import CorruptArchiveError
from operators.reader.content import ContentReader, block_content
from operators.reader.formats import RECORD_FORMATS
from operators.reader.formats.base import ByteAccounting
from operators.sink.record_writer import RecordWriter
from operators.splitter.splitter import FileSplitterInput
from operators.testing import MemorySource
from tests.engine.sample_app import edge
from tests.nightly import by_day, cuts, examples

Records = list[tuple[int, bytes]]


def bgzf(data: bytes) -> bytes:
    """One member whose header holds its length, as bgzip writes it."""
    packer = zlib.compressobj(wbits=-15)
    body = packer.compress(data) + packer.flush()
    extra = b"\6\0BC\2\0" + (18 + len(body) + 8 - 1).to_bytes(2, "little")
    trailer = zlib.crc32(data).to_bytes(4, "little") + len(data).to_bytes(4, "little")
    return b"\x1f\x8b\x08\4\0\0\0\0\0\xff" + extra + body + trailer


def stored(data: bytes) -> bytes:
    """A gzip member in which the data lie as they are."""
    return gzip.compress(data, 0)


def skippable(data: bytes) -> bytes:
    """A frame that holds nothing for the reader."""
    return b"\x53\x2a\x4d\x18" + len(data).to_bytes(4, "little") + data


def streamed(data: bytes) -> bytes:
    """A zstd frame whose header does not say how much it holds."""
    packer = zstd.ZstdCompressor(options={zstd.CompressionParameter.checksum_flag: 1})
    return bytes(packer.compress(data) + packer.flush())


COMPRESS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "members": ("gzip", gzip.compress),
    "stored members": ("gzip", stored),
    "BGZF": ("gzip", bgzf),
    "bzip2": ("bzip2", bz2.compress),
    "frames": ("zstd", zstd.compress),
    "frames of unknown size": ("zstd", streamed),
    "frames with others between": ("zstd", lambda data: skippable(b"note") + zstd.compress(data)),
}
FORMATS: list[Any] = [
    "lines",
    {"type": "lines", "delimiter": "||"},
    {"type": "escaped_lines", "escape": "\\"},
    {"type": "regex", "pattern": "^a"},
    {"type": "lines", "skip_header": 1},
    "paragraphs",
]
URL = {compression.name: f"x{compression.suffixes[0]}" for compression in COMPRESSIONS}


def read_cut(codec_name: str, compressed: bytes, block_size: int, format: Any, look_back_bytes: int = 1) -> Records:
    """Offset and bytes of every record of a file that is cut at multiples of block_size."""
    compression, made, source, url = (
        COMPRESSION_BY_NAME[codec_name],
        RECORD_FORMATS.make(format),
        MemorySource(compressed),
        URL[codec_name],
    )
    records: Records = []
    progress, due = CutProgress(), 0
    for start in range(0, len(compressed), block_size):
        end = min(start + block_size, len(compressed))
        block = BlockMetadata(1, url, FileVersion(len(compressed)), start, end, end == len(compressed))
        chains = None if progress.is_over else chains_of(source, block, compression, look_back_bytes)
        block, progress = assign_range(block, chains, progress, look_back_bytes)
        accounting = ByteAccounting(url, Counter(), None)
        content, seen, *_ = block_content(source, block, "auto", made)
        for batch in ContentReader(made, "none").read(content, seen, accounting):
            accounting.count(batch)
            records += zip(batch.offsets().tolist(), batch.to_pylist(), strict=True)
        due += accounting.due - accounting.covered
    assert due == 0, "bytes that are in no accounting"
    return records


def read_plain(content: bytes, format: Any) -> Records:
    """Offset and bytes of every record of a file that is not compressed."""
    made = RECORD_FORMATS.make(format)
    records: Records = []
    block = BlockMetadata(1, "x", FileVersion(len(content)), 0, len(content), True)
    for batch in made.read(MemorySource(content), block, ByteAccounting("x", Counter(), None)):
        records += zip(batch.offsets().tolist(), batch.to_pylist(), strict=True)
    return records


def shares(codec_name: str, compressed: bytes, block_size: int) -> list[int]:
    """How many bytes each block that has any has; -1 for all that are left."""
    compression, source, progress, found = COMPRESSION_BY_NAME[codec_name], MemorySource(compressed), CutProgress(), []
    for start in range(0, len(compressed), block_size):
        end = min(start + block_size, len(compressed))
        block = BlockMetadata(1, URL[codec_name], FileVersion(len(compressed)), start, end, end == len(compressed))
        block, progress = assign_range(block, chains_of(source, block, compression), progress)
        assert block.continuation.decompressed is not None
        if block.continuation.decompressed.exit < 0 <= block.continuation.decompressed.entry:
            found.append(-1)
        elif block.continuation.decompressed.end > block.continuation.decompressed.start:
            found.append(block.continuation.decompressed.end - block.continuation.decompressed.start)
    return found


@pytest.mark.parametrize("kind", COMPRESS)
@settings(max_examples=examples(40))
@given(
    pieces=st.lists(st.text("a,\n\\|\rb ", max_size=12).map(str.encode), max_size=5),
    format=st.sampled_from(FORMATS),
    data=st.data(),
)
def test_whatever_the_cuts_the_records_are_those_of_the_plain_file(
    kind: str, pieces: list[bytes], format: Any, data: st.DataObject
) -> None:
    """Also where units hold nothing, and records and delimiters begin in one unit and end in another."""
    compression, compress = COMPRESS[kind]
    compressed = b"".join(map(compress, pieces))
    block_size = data.draw(st.integers(1, len(compressed) + 1))
    look_back = data.draw(st.sampled_from([1, 5, 1000]))
    assert read_cut(compression, compressed, block_size, format, look_back) == read_plain(b"".join(pieces), format)


@pytest.mark.parametrize("kind", by_day(3, COMPRESS))
def test_every_block_size_gives_the_same_records(kind: str) -> None:
    """A unit belongs to the block in which it begins; where each has its own, none is left to another."""
    compression, compress = COMPRESS[kind]
    pieces = [b"one\ntw", b"o\nthr", b"ee\n", b"four\nfi", b"ve"]
    compressed = b"".join(map(compress, pieces))
    expected = read_plain(b"".join(pieces), "lines")
    for block_size in cuts(len(compressed)):
        assert read_cut(compression, compressed, block_size, "lines") == expected, block_size
    assert shares(compression, compressed, 1) == [len(piece) for piece in pieces]


def test_a_single_stream_of_bzip2_belongs_to_one_block() -> None:
    """Its own blocks begin at any bit, and are no units."""
    content = b"".join(b"%d %d\n" % (number, number * number % 7919) for number in range(20_000))
    compressed = bz2.compress(content, 1)
    assert shares("bzip2", compressed, 10_000) == [len(content)]
    assert read_cut("bzip2", compressed, 10_000, "lines", 1000) == read_plain(content, "lines")


def test_data_that_look_like_units_are_no_cut() -> None:
    """Archives that lie in archives as they are, and magic numbers, are data."""
    inner = b"".join(gzip.compress(b"inner %d\n" % number) for number in range(4))
    frames = b"".join(zstd.compress(b"inner %d\n" % number) for number in range(4))
    magics = b"\x28\xb5\x2f\xfd\n\x1f\x8b\x08\0\n" + b"\x50\x2a\x4d\x18\1\0\0\0a"
    for compression, compress in (("gzip", stored), ("gzip", gzip.compress), ("zstd", zstd.compress)):
        contents = [b"first\n" + inner + b"\n", magics + frames, inner + frames, b"last\n"]
        compressed = b"".join(map(compress, contents))
        expected = read_plain(b"".join(contents), "lines")
        for block_size in cuts(len(compressed) - 1)[::3]:
            assert read_cut(compression, compressed, block_size, "lines") == expected, (compression, block_size)


@pytest.mark.parametrize("kind", COMPRESS)
def test_damage_in_the_middle_is_an_error_with_its_place(kind: str) -> None:
    """The rest of the file belongs to the block with the damage, and reading that block reports the place."""
    compression, compress = COMPRESS[kind]
    units = [compress(b"line %d\n" % number * 9) for number in range(6)]
    before, compressed = sum(map(len, units[:3])), b"".join(units)
    # The checksum of what is compressed, or the content where the format leaves a checksum to choice.
    for place in {"zstd": (0, 1), "gzip": (0, len(units[3]) - 6), "bzip2": (0, 12)}[compression]:
        if kind == "frames with others between" and place == 1:
            continue
        at = before + place
        damaged = compressed[:at] + bytes([compressed[at] ^ 0xFF]) + compressed[at + 1 :]
        for block_size in (1, 20, len(units[0]), len(compressed) // 2):
            with pytest.raises(CorruptArchiveError, match=f"cannot be read as {compression}") as caught:
                read_cut(compression, damaged, block_size, "lines")
            assert before <= caught.value.offset <= len(compressed)


@pytest.mark.parametrize("kind", [kind for kind in COMPRESS if kind != "stored members"])
def test_a_file_that_was_cut_short_is_an_error_at_every_length(kind: str) -> None:
    """A file that was cut between two units is a shorter file."""
    compression, compress = COMPRESS[kind]
    units = [compress(b"one\n"), compress(b"two\n")]
    compressed = b"".join(units)
    for length in range(len(units[0]) + 1, len(compressed)):
        if kind == "frames with others between" and length == len(units[0]) + 12:
            continue  # behind the frame that holds nothing
        with pytest.raises(CorruptArchiveError, match=f"cannot be read as {compression}"):
            read_cut(compression, compressed[:length], 7, "lines")


def test_a_header_that_states_a_wrong_length_is_an_error() -> None:
    """A pre-scan goes by the headers of BGZF, and reading checks them."""
    member = bgzf(b"one\ntwo\n")
    lying = member[:-4] + (3).to_bytes(4, "little")
    with pytest.raises(CorruptArchiveError, match="cannot be read as gzip"):
        read_cut("gzip", lying + member, len(member), "lines")


@pytest.mark.parametrize(("compression", "compress"), [("gzip", gzip.compress), ("bzip2", bz2.compress)])
def test_zeros_behind_the_last_unit_are_padding(compression: str, compress: Callable[[bytes], bytes]) -> None:
    """Padding is skipped wherever a cut lies in it."""
    compressed = compress(b"a\n") + compress(b"b\n") + b"\0" * 50
    for block_size in cuts(len(compressed)):
        assert read_cut(compression, compressed, block_size, "lines") == [(0, b"a"), (2, b"b")], block_size


@pytest.mark.parametrize("most_bytes", [None, 300])
@pytest.mark.parametrize(("name", "kind"), [("x.gz", "members"), ("x.bz2", "bzip2"), ("x.zst", "frames")])
def test_a_run_reads_a_cut_file_as_what_is_compressed_in_it(
    tmp_path: Path, name: str, kind: str, most_bytes: int | None
) -> None:
    """In one window and in many; nothing is missing from the accounting."""
    lines = [b"line %d of a file" % number for number in range(500)]
    content = b"\n".join(lines) + b"\n"
    pieces = [content[start : start + 700] for start in range(0, len(content), 700)]
    (tmp_path / name).write_bytes(b"".join(map(COMPRESS[kind][1], pieces)))
    splitter = FileSplitterInput(
        files=str(tmp_path / name), block_size=200, batch_bytes=0, cut_compressed=[".gz", ".bz2", ".zst"],
        max_bytes_per_window=most_bytes,
    )  # fmt: skip
    run(app_of(tmp_path, splitter, BlockReader()), runtime=InlineRuntime)
    files = [path for path in sorted((tmp_path / "out").rglob("*")) if path.is_file() and path.stat().st_size]
    assert published(tmp_path) == lines
    assert len(files) > 5


@pytest.mark.parametrize("compression", ["gzip", "bzip2", "zstd"])
@pytest.mark.parametrize("unterminated", ["keep", "wait"])
def test_a_growing_file_is_not_cut_if_only_the_app_names_compression(
    tmp_path: Path, compression: str, unterminated: Any
) -> None:
    """The splitter cuts it because its name promises no compression; a pre-scan would give each block the file."""
    compressors: dict[str, Callable[[bytes], bytes]] = {
        "gzip": gzip.compress,
        "bzip2": bz2.compress,
        "zstd": zstd.compress,
    }
    members = [compressors[compression](b"%d of a member\n" % number * 20) for number in range(8)]
    lines = [b"%d of a member" % number for number in range(8) for _ in range(20)]
    path = tmp_path / "x.log"
    half = b"".join(members[:4]) + (members[4][:9] if unterminated == "wait" else b"")
    for content, whole in ((half, lines[:80]), (b"".join(members), lines)):
        with path.open("ab") as file:
            file.write(content[path.stat().st_size :])
        splitter = FileSplitterInput(files=str(path), block_size=50, batch_bytes=0, unterminated=unterminated)
        run(app_of(tmp_path, splitter, BlockReader(compression=compression)), runtime=InlineRuntime)
        assert published(tmp_path) == whole


def app_of(folder: Path, splitter: FileSplitterInput, reader: BlockReader) -> LogicalPlan:
    """What the splitter finds, read by two partitions, and a file for each block."""
    nodes = [
        OperatorNode("splitter", splitter),
        OperatorNode("reader", reader, 2),
        OperatorNode("writer", RecordWriter(path=str(folder / "out"), file_name="block"), "parallel"),
    ]
    edges = (
        edge("splitter.blocks_metadata_output", "reader.blocks_metadata_input"),
        edge("reader.messages", "writer.input"),
    )
    return LogicalPlan("app", Attributes(checkpoint=str(folder / "j")), {node.name: node for node in nodes}, edges)


def published(folder: Path) -> list[bytes]:
    """The lines of the files in their order."""
    files = sorted(path for path in (folder / "out").rglob("*") if path.is_file())
    return b"".join(path.read_bytes() for path in files).splitlines()


@pytest.mark.parametrize("place", [0, 5, 13, 19])
def test_what_lies_before_damage_in_a_cut_file_is_read(tmp_path: Path, place: int) -> None:
    """With on_error: skip: what is left out begins with the block that holds the damage, or ends in it."""
    members = [gzip.compress(b"%d of a member\n" % number * 20) for number in range(20)]
    checksum = bytes([members[place][-8] ^ 1])
    members[place] = members[place][:-8] + checksum + members[place][-7:]
    (tmp_path / "x.gz").write_bytes(b"".join(members))
    splitter = FileSplitterInput(files=str(tmp_path / "x.gz"), block_size=100, batch_bytes=0, cut_compressed=[".gz"])
    reader = BlockReader(on_error="skip")
    reader.format.chunk_bytes = 64
    summary = run(app_of(tmp_path, splitter, reader), runtime=InlineRuntime)
    whole = [b"%d of a member" % number for number in range(place) for _ in range(20)]
    found = published(tmp_path)
    assert found == whole[: len(found)]
    assert len(found) >= len(whole) - 100
    assert summary.counts["reader:skipped"] >= 1


def test_files_that_are_decompressed_twice_are_cut_only_on_request() -> None:
    """Cutting bzip2 costs as much again as reading it: on two cores one task is sooner done."""
    assert not any(stays_whole(f"a{suffix}", CUT_SUFFIXES) for suffix in (".bgz", ".zst", ".zstd", ".txt"))
    assert all(stays_whole(f"a{suffix}", CUT_SUFFIXES) for suffix in (".bz2", ".gz", ".tgz", ".xz"))
    assert not stays_whole("a.bz2", (".bz2",))
