"""Holes of NULs: a log that is truncated while its writer does not append begins with one, and others are inside."""

from __future__ import annotations

import gzip
import random
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from dagflow.api.context import OperatorContext
from dagflow.errors import RecordError
from dagflow.metrics.names import CONTENT_BYTES, DELIMITER_BYTES, HOLE_BYTES, RECORD_BYTES, SKIPPED_BYTES
from operators.reader.block_reader import BlockReader
from operators.reader.formats import RECORD_FORMATS
from operators.splitter import FileSplitterInput
from operators.testing import read_cut
from tests.operators.splitter.changes.renames.restartable_splitter import RestartableSplitter
from tests.operators.splitter.splitter_driver import SplitterDriver
from tests.strangers.fuzzing import seeds


def read_all(path: Path, block_size: int, batch_bytes: int, **reader: Any) -> tuple[list[Any], Counter[str]]:
    """The records of a file, and what is counted."""
    window = SplitterDriver(
        FileSplitterInput(files=str(path), block_size=block_size, batch_bytes=batch_bytes)
    ).everything()
    counters: Counter[str] = Counter()
    context = OperatorContext(counters=counters)
    block_reader = BlockReader(**reader)
    found: list[Any] = []
    block_reader.messages.connect(lambda batch: found.extend(batch.to_pylist()))
    block_reader.setup(context)
    for item in window.blocks:
        for _ in block_reader.read(item) or ():
            pass
    block_reader.teardown()
    assert not any(context.accounting.values())
    accounted = counters[RECORD_BYTES] + counters[DELIMITER_BYTES] + counters[SKIPPED_BYTES]
    assert counters[CONTENT_BYTES] == accounted == path.stat().st_size
    return found, counters


@pytest.mark.parametrize(
    ("reader", "text", "records"),
    [
        ({}, b"one\ntwo\n", [b"one", b"two"]),
        ({}, b"unended", [b"unended"]),
        ({}, b"", []),
        ({"format": {"type": "lines", "max_record": 4, "on_long": "skip"}}, b"one\nlonger\ntwo\n", [b"one", b"two"]),
        ({"format": "json_lines"}, b'{"a":1}\n{"a":2}\n', [b'{"a":1}', b'{"a":2}']),
        ({"format": {"type": "csv", "header": False, "columns": ["a"]}}, b"1\n2\n", [{"a": "1"}, {"a": "2"}]),
        ({"format": "paragraphs"}, b"one\ntwo\n\nthree\n", [b"one\ntwo", b"three"]),
    ],
    ids=str,
)
@pytest.mark.parametrize(
    ("hole", "block_size", "batch_bytes"), [(4, 7, 0), (25, 7, 0), (25, 1 << 20, 1 << 20), (5000, 997, 0)]
)
def test_a_hole_is_skipped_with_its_place_and_count(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    reader: dict[str, Any],
    text: bytes,
    records: list[Any],
    hole: int,
    block_size: int,
    batch_bytes: int,
) -> None:
    """However the file is cut, the first record begins behind the hole, and all bytes are accounted for."""
    path = tmp_path / "app.log"
    path.write_bytes(bytes(hole) + text)
    found, counters = read_all(path, block_size, batch_bytes, **reader)
    assert (found, counters[HOLE_BYTES]) == (records, hole)
    assert caplog.messages.count(f"hole of {hole} NUL bytes skipped url={path} offset=0") == 1


@pytest.mark.parametrize("hole", [30, 40 << 20])
def test_a_follower_outlives_a_hole_longer_than_a_record_may_be(tmp_path: Path, hole: int) -> None:
    """A hole longer than a record may be is no long record."""
    log = tmp_path / "in" / "app.log"
    log.parent.mkdir()
    log.write_bytes(b"old\n")
    splitter = RestartableSplitter(tmp_path)
    assert splitter.scan() == [b"old"]
    (log.parent / "app.log.1").write_bytes(b"old\n")
    with log.open("r+b") as file:
        file.truncate(0)
        file.seek(hole)
        file.write(b"new\n")
    assert splitter.scan(3) == [b"new"]
    splitter.close()


