"""Compressed files give the records of what is compressed in them, or an error that says where they are damaged."""

from __future__ import annotations

import bz2
import gzip
import lzma
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lz4.frame
import pytest
import snappy
from backports import zstd
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dagflow.errors import DagflowError
from dagflow.storage.context import StorageContext
from operators.files.compression import COMPRESSION_BY_NAME, COMPRESSIONS, compression_of_content
from operators.files.metadata import BlockMetadata, FileVersion
from operators.reader.compression.recognition import CompressionSetting
from operators.reader.compression.stream import KEPT_BYTES, CorruptArchiveError, DecompressedFile
from operators.reader.content import block_content
from operators.reader.formats import RECORD_FORMATS
from operators.reader.formats.base import ByteAccounting
from tests.nightly import examples


def snappy_framed(data: bytes) -> bytes:
    """Snappy's framing format; the stream identifier comes also where there is nothing."""
    return bytes(snappy.StreamCompressor().compress(data))


def zstd_checked(data: bytes) -> bytes:
    """A zstd frame with a checksum, which the format leaves to choice."""
    return bytes(zstd.compress(data, options={zstd.CompressionParameter.checksum_flag: 1}))


def lz4_checked(data: bytes) -> bytes:
    """An LZ4 frame with a checksum, which the format leaves to choice."""
    return bytes(lz4.frame.compress(data, content_checksum=True))


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zstd": zstd_checked,
    "lz4": lz4_checked,
    "snappy": snappy_framed,
}
SUFFIX = {compression.name: compression.suffixes[0] for compression in COMPRESSIONS}
FORMATS: list[Any] = [
    "lines",
    {"type": "lines", "delimiter": "||"},
    {"type": "escaped_lines", "escape": "\\"},
    {"type": "csv", "columns": ["a"], "header": False},
    {"type": "fixed", "length": 3},
    {"type": "length_prefixed", "prefix": 2},
    {"type": "regex", "pattern": "^a"},
    {"type": "xml", "tag": "a"},
    "json",
    "paragraphs",
    "whole_file",
]


def outcome(path: Path, format: Any, setting: CompressionSetting = "auto") -> tuple[list[tuple[int, bytes]], list[str]]:
    """Offset and bytes of every record of a file that is one block, and the reasons of rejects."""
    chosen = RECORD_FORMATS.make(format)
    rejects: list[bytes] = []
    with StorageContext.default().open_file(str(path), None) as file:
        block = BlockMetadata(1, str(path), FileVersion(file.size_bytes), 0, file.size_bytes, True)
        source, seen, *_ = block_content(file, block, setting, chosen)
        records: list[tuple[int, bytes]] = []
        for batch in chosen.read(source, seen, ByteAccounting(block.url, Counter(), rejects.append)):
            records += zip(batch.offsets().tolist(), batch.to_pylist(), strict=True)
    return records, [reject.partition(b'"offset"')[2].decode() for reject in rejects]


def write(path: Path, data: bytes) -> Path:
    """A file."""
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("format", FORMATS, ids=str)
@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    content=st.text('a,\n\\|\r"<>/ b\x01\x00', max_size=40).map(str.encode),
    compression=st.sampled_from(sorted(COMPRESS)),
)
def test_a_compressed_file_gives_what_the_plain_one_gives(
    tmp_path: Path, format: Any, content: bytes, compression: str
) -> None:
    """Records, offsets and rejects, in every format and compression, also of nothing."""
    plain = outcome(write(tmp_path / "plain", content), format)
    assert outcome(write(tmp_path / f"x{SUFFIX[compression]}", COMPRESS[compression](content)), format) == plain


@pytest.mark.parametrize("compression", ["gzip", "bzip2", "xz", "zstd", "lz4"])
def test_streams_that_follow_one_another_are_one(tmp_path: Path, compression: str) -> None:
    """As the compressions' own tools read them: a record may begin in one stream and end in another."""
    pieces = [b"one\ntw", b"", b"o\nthree\n", b"four"]
    path = write(tmp_path / f"x{SUFFIX[compression]}", b"".join(map(COMPRESS[compression], pieces)))
    assert outcome(path, "lines")[0] == [(0, b"one"), (4, b"two"), (8, b"three"), (14, b"four")]


