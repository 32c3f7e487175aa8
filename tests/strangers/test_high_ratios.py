"""Files that are small as they are stored, and large when they are decompressed: memory stays that of a few blocks."""

from __future__ import annotations

import bz2
import gzip
import importlib
import itertools
import json
import lzma
import random
import resource
import struct
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from dagflow.api.context import OperatorContext
from dagflow.cli.main import main
from dagflow.errors import RecordError
from operators.files.compression import _zstd_library, compression_of_name
from operators.files.metadata import BlockMetadata, FileVersion
from operators.files.small_file_batch import SmallFileBatch
from operators.reader.block_processor import ErrorPolicy, ReadStep, TaskAccounting
from operators.reader.byte_source import UNKNOWN_SIZE, BufferSlice, ByteSource
from operators.reader.compression.stream import CorruptArchiveError, DecompressedFile
from operators.reader.content import ContentReader
from operators.reader.formats import RECORD_FORMATS
from operators.reader.formats.base import ByteAccounting
from operators.reader.small_file_batch_reader import SmallFileBatchReader
from tests.memory import in_own_process
from tests.nightly import by_day
from tests.strangers.fuzzing import seeds

MIB = 1 << 20
ALLOWED_MIB = 200

SUFFIXES = ("gz", "bgz", "bz2", "xz", "zst", "lz4", "sz")


def bgzf(data: bytes) -> bytes:
    """Members of at most 64 KiB whose headers have their lengths, as bgzip writes them."""
    members = []
    for start in range(0, len(data), 65280):
        member = gzip.compress(data[start : start + 65280], mtime=0)
        extra = b"BC" + struct.pack("<HH", 2, len(member) + 8 - 1)
        members.append(member[:3] + b"\x04" + member[4:10] + struct.pack("<H", len(extra)) + extra + member[10:])
    return b"".join(members)


def compressed(suffix: str, data: bytes) -> bytes:
    """Data in the compression of a suffix."""
    if suffix == "zst":
        return bytes(_zstd_library().compress(data))
    if suffix == "lz4":
        return bytes(importlib.import_module("lz4.frame").compress(data))
    if suffix == "sz":
        return bytes(importlib.import_module("snappy").StreamCompressor().compress(data))
    write: dict[str, Callable[[bytes], bytes]] = {
        "gz": gzip.compress,
        "bgz": bgzf,
        "bz2": bz2.compress,
        "xz": lambda part: lzma.compress(part, preset=0),
    }
    return write[suffix](data)


def repeated(suffix: str, piece: bytes, count: int) -> bytes:
    """The same piece again and again, as one stream after the other."""
    stream = compressed(suffix, piece)
    # Only the first chunk of snappy names the format.
    return stream + (stream[10:] if suffix == "sz" else stream) * (count - 1)


def peak_mib(arguments: list[str]) -> float:
    """How much more memory a command takes than its process took before."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    sys.argv = ["dagflow", *arguments]
    with pytest.raises(SystemExit, match="0"):
        main()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


def app_of(directory: Path, files: Path, format: Any) -> str:
    """An app that reads files and publishes their records."""
    text = f"""
name: ratio
attributes: {{checkpoint: {directory}/journal}}
operators:
  splitter: {{class: FileSplitterInput, properties: {{files: {files}}}}}
  reader: {{class: BlockReader, properties: {{format: {json.dumps(format)}}}}}
  writer: {{class: RecordWriter, properties: {{path: {directory}/out}}, partition: parallel}}
  rejects: {{class: RecordWriter, properties: {{path: {directory}/rejects}}, partition: parallel}}
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  records: {{from: reader.messages, to: writer.input}}
  rejects: {{from: reader.errors, to: rejects.input}}
