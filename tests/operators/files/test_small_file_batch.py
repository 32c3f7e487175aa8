"""Many small files as one tuple."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagflow.api.ports import TupleBatch, tuple_count, unbatched
from dagflow.errors import JournalError
from dagflow.journal.windows import decode_tuples, encode_tuples
from operators.files.metadata import BlockMetadata, FileVersion
from operators.files.small_file_batch import SmallFileBatch, SmallFileBlocks

NAMES = (
    st.binary(min_size=1, max_size=6)
    .filter(lambda name: not {0, 47} & set(name))
    .map(lambda name: name.decode("utf-8", "surrogateescape"))
)
PATHS = st.lists(NAMES, min_size=1, max_size=3).map(lambda parts: "/in/" + "/".join(parts))
FILES = st.lists(st.tuples(PATHS, st.integers(0, 9), st.integers(0, 2**62)), min_size=1, max_size=12)


def batch_of(files: list[tuple[str, int, int]], etags: tuple[str, ...] = ()) -> SmallFileBatch:
    """The files as one batch, from id 7 on."""
    urls, sizes, mtimes = zip(*files, strict=True)
    return SmallFileBatch.of(7, urls, sizes, mtimes, etags)


def expected(files: list[tuple[str, int, int]]) -> list[BlockMetadata]:
    """What the files would be as single blocks."""
    versions = [FileVersion(size, mtime) for _, size, mtime in files]
    blocks = [
        BlockMetadata(7 + number, url, version, 0, size, True)
        for number, ((url, size, _), version) in enumerate(zip(files, versions, strict=True))
    ]
    return [block for block in blocks if block.size_bytes]


@given(FILES)
def test_a_batch_stands_for_its_files_blocks(files: list[tuple[str, int, int]]) -> None:
    """Whatever the names, its tuples are one block a file, with consecutive ids; empty files have none."""
    batch = batch_of(files)
    assert list(batch) == expected(files)
    assert (len(batch), batch.size_bytes) == (len(files), sum(size for _, size, _ in files))


@given(FILES)
def test_a_batch_survives_journal_and_pickle(files: list[tuple[str, int, int]]) -> None:
    """As JSON text and as a pickle it says the same."""
    batch = batch_of(files, tuple(f"tag{number}" for number in range(len(files))))
    for copy in (
        SmallFileBatch.from_json(json.loads(json.dumps(batch.to_json()))),
        pickle.loads(pickle.dumps(batch)),
    ):
        assert [copy.block(index) for index in range(len(copy))] == [batch.block(index) for index in range(len(batch))]


@given(FILES, st.data())
def test_the_slices_of_a_batch_are_the_batch(files: list[tuple[str, int, int]], data: st.DataObject) -> None:
    """Cut anywhere, the two parts have the blocks of the whole, under the same ids."""
    batch = batch_of(files)
    cut = data.draw(st.integers(0, len(files)))
    assert [*batch.slice(0, cut), *batch.slice(cut, len(files))] == list(batch)


def test_blocks_and_batch_share_a_plan() -> None:
    """A window's plan gives back blocks and batches in the order in which they were emitted."""
    block = BlockMetadata(1, "/in/large", FileVersion(20, 5), 0, 10, False)
    after = BlockMetadata(2, "/in/large", FileVersion(20, 5), 10, 20, True, 1)
    batch = batch_of([("/in/a", 3, 1), ("/in/b", 0, 2)])
    restored = decode_tuples(BlockMetadata, encode_tuples(BlockMetadata, [block, after, batch, block]))
    assert list(unbatched(restored)) == [block, after, *batch, block]
    assert [isinstance(item, TupleBatch) for item in restored] == [False, False, True, False]
    assert tuple_count(restored) == 5


def test_a_batch_with_other_fields_or_of_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is guessed from what another program has written."""
    value = batch_of([("/in/a", 3, 1)]).to_json()
    with pytest.raises(JournalError, match="the checkpoint holds SmallFileBatch with a field 'owners', which"):
        SmallFileBatch.from_json({**value, "owners": []})
    with pytest.raises(JournalError, match="the checkpoint holds SmallFileBatch without the field 'base', which"):
        SmallFileBatch.from_json({name: each for name, each in value.items() if name != "base"})
    planned = encode_tuples(BlockMetadata, [batch_of([("/in/a", 3, 1)])])
    monkeypatch.setattr(SmallFileBatch, "json_version", 2)
    with pytest.raises(JournalError, match="holds SmallFileBatch of version 1, and this program knows version 2"):
        decode_tuples(BlockMetadata, planned)


def test_blocks_of_records_are_made_when_asked_for_and_travel_alone() -> None:
    """A batch that is sent elsewhere takes along only the stretch of the batch that it is from."""
    batch = batch_of([(f"/in/{number:03}", 1, number) for number in range(100)])
    blocks = SmallFileBlocks(batch, np.array([40, 41, 43]))
    assert [block.url for block in blocks] == blocks.urls == ["/in/040", "/in/041", "/in/043"]
    copy = pickle.loads(pickle.dumps(blocks))
    assert list(copy) == list(blocks)
    assert len(pickle.dumps(blocks)) < len(pickle.dumps(SmallFileBlocks(batch, np.arange(100)))) / 2


@pytest.mark.parametrize("urls", [["/a/b"], ["/a/b/c", "/a/bc"], ["/", "/x"]])
def test_urls_are_whole_whatever_they_have_in_common(urls: list[str]) -> None:
    """The common beginning ends with a slash, never within a name."""
    batch = SmallFileBatch.of(1, urls, [1] * len(urls), [1] * len(urls))
    assert [batch.url(index) for index in range(len(urls))] == urls
    assert batch.base.endswith("/")


def test_the_parts_of_a_batch_have_files_of_one_scheme_each() -> None:
    """In order and with the same ids, each with its own base; etags where its store has them."""
    urls = ["/in/a", "/in/b", "s3://x/m/a", "s3://x/m/b", "s3a://y/c", "zip://a::/in/z", "http://x/a", "https://x/a"]
    etags = ["", "", "tag 2", "tag 3", "tag 4", "", "", ""]
    batch = SmallFileBatch.of(7, urls, [1] * len(urls), range(len(urls)), etags, [5, 6, *[0] * 6])
    assert batch.base == ""
    parts = list(batch.by_backend())
    assert [block for part in parts for block in part] == list(batch)
    assert [part.base for part in parts[:3]] == ["/in/", "s3://x/m/", "s3a://y/"]
    assert [part.base for part in parts[3:]] == ["zip://a::/in/", "http://x/", "https://x/"]
    assert [part.etags for part in parts] == [(), ("tag 2", "tag 3"), ("tag 4",), (), (), ()]
    of_one_scheme = batch.slice(2, 4)
    assert [part.base for part in of_one_scheme.by_backend()] == ["s3://x/m/"]
    assert [*batch.slice(1, 1).by_backend()] == []


@given(FILES)
def test_a_batch_of_one_scheme_is_one_part(files: list[tuple[str, int, int]]) -> None:
    """It is read as it is, whatever directories it is from."""
    batch = batch_of(files)
    assert list(batch.by_backend()) == [batch]