@pytest.mark.parametrize("compression", sorted(COMPRESS))
def test_the_content_decides_where_the_name_says_nothing(tmp_path: Path, compression: str) -> None:
    """A compressed file under a plain name is read as what it is, unless the app says otherwise."""
    compressed = COMPRESS[compression](b"a\nb\n" * 100)
    path = write(tmp_path / "data", compressed)
    assert len(outcome(path, "lines")[0]) == 200
    assert [raw for _, raw in outcome(path, "whole_file", "none")[0]] == [compressed]


def skippable(data: bytes, kind: int = 0x50) -> bytes:
    """A frame of zstd or lz4 without content."""
    return bytes([kind]) + b"\x2a\x4d\x18" + len(data).to_bytes(4, "little") + data


@pytest.mark.parametrize(("compression", "name"), [("zstd", "a.log"), ("zstd", "a.zst"), ("lz4", "a.lz4")])
def test_frames_without_data_at_the_beginning_are_passed_over(tmp_path: Path, compression: str, name: str) -> None:
    """A file with a plain name that begins so is zstd; no prefix of it is text."""
    skipped = skippable(b"hello") + skippable(b"", 0x5F) + skippable(b"x" * 100_000, 0x5A)
    compressed = skipped + COMPRESS[compression](b"one\ntwo\n")
    assert outcome(write(tmp_path / name, compressed), "lines")[0] == [(0, b"one"), (4, b"two")]
    for length in (5, 10, 14, 16, 20, len(skipped) - 1, len(skipped) + 2, len(skipped) + 9, len(compressed) - 1):
        with pytest.raises(CorruptArchiveError, match="cannot be read as"):
            outcome(write(tmp_path / name, compressed[:length]), "lines")
    assert outcome(write(tmp_path / name, skipped), "lines")[0] == []
    with pytest.raises(CorruptArchiveError, match=r"its name ends in \.gz, but its content is zstd"):
        outcome(write(tmp_path / "a.gz", compressed), "lines")


def test_what_follows_frames_without_data_is_an_error_unless_it_is_zstd(tmp_path: Path) -> None:
    """No text begins so, and nothing is read of other bytes behind them."""
    for content in (b"text\n", gzip.compress(b"a\n"), lz4.frame.compress(b"a\n")):
        with pytest.raises(CorruptArchiveError, match="something that is not zstd follows"):
            outcome(write(tmp_path / "a.log", skippable(b"hello") + content), "lines")
    assert outcome(write(tmp_path / "a.log", skippable(b"") * 1000 + zstd.compress(b"a\n")), "lines")[0] == [(0, b"a")]


def test_a_name_that_promises_what_the_file_does_not_hold_is_an_error(tmp_path: Path) -> None:
    """A wrong suffix is an error: the file gives neither wrong records nor none."""
    with pytest.raises(CorruptArchiveError, match=r"its name ends in \.gz, but its content is not gzip"):
        outcome(write(tmp_path / "x.gz", b"plain text\n"), "lines")
    with pytest.raises(CorruptArchiveError, match=r"its name ends in \.gz, but its content is bzip2"):
        outcome(write(tmp_path / "y.gz", bz2.compress(b"a")), "lines")
    with pytest.raises(CorruptArchiveError, match="the app says xz, but its content is not xz"):
        outcome(write(tmp_path / "z", b"plain text\n"), "lines", "xz")
    assert outcome(write(tmp_path / "x.gz", b"plain\n"), "lines", "none")[0] == [(0, b"plain")]
    assert outcome(write(tmp_path / "empty.gz", b""), "lines")[0] == []