@pytest.mark.parametrize(
    ("format", "texts", "records"),
    [
        ("lines", [b"one\n", b"two\n", b"three"], [b"one", b"two", b"three"]),
        ({"type": "lines", "keep_delimiter": True}, [b"one\r\n", b"two\n"], [b"one\r\n", b"two\n"]),
        ({"type": "lines", "delimiter": "||"}, [b"one||", b"two||", b"three"], [b"one", b"two", b"three"]),
        ("escaped_lines", [b"o\\\ne\n", b"two\n"], [b"o\\\ne", b"two"]),
        ({"type": "lines", "max_record": 15, "on_long": "cut"}, [b"one\n", b"two\n"], [b"one", b"two"]),
        ({"type": "lines", "max_record": 5}, [b"one\n", b"two\n"], [b"one", b"two"]),
        ("json_lines", [b'{"a":1}\n', b'{"a":2}\n'], [b'{"a":1}', b'{"a":2}']),
        ({"type": "csv", "header": False, "columns": ["a"]}, [b"1\n", b'"2"\n'], [{"a": "1"}, {"a": "2"}]),
        ("paragraphs", [b"one\nmore\n\n", b"two\n\n", b"three"], [b"one\nmore", b"two", b"three"]),
        ({"type": "regex", "pattern": "[ot]"}, [b"one\n more\n", b"two\n"], [b"one\n more", b"two"]),
    ],
    ids=str,
)
@pytest.mark.parametrize("block_size", [1, 7, 1 << 20])
def test_a_hole_between_records_is_skipped(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    format: Any,
    texts: list[bytes],
    records: list[Any],
    block_size: int,
) -> None:
    """A machine that lost power has left it: with its place and count, wherever the file is cut."""
    path = tmp_path / "app.log"
    path.write_bytes(bytes(9).join(texts))
    found, counters = read_all(path, block_size, 0, format=format)
    assert (found, counters[HOLE_BYTES]) == (records, 9 * (len(texts) - 1))
    assert f" NUL bytes skipped url={path} offset={len(texts[0])}" in caplog.text