"""
    app = directory / "app.yaml"
    app.write_text(text)
    return str(app)


def steps_of(path: Path, format: Any) -> list[ReadStep]:
    """The steps in which a batch of one small file is read."""
    stat = path.stat()
    files = SmallFileBatch.of(0, [str(path)], [stat.st_size], [stat.st_mtime_ns], [""], [stat.st_ino])
    context = OperatorContext(connected=frozenset({"errors"}))
    content = ContentReader(RECORD_FORMATS.make(format), "auto")
    accounting = TaskAccounting(context, True)
    reader = SmallFileBatchReader(content, None, accounting, ErrorPolicy("fail", "fail", context), context)
    return list(reader.read(files))


@pytest.mark.parametrize("suffix", by_day(3, SUFFIXES))
@pytest.mark.parametrize("format", ["lines", {"type": "fixed", "length": 1}])
def test_a_small_file_of_high_ratio_is_passed_on_in_parts(suffix: str, format: Any, tmp_path: Path) -> None:
    """A few KB of a compressed file hold many MB: neither all of them, nor any number of records, is held at once."""
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(repeated(suffix, b"\n" * MIB, 16))
    steps = steps_of(path, format)
    assert sum(len(batch) for step in steps for batch in step.batches) == 16 * MIB
    assert max(sum(batch.nbytes() for batch in step.batches) for step in steps) <= 8 * MIB
    assert max(len(batch) for step in steps for batch in step.batches) <= 1 << 16


@pytest.mark.parametrize("format", ["json_lines", {"type": "csv", "header": False, "columns": {"n": "int64"}}])
@pytest.mark.parametrize("piece", by_day(1, [b"\n", b"a\n"]))
def test_what_is_refused_of_a_small_file_is_passed_on_in_parts(piece: bytes, format: Any, tmp_path: Path) -> None:
    """Neither rejects nor the places of blank lines wait for records that never come."""
    path = tmp_path / "a.zst"
    path.write_bytes(repeated("zst", piece * (MIB // 2), 2))
    steps = steps_of(path, format)
    assert sum(len(batch) for step in steps for batch in step.batches) == 0
    assert max(len(step.batches) for step in steps) <= 1
    assert len(steps) >= (8 if piece == b"a\n" else 1)


class Late:
    """Bytes whose number is known only when a read has met their end, as those of a compressed file."""

    def __init__(self, data: bytes) -> None:
        self.data, self.size_bytes, self.furthest = data, UNKNOWN_SIZE, 0

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """See ByteSource."""
        piece = self.data[offset : offset + len(buffer)]
        buffer[: len(piece)] = piece
        if len(piece) < len(buffer):
            self.size_bytes = len(self.data)
        self.furthest = max(self.furthest, offset + len(piece))
        return len(piece)


FORMATS: list[Any] = [
    "lines",
    {"type": "lines", "delimiter": "||"},
    {"type": "lines", "skip_header": 2},
    {"type": "lines", "max_record": 2, "on_long": "reject"},
    "escaped_lines",
    "json_lines",
    "paragraphs",
    {"type": "regex", "pattern": "a"},
    "csv",
    {"type": "csv", "skip_header": 1},
    {"type": "csv", "header": False, "columns": ["a", "b"]},
    {"type": "csv", "max_record": 3, "on_long": "cut"},
    {"type": "fixed", "length": 3},
    {"type": "fixed", "length": 3, "tail": "keep"},
    {"type": "length_prefixed", "prefix": 1},
    {"type": "length_prefixed", "prefix": "varint", "max_record": 3},
    {"type": "xml", "tag": "a"},
    {"type": "xml", "tag": "a", "max_record": 8},
    "whole_file",
    *({"type": "whole_file", "max_record": 5, "on_long": what} for what in ("fail", "skip", "reject")),
]
PIECES = [
    b"a",
    b"b",
    b"\n",
    b"\r",
    b'"',
    b",",
    b"||",
    b"<a>",
    b"</a>",
    b"<!--",
    b"-->",
    b"{}",
    b"\\",
    b"\0",
    b"\2",
    b"|",
]


def what_is_read(format: Any, source: ByteSource, chunk_bytes: int) -> list[Any]:
    """All that a format gives and counts for a file, or the error."""
    made = RECORD_FORMATS.make(format)
    made.chunk_bytes = chunk_bytes
    rejects: list[bytes] = []
    accounting = ByteAccounting("file", Counter(), rejects.append)
    block = BlockMetadata(0, "file", FileVersion(0), 0, source.size_bytes, True)
    found: list[Any] = []
    try:
        for batch in made.read(source, block, accounting):
            raw = accounting.parse(made, batch).raw
            found += zip(raw.offsets().tolist(), raw.to_pylist(), strict=True)
    except RecordError as error:
        return [*found, error.message, error.offset]
    # How many bytes of a reject are shown depends on how many are at hand.
    refused = [{name: value for name, value in json.loads(reject).items() if name != "raw"} for reject in rejects]
    return [*found, *refused, accounting.covered, {name: n for name, n in accounting.counters.items() if n}]


def test_a_size_that_is_known_late_changes_nothing() -> None:
    """Whatever the format, content, and cuts: the size of a compressed file is known at its end alone."""
    for seed in seeds(100):
        chance = random.Random(seed)
        content = b"".join(chance.choices(PIECES, k=chance.choice([0, 1, 2, 3, 5, 8, 13, 30])))
        format, chunk_bytes = chance.choice(FORMATS), chance.choice([1, 2, 3, 4, 7, 8, 16])
        known = what_is_read(format, BufferSlice(memoryview(content), 0, len(content)), chunk_bytes)
        assert what_is_read(format, Late(content), chunk_bytes) == known, (seed, format, content, chunk_bytes)


@pytest.mark.parametrize(
    ("format", "content"),
    [
        ("lines", b"a\n"),
        ("csv", b"a,b\n"),
        ("json_lines", b"{}\n"),
        ("paragraphs", b"a\n\n"),
        ({"type": "regex", "pattern": "a"}, b"a\n"),
        ({"type": "fixed", "length": 4}, b"abcd"),
        ({"type": "length_prefixed", "prefix": 1}, b"\3abc"),
        ({"type": "xml", "tag": "a"}, b"<a/>"),
        ({"type": "whole_file", "max_record": "1KiB", "on_long": "fail"}, b"abcd"),
    ],
)
def test_no_more_is_decompressed_than_is_asked_for(format: Any, content: bytes) -> None:
    """The first records of a large file, or the error that it is too large, need no more than its beginning."""
    made = RECORD_FORMATS.make(format)
    assert not made.needs_size
    source = Late(content * (16 * MIB // len(content)))
    block = BlockMetadata(0, "file", FileVersion(0), 0, source.size_bytes, True)
    with suppress(RecordError):
        next(made.read(source, block, ByteAccounting("file", Counter(), None)))
    assert source.furthest <= 9 * MIB


def test_a_comment_that_is_never_closed_is_not_held() -> None:
    """What hides the elements of XML has the limit that they have."""
    made = RECORD_FORMATS.make({"type": "xml", "tag": "a", "max_record": "1MiB"})
    source = Late(b"<r><!-- " + b"x" * (16 * MIB))
    block = BlockMetadata(0, "file", FileVersion(0), 0, source.size_bytes, True)
    with pytest.raises(RecordError, match="a comment, CDATA section or instruction is longer than max_record, 1048576"):
        list(made.read(source, block, ByteAccounting("file", Counter(), None)))
    assert source.furthest <= 5 * MIB


@pytest.mark.parametrize("command", by_day(1, ["preview", "run --local --workers 1"]))
def test_a_command_takes_little_memory_for_a_file_of_high_ratio(command: str, tmp_path: Path) -> None:
    """13 KB of zstd hold 256 MB of newlines."""
    files = tmp_path / "in"
    files.mkdir()
    (files / "a.zst").write_bytes(repeated("zst", b"\n" * (4 * MIB), 64))
    app = app_of(tmp_path, files, "lines")
    assert in_own_process(peak_mib, [*command.split()[:1], app, *command.split()[1:]]) < ALLOWED_MIB


@pytest.mark.nightly
@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize(
    ("command", "piece"),
    [*itertools.product(["preview", "run", "init"], [b"\n", b"a\n", b"a,b\n"]), ("infer", b"a,b\n")],
)
def test_every_compression_takes_little_memory(suffix: str, piece: bytes, command: str, tmp_path: Path) -> None:
    """Every compression, by every command that reads; infer takes rows alone."""
    files = tmp_path / "in"
    files.mkdir()
    (files / f"a.{suffix}").write_bytes(repeated(suffix, piece * (MIB // len(piece)), 256))
    app = app_of(tmp_path, files, "lines")
    arguments = {
        "preview": ["preview", app],
        "run": ["run", app, "--local", "--workers", "1"],
        "init": ["init", str(tmp_path / "new"), "--from", str(files)],
        "infer": ["infer", str(files)],
    }
    assert in_own_process(peak_mib, arguments[command]) < ALLOWED_MIB


def read_all(suffix: str, stored: bytes, format: Any) -> Iterator[tuple[int, bytes]]:
    """The records of a file, as its blocks give them."""
    compression = compression_of_name(f"a.{suffix}")
    assert compression is not None
    source = DecompressedFile(BufferSlice(memoryview(stored), 0, len(stored)), "a", compression)
    block = BlockMetadata(0, "a", FileVersion(len(stored)), 0, source.size_bytes, True)
    accounting = ByteAccounting("a", Counter(), lambda reject: None)
    made = RECORD_FORMATS.make(format)
    for batch in made.read(source, block, accounting):
        assert batch.nbytes() <= 16 * MIB
        assert len(batch) <= 1 << 16
        raw = accounting.parse(made, batch).raw
        yield from zip(raw.offsets().tolist(), raw.to_pylist(), strict=True)


def test_a_cut_or_damaged_archive_gives_records_of_its_content() -> None:
    """Every compression, ratio and cut: each record is one of the whole file, at its offset, or the file is refused."""
    for seed in seeds(20):
        chance = random.Random(seed)
        suffix = chance.choice(SUFFIXES)
        piece = bytes(chance.choices(b"ab\n", k=chance.choice([1, 3, 50])))
        content = piece * chance.choice([1, 10, 3000])
        stored, is_cut = compressed(suffix, content), chance.randrange(2)
        at = chance.randrange(len(stored))
        stored = stored[:at] if is_cut else stored[:at] + bytes([chance.randrange(256)]) + stored[at + 1 :]
        whole, found = list(read_all(suffix, compressed(suffix, content), "lines")), list[tuple[int, bytes]]()
        try:
            found += read_all(suffix, stored, "lines")
        except CorruptArchiveError:
            # Other content may come before the checksum that refuses it, and with it the window.
            found = found if is_cut else []
        # What has no checksum may be other content.
        if is_cut or suffix not in ("zst", "lz4"):
            assert found[:-1] == whole[: max(len(found) - 1, 0)], seed