@pytest.mark.parametrize("compression", sorted(COMPRESS))
def test_a_file_that_was_cut_short_is_an_error_at_every_length(tmp_path: Path, compression: str) -> None:
    """No prefix of a compressed file is taken for a shorter file."""
    compressed = COMPRESS[compression](b"".join(b"line %d\n" % number for number in range(50)))
    for length in range(len(COMPRESSION_BY_NAME[compression].magic) + 7, len(compressed)):
        with pytest.raises(DagflowError, match=r"cannot be read as \w+ on from about this place"):
            outcome(write(tmp_path / f"x{SUFFIX[compression]}", compressed[:length]), "lines")


@pytest.mark.parametrize("compression", sorted(COMPRESS))
def test_a_damaged_file_is_an_error_with_its_place(tmp_path: Path, compression: str) -> None:
    """Checksums are checked, and bytes behind a stream that are no stream are an error."""
    compressed = COMPRESS[compression](bytes(range(256)) * 20)
    middle = len(compressed) // 2
    path = tmp_path / f"x{SUFFIX[compression]}"
    with pytest.raises(CorruptArchiveError, match="cannot be read as") as caught:
        outcome(
            write(path, compressed[:middle] + bytes([compressed[middle] ^ 0x5A]) + compressed[middle + 1 :]), "lines"
        )
    assert caught.value.url == str(path)
    with pytest.raises(CorruptArchiveError, match="cannot be read as"):
        outcome(write(path, compressed + b"garbage behind the end"), "lines")


def test_zeros_behind_the_end_are_padding(tmp_path: Path) -> None:
    """Zeros behind a stream are padding, as for the gzip command."""
    assert outcome(write(tmp_path / "x.gz", gzip.compress(b"a\n") + b"\0" * 5000), "lines")[0] == [(0, b"a")]


def test_looking_back_beyond_what_is_kept_starts_again(tmp_path: Path) -> None:
    """The bytes are the same for any offsets in any order."""
    content = bytes(range(256)) * (3 * KEPT_BYTES // 256)
    path = write(tmp_path / "x.gz", gzip.compress(content, 1))
    with StorageContext.default().open_file(str(path), None) as file:
        source = DecompressedFile(file, str(path), COMPRESSIONS[0])
        buffer = bytearray(1000)
        for offset in (0, 2 * KEPT_BYTES, 5, len(content) - 10, 0, len(content), len(content) + 7):
            count = source.read_into(offset, memoryview(buffer))
            assert buffer[:count] == content[offset : offset + 1000]
        assert source.size_bytes == len(content)


def test_only_the_first_block_of_a_compressed_file_has_records(tmp_path: Path) -> None:
    """Where a splitter could not know that a file is compressed, its blocks still give each record once."""
    path = write(tmp_path / "data", gzip.compress(b"a\nb\n"))
    chosen, size = RECORD_FORMATS.make("lines"), path.stat().st_size
    found = []
    with StorageContext.default().open_file(str(path), None) as file:
        for start in range(0, size, 7):
            block = BlockMetadata(1, str(path), FileVersion(size), start, min(start + 7, size), False)
            source, seen, *_ = block_content(file, block, "auto", chosen)
            for batch in chosen.read(source, seen, ByteAccounting(str(path), Counter(), None)):
                found += batch.to_pylist()
    assert found == [b"a", b"b"]


@given(st.binary(max_size=20))
def test_text_about_a_compression_is_not_taken_for_it(rest: bytes) -> None:
    """A text that begins with BZh is no bzip2 file."""
    compression = compression_of_content(b"BZh" + rest)
    assert compression is None or rest[1:7] in (bytes.fromhex("314159265359"), bytes.fromhex("177245385090"))


@pytest.mark.parametrize("kind", ["gzip", "zstd", "bzip2"])
def test_a_record_may_be_longer_than_what_is_kept_of_the_content(tmp_path: Path, kind: str) -> None:
    """A read of more bytes than are kept for looking back gives all of them."""
    long = b"0123456789abcdef" * (KEPT_BYTES // 4)
    path = tmp_path / f"a{SUFFIX[kind]}"
    path.write_bytes(COMPRESS[kind](b"short\n" + long + b"\nlast\n"))
    assert outcome(path, "lines") == ([(0, b"short"), (6, long), (7 + len(long), b"last")], [])