def test_many_holes_of_a_batch_are_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A file that is no text does not fill the log."""
    path = tmp_path / "app.log"
    path.write_bytes(b"first\n" + (bytes(5) + b"a\n") * 1000)
    found, counters = read_all(path, 1 << 20, 0)
    assert (len(found), counters[HOLE_BYTES]) == (1001, 5000)
    assert caplog.messages == [f"1000 holes of 5000 NUL bytes skipped url={path} offset=6"]


@pytest.mark.parametrize("block_size", [1, 7, 1 << 20])
def test_a_record_that_is_too_long_is_cut_at_its_hole(tmp_path: Path, block_size: int) -> None:
    """NULs inside of a record are a part of it, but for those that would end the run."""
    path = tmp_path / "app.log"
    path.write_bytes(b"a\0\0\0\0b\nhalf" + bytes(30) + b"new\n" + bytes(30) + b"last\n" + bytes(30))
    found, counters = read_all(path, block_size, 0, format={"type": "lines", "max_record": 20})
    assert (found, counters[HOLE_BYTES]) == ([b"a\0\0\0\0b", b"half", b"new", b"last"], 90)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32-be", "latin-1", "utf-8"])
@pytest.mark.parametrize("block_size", [4, 1 << 20])
def test_a_hole_in_any_encoding_is_skipped(tmp_path: Path, encoding: str, block_size: int) -> None:
    """At the head and between lines: a zero byte of a character is none of the hole."""
    path = tmp_path / "app.log"
    hole, name = bytes(40), {"utf-16": "utf-16-le"}.get(encoding, encoding)
    path.write_bytes(hole + "one\n".encode(name) + hole + "twö\n".encode(name))
    found, counters = read_all(path, block_size, 0, format={"type": "lines", "encoding": encoding})
    assert (found, counters[HOLE_BYTES]) == ([b"one", "twö".encode()], 80)


@pytest.mark.parametrize("hole", [30, 40 << 20])
@pytest.mark.parametrize("begun", [b"", b"ha"])
def test_a_follower_outlives_any_hole_between_its_scans(tmp_path: Path, begun: bytes, hole: int) -> None:
    """Also one that begins within a record, which is published as far as it goes."""
    log = tmp_path / "in" / "app.log"
    log.parent.mkdir()
    log.write_bytes(b"old\n" + begun)
    splitter = RestartableSplitter(tmp_path)
    assert splitter.scan() == [b"old"]
    with log.open("r+b") as file:
        file.seek(hole)
        file.write(b"new\n")
    begins = begun if hole > 32 << 20 else begun + bytes(hole - 6) if begun else b""
    expected = [begun, b"new"] if hole > 32 << 20 and begun else [begins + b"new"]
    assert splitter.scan(3) == expected
    assert splitter.scan() == []
    splitter.close()


@pytest.mark.parametrize(
    ("content", "records"),
    [(b"\0\0\0\0a\0", [b"", b"", b"", b"", b"a"]), (b"\0\0\0", [b"", b"", b""])],
)
def test_nuls_that_end_records_are_no_hole(tmp_path: Path, content: bytes, records: list[bytes]) -> None:
    """A file of records that end with NULs keeps its empty records."""
    path = tmp_path / "names"
    path.write_bytes(content)
    found, counters = read_all(path, 1 << 20, 0, format={"type": "lines", "delimiter": "\0"})
    assert (found, counters[HOLE_BYTES]) == (records, 0)


def test_a_compressed_file_is_not_read_beyond_its_complete_part(tmp_path: Path) -> None:
    """A hole at the head of its content reaches to the end of what is complete, and the rest waits."""
    content = gzip.compress(bytes(4)) + gzip.compress(bytes(4) + b"new\n")
    path = tmp_path / "in" / "app.log.gz"
    path.parent.mkdir()
    path.write_bytes(content[:-9])
    splitter = RestartableSplitter(tmp_path)
    assert splitter.scan(2) == []
    path.write_bytes(content)
    assert splitter.scan(2) == [b"new"]
    splitter.close()


ANY_FORMAT: list[dict[str, Any]] = [
    {"type": "lines"},
    {"type": "lines", "max_record": 6},
    {"type": "lines", "max_record": 6, "on_long": "cut"},
    {"type": "lines", "delimiter": "||", "max_record": 9},
    {"type": "lines", "encoding": "utf-16-le"},
    {"type": "escaped_lines", "max_record": 7},
    {"type": "json_lines", "max_record": 8},
    {"type": "csv", "header": False, "columns": ["a"]},
    {"type": "csv", "header": False, "columns": ["a"], "quote": "none", "max_record": 8},
    {"type": "paragraphs"},
    {"type": "paragraphs", "max_record": 8},
    {"type": "paragraphs", "max_record": 4, "keep_delimiter": True},
    {"type": "paragraphs", "keep_delimiter": True},
    {"type": "regex", "pattern": "a"},
    {"type": "regex", "pattern": "a", "max_record": 8},
]
PIECES = [bytes(4), bytes(9), b"\0", b" ", b"a", b"b", b"\n", b"\n", b"\r\n", b"||", b"\\"]


def records_or_error(format: dict[str, Any], chunk_bytes: int, content: bytes, block_size: int) -> Any:
    """The records of all blocks of a file, and its rejects, or that the run ends; all bytes are accounted for."""
    made = RECORD_FORMATS.make(format)
    made.chunk_bytes = chunk_bytes
    try:
        return read_cut(made, content, block_size)
    except RecordError as error:
        return error.offset


ANY_LONG: list[dict[str, Any]] = [
    {"type": "lines"},
    {"type": "escaped_lines"},
    {"type": "json_lines"},
    {"type": "csv", "header": False, "columns": ["a"]},
    {"type": "csv", "header": False, "columns": ["a"], "quote": "none"},
    {"type": "paragraphs"},
    {"type": "paragraphs", "keep_delimiter": True},
    {"type": "regex", "pattern": "."},
]


def test_holes_are_the_same_wherever_a_file_is_cut() -> None:
    """Whatever the format, the content, its blocks and what is held of them."""
    for seed in seeds(50):
        dice = random.Random(seed)
        content = b"".join(dice.choices(PIECES, k=dice.randint(1, 14)))
        format, block_size, chunk_bytes = dice.choice(ANY_FORMAT), dice.randint(1, len(content)), dice.choice([1, 2, 5])
        whole = records_or_error(format, 1 << 20, content, len(content))
        found = records_or_error(format, chunk_bytes, content, block_size)
        assert found == whole, (seed, format, content, block_size, chunk_bytes)


@pytest.mark.parametrize("format", ANY_LONG, ids=lambda format: format["type"])
@pytest.mark.parametrize("hole", [60, pytest.param(33 << 20, marks=pytest.mark.nightly)])
def test_a_hole_that_makes_a_record_too_long_is_skipped_in_every_format(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, format: dict[str, Any], hole: int
) -> None:
    """The text before it and the text behind it are taken, and the hole is told with its place and count."""
    path = tmp_path / "app.log"
    if hole < 1 << 20:
        format = format | {"max_record": 50}
    with path.open("wb") as file:
        file.write(b"1\n\n2")
        file.seek(4 + hole)
        file.write(b"3\n\n4\n")
    for block_size in (hole // 2, 1 << 30):
        caplog.clear()
        records, counters = read_all(path, block_size, 0, format=format)
        texts = [record if isinstance(record, bytes) else record["a"].encode() for record in records]
        assert [text.strip() for text in texts if text] == [b"1", b"2", b"3", b"4"]
        assert counters[HOLE_BYTES] == hole
        assert f"hole of {hole} NUL bytes skipped url={path} offset=4" in caplog.text


def test_a_hole_of_any_length_within_a_paragraph_takes_no_memory() -> None:
    """Whether text or a blank line follows it."""
    made = RECORD_FORMATS.make({"type": "paragraphs", "max_record": 1 << 12})
    made.chunk_bytes = 1 << 12
    for before, behind, records in [
        (b"half", b"rest\n\nlast", [b"half", b"rest", b"last"]),
        (b"half", b"\n \n  last", [b"half", b"  last"]),
        (b"half", b"\n  more", [b"half", b"  more"]),
        (b"half\n", b"\n  last", [b"half", b"  last"]),
    ]:
        content = before + bytes(8 << 20) + behind
        tracemalloc.start()
        found, _ = read_cut(made, content, len(content))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert [record for _, record in found] == records
        assert peak < 3 << 20, (before, behind, peak)
