"""Small-file batches, read file by file and many files at once."""

from __future__ import annotations

import gzip
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagflow.api.context import OperatorContext
from dagflow.errors import MissingError, SourceChangedError, StorageError
from dagflow.storage.backends.local import LocalFiles
from operators import BlockReader
from operators.files.metadata import BlockMetadata, FileFingerprints
from operators.files.small_file_batch import SmallFileBatch
from operators.reader.block_files import RateLimiter
from operators.reader.block_processor import ErrorPolicy, TaskAccounting
from operators.reader.compression.stream import CorruptArchiveError
from operators.reader.content import ContentReader
from operators.reader.formats import RECORD_FORMATS
from operators.reader.small_file_batch_reader import SmallFileBatchReader
from tests.nightly import by_day, examples
from tests.operators.reader.test_content_compression import COMPRESS, skippable
from tests.serving import serving
from tests.storage.shared import STORAGE, put
from tests.web_server import WebServer

PIECES = [b"a", b"bb", b"\n", b"\r", b"\r\n", b";", b"\xef\xbb\xbf", b"\xef", b""]
CONTENTS = st.lists(st.lists(st.sampled_from(PIECES), max_size=6).map(b"".join), min_size=1, max_size=8)
FORMATS: list[Any] = [
    "lines",
    {"type": "lines", "delimiter": ";"},
    {"type": "lines", "delimiter": "bb"},
    {"type": "lines", "max_record": 2, "on_long": "cut"},
    {"type": "lines", "keep_delimiter": True},
    {"type": "lines", "skip_header": 1},
    "whole_file",
    {"type": "fixed", "length": 2, "tail": "keep"},
]


def written(folder: Path, contents: Sequence[bytes]) -> list[Path]:
    """Files with these contents, in order of their names."""
    paths = [folder / f"{number:03}" for number in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    return paths


def batch_of(paths: Sequence[Path]) -> SmallFileBatch:
    """A batch of files as they are now."""
    stats = [path.stat() for path in paths]
    return SmallFileBatch.of(1, list(map(str, paths)), [s.st_size for s in stats], [s.st_mtime_ns for s in stats])


def read(reader: BlockReader, items: Sequence[BlockMetadata | SmallFileBatch]) -> list[tuple[int, int, bytes, bytes]]:
    """Block id, offset, bytes and delimiter of each record."""
    found: list[tuple[int, int, bytes, bytes]] = []

    def take(batch: Any) -> None:
        ids = [batch.block_of(position).block_id for position in range(len(batch))]
        delimiters = batch.delimiters.to_array(len(batch)).to_pylist()
        found.extend(zip(ids, batch.offsets().tolist(), batch.to_pylist(), delimiters, strict=True))

    reader.messages.connect(take)
    for item in items:
        for _ in reader.read(item) or ():
            pass
    reader.teardown()
    return found


@pytest.mark.parametrize("format", by_day(4, FORMATS), ids=str)
def test_a_batch_gives_what_its_blocks_give(format: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Records, offsets, blocks and delimiters are those of the files read one by one: no border is lost or made."""

    @settings(max_examples=examples(60))  # files are written, on a disk that others use
    @given(CONTENTS, st.integers(1, 20))
    def check(contents: list[bytes], buffer_bytes: int) -> None:
        batch = batch_of(written(tmp_path_factory.mktemp("batch"), contents))
        blocks: list[BlockMetadata | SmallFileBatch] = list(batch)
        if format == "whole_file":
            blocks = [batch.block(index) for index in range(len(batch))]
        wanted = read(BlockReader(format=format), blocks)
        kept, LocalFiles.batch_bytes = LocalFiles.batch_bytes, buffer_bytes
        try:
            assert read(BlockReader(format=format), [batch]) == wanted
        finally:
            LocalFiles.batch_bytes = kept

    check()


@pytest.mark.parametrize("format", ["lines", "whole_file", {"type": "lines", "keep_delimiter": True}], ids=str)
def test_a_rate_bounds_how_many_files_are_read_at_once(format: Any, tmp_path: Path) -> None:
    """Each load fits what may be read in a tenth of a second, or is one file; the records are the same."""
    sizes = [10, 20, 70, 1, 300, 0, 50, 49, 1, 0, 0, 1]
    batch = batch_of(written(tmp_path, [b"x" * size for size in sizes]))
    now, context = [0.0], OperatorContext(connected=frozenset(["blocks_metadata_output"]))

    def wait(seconds: float) -> None:
        now[0] += seconds

    content, accounting = ContentReader(RECORD_FORMATS.make(format), "auto"), TaskAccounting(context, adds_up=True)
    limiter, errors = RateLimiter(1000, lambda: now[0], wait), ErrorPolicy("fail", "fail", context)
    reader = SmallFileBatchReader(content, limiter, accounting, errors, context)
    loads, records = list[list[int]](), list[bytes]()
    for step in reader.read(batch):
        assert now[0] == pytest.approx(sum(map(sum, loads)) / 1000)
        (part,) = step.finished
        assert isinstance(part, SmallFileBatch)
        loads.append(part.sizes.tolist())
        records += [record for each in step.batches for record in each.to_pylist()]
    assert loads == [[10, 20, 70], [1], [300], [0, 50, 49, 1, 0, 0], [1]]
    assert records == [record for _, _, record, _ in read(BlockReader(format=format), [batch])]


def test_frames_without_data_are_seen_among_many_files(tmp_path: Path) -> None:
    """A compressed file may begin with one; the letter that it begins with begins texts too."""
    compressed = skippable(b"hello") + COMPRESS["zstd"](b"one\ntwo\n")
    batch = batch_of(written(tmp_path, [b"Pa\n", b"", compressed, b"_"]))
    assert [record for _, _, record, _ in read(BlockReader(format="lines"), [batch])] == [b"Pa", b"one", b"two", b"_"]


def test_the_common_formats_read_files_at_once() -> None:
    """Lines and whole files are read many at once, unless an option forbids it."""
    fast = [RECORD_FORMATS.make(format).traits.multi_file is not None for format in FORMATS]
    assert fast == [True, True, False, True, False, False, True, False]


def damaged(tmp_path: Path) -> SmallFileBatch:
    """Seven planned files; only the first, the third and the last are as they were."""
    paths = written(tmp_path, [b"zero\n", b"one\n", b"two", b"three\n", b"four\n", b"five\n", b"six\n"])
    batch = batch_of(paths)
    paths[1].unlink()
    paths[3].write_bytes(b"longer than before\n")
    os.utime(paths[4], ns=(1, 1))
    paths[5].unlink()
    paths[5].mkdir()
    return batch


@pytest.mark.parametrize("format", ["lines", {"type": "lines", "skip_header": 0, "keep_delimiter": True}], ids=str)
def test_a_bad_file_does_not_fail_its_batch(format: Any, tmp_path: Path) -> None:
    """The others are read, and each bad one is recorded by itself with its reason."""
    batch = damaged(tmp_path)
    reader = BlockReader(format=format)
    context = OperatorContext()
    reader.setup(context)
    assert [(block, record.rstrip()) for block, _, record, _ in read(reader, [batch])] == [
        (1, b"zero"),
        (3, b"two"),
        (7, b"six"),
    ]
    recorded = {Path(skipped.url).name: skipped for skipped in context.skipped}
    assert sorted(recorded) == ["001", "003", "004", "005"]
    assert [(s.start, s.end) for s in context.skipped] == [(0, 4), (0, 6), (0, 5), (0, 5)]
    assert "missing" in recorded["001"].reason
    assert "it had 6 bytes, now it has 19" in recorded["003"].reason
    assert "modified" in recorded["004"].reason
    assert "no longer a file" in recorded["005"].reason
    assert (context.counters["blocks"], context.counters["vanished"]) == (3, 4)


def test_a_bad_file_ends_the_run_where_the_app_says_so(tmp_path: Path) -> None:
    """on_vanished: fail names the file."""
    with pytest.raises(MissingError, match="001"):
        read(BlockReader(on_vanished="fail"), [damaged(tmp_path)])


def test_a_large_file_that_is_not_as_planned_is_left_out_too(tmp_path: Path) -> None:
    """Nothing of another version is read, of a block as of a batch."""
    (path,) = written(tmp_path, [b"as planned\n"])
    block = next(iter(batch_of([path])))
    path.write_bytes(b"otherwise\n")
    with pytest.raises(SourceChangedError, match="changed after it was planned"):
        read(BlockReader(on_vanished="fail"), [block])
    reader = BlockReader()
    context = OperatorContext()
    reader.setup(context)
    assert read(reader, [block]) == []
    assert [skipped.url for skipped in context.skipped] == [str(path)]


@settings(max_examples=examples(60))
@given(
    contents=st.lists(st.sampled_from([b"", b"a\nb\n", b"c"]), min_size=1, max_size=5),
    bad=st.sets(st.integers(0, 4)),
    place=st.integers(0, 10_000),
    kind=st.sampled_from(["cut", "changed"]),
    format=st.sampled_from(["lines", "whole_file"]),
)
def test_a_damaged_archive_does_not_fail_its_batch(
    tmp_path_factory: pytest.TempPathFactory,
    contents: list[bytes],
    bad: set[int],
    place: int,
    kind: str,
    format: str,
) -> None:
    """With on_error: skip nothing of it is given, though its checksum lies behind its records; others are whole."""
    compressed = [gzip.compress(content * 9, mtime=0) for content in contents]
    bad = {index for index in bad if index < len(compressed)}
    for index in bad:
        if kind == "cut":
            compressed[index] = compressed[index][: 10 + place % (len(compressed[index]) - 10)]
        else:
            at = len(compressed[index]) - 1 - place % 8  # the checksum, or the length behind it
            compressed[index] = (
                compressed[index][:at] + bytes([compressed[index][at] ^ 0x10]) + compressed[index][at + 1 :]
            )
    folder = tmp_path_factory.mktemp("batch")
    plain = [content * 9 for index, content in enumerate(contents) if index not in bad]
    batch = batch_of(written(folder, [*compressed, b"plain\n"]))
    reader = BlockReader(format=format, on_error="skip")
    context = OperatorContext()
    reader.setup(context)
    found = read(reader, [batch])
    whole = [*plain, b"plain\n"]
    expected = whole if format == "whole_file" else [line for content in whole for line in content.splitlines()]
    assert [record for _, _, record, _ in found] == expected
    assert sorted(int(Path(skipped.url).name) for skipped in context.skipped) == sorted(bad)
    assert all("archive at offset " in skipped.reason for skipped in context.skipped)
    sound = set(range(len(compressed) + 1)) - bad
    assert {block - 1 for block, *_ in found} <= sound
    assert context.counters["blocks"] == len(sound)
    assert context.counters["skipped"] == len(bad)
    assert not any(context.accounting.values())
    if bad:
        with pytest.raises(CorruptArchiveError, match="cannot be read as gzip"):
            read(BlockReader(format=format), [batch])


def test_rejects_of_a_batch_know_their_file(tmp_path: Path) -> None:
    """A bad record in one of many files is reported with that file's name and offset."""
    batch = batch_of(written(tmp_path, [b"ab", b"abc", b"ab"]))
    reader = BlockReader(format={"type": "fixed", "length": 2})
    rejects: list[Any] = []
    reader.errors.connect(lambda batch: rejects.extend(b.block_id for b in batch.blocks))
    assert [block for block, *_ in read(reader, [batch])] == [1, 2, 3]
    assert rejects == [2]


def test_what_was_read_is_reported_without_what_was_left_out(tmp_path: Path) -> None:
    """The reader's metadata output has the blocks of the good files, each once."""
    batch = damaged(tmp_path)
    reader = BlockReader(on_error="skip")
    done: list[BlockMetadata] = []
    reader.blocks_metadata_output.connect(done.append)
    read(reader, [batch])
    assert [block.block_id for block in done] == [1, 3, 7]


def test_all_files_of_a_batch_may_be_gone(tmp_path: Path) -> None:
    """A directory that was removed between plan and read leaves a batch without records."""
    folder = tmp_path / "gone"
    folder.mkdir()
    paths = written(folder, [b"a\n", b"b\n"])
    batch = batch_of(paths)
    for path in paths:
        path.unlink()
    folder.rmdir()
    assert read(BlockReader(), [batch]) == []
    with pytest.raises(StorageError, match="No such file"):
        read(BlockReader(on_vanished="fail"), [batch])
    assert np.count_nonzero(batch.sizes) == 2


def batch_in_stores(urls: Sequence[str]) -> SmallFileBatch:
    """A batch of files of any stores as they are now."""
    found = [STORAGE.stat(url) for url in urls]
    numbers = [each.size_bytes for each in found], [each.mtime_ns for each in found]
    return SmallFileBatch.of(1, urls, *numbers, [each.etag for each in found], [each.file_id for each in found])


def test_files_of_several_stores_may_be_in_one_batch(s3_root: str, tmp_path: Path) -> None:
    """Buckets by two schemes, directories and a web server: each file is read where it is, in the batch's order."""
    pytest.importorskip("aiohttp", reason="fsspec reads HTTP by it")
    other = put(f"{s3_root}-b/in/a", b"other\n")
    with serving(WebServer()) as server:
        server.files["/a"] = b"web\n"
        urls = [put(f"{s3_root}/in/a", b"bucket\n"), other, other.replace("s3:", "s3a:"), f"{server.url}/a"]
        urls[2:2] = map(str, written(tmp_path, [b"local\n", b"", b"local too\n"]))
        batch = batch_in_stores(urls)
        events: list[Any] = []
        context = OperatorContext(source_events=events, connected=frozenset(["blocks_metadata_output"]))
        reader = BlockReader(format="lines")
        reader.setup(context)
        done: list[BlockMetadata] = []
        reader.blocks_metadata_output.connect(done.append)
        found = read(reader, [batch])
    assert [block for block, *_ in found] == [1, 2, 3, 5, 6, 7]
    assert [record for _, _, record, _ in found] == [b"bucket", b"other", b"local", b"local too", b"other", b"web"]
    assert [block.url for block in done] == [url for url in urls if not url.endswith("001")]
    assert context.skipped == []
    # Of the files that may be appended to, and of no other.
    (recorded,) = (event for event in events if isinstance(event, FileFingerprints))
    assert (recorded.base, recorded.names) == (f"{tmp_path}/", b"000\x00001\x00002")


def test_what_is_gone_from_one_of_several_stores_is_left_out_alone(s3_root: str, tmp_path: Path) -> None:
    """It is named by its own URL, and the files of all other stores are read."""
    other = put(f"{s3_root}-b/in/a", b"other\n")
    paths = written(tmp_path, [b"local\n", b"gone\n"])
    batch = batch_in_stores([put(f"{s3_root}/in/a", b"gone, too\n"), *map(str, paths), other])
    paths[1].unlink()
    put(f"{s3_root}/in/a", b"here again\n")
    reader, context = BlockReader(format="lines"), OperatorContext()
    reader.setup(context)
    assert [record for _, _, record, _ in read(reader, [batch])] == [b"local", b"other"]
    assert [skipped.url for skipped in context.skipped] == [f"{s3_root}/in/a", str(paths[1])]
