"""Files that are read while they grow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dagflow.api.records import RecordBatch
from dagflow.engine.run import run
from dagflow.errors import RecordError
from dagflow.metrics.names import RESUMED_BYTES, WAITING_BYTES
from dagflow.plan.load import load_app
from dagflow.runtime.local import InlineRuntime
from operators.files.metadata import BlockMetadata, Continuation, FileVersion
from operators.reader.byte_source import ByteSource, read_exactly
from operators.reader.content import ContentReader, resumed_block
from operators.reader.formats import RECORD_FORMATS
from operators.reader.formats.base import ByteAccounting, RecordFormat, scanned_before
from operators.reader.scanning.framing import frame_one
from operators.testing import URL, MemorySource, Records, read_cut
from tests.nightly import examples

FORMATS: list[tuple[Any, list[bytes]]] = [
    ("lines", [b"\r", b"\n", b"a", b"\xef\xbb\xbf"]),
    ({"type": "lines", "delimiter": "||"}, [b"|", b"||", b"a"]),
    ({"type": "lines", "delimiter": "|+|"}, [b"|", b"+", b"a"]),
    ({"type": "lines", "skip_header": 1}, [b"\n", b"a", b"bc\n"]),
    ({"type": "lines", "max_record": 2, "on_long": "cut"}, [b"\n", b"a", b"abcdefgh"]),
    (
        {"type": "lines", "encoding": "utf-16-le", "on_bad_bytes": "replace"},
        ["\n".encode("utf-16-le"), b"a", "ab".encode("utf-16-le")],
    ),
    ("escaped_lines", [b"\\", b"\n", b"a", b"\r"]),
    ({"type": "csv", "header": False, "columns": ["a"]}, [b'"', b"\n", b"a", b",", b'"\n']),
    ("paragraphs", [b"\n", b"a", b" ", b"\r\n"]),
    ({"type": "regex", "pattern": "[0-9]"}, [b"\n", b"1", b"a", b"2\n"]),
    ({"type": "regex", "pattern": "1$"}, [b"\n", b"1", b"a"]),
    (
        {"type": "xml", "tag": "a"},
        [b"<a>", b"</a>", b"<a b='", b"'/>", b"<!--", b"-->", b"x", b"<", b"</r>", b"<?", b"?>"],
    ),
    ({"type": "fixed", "length": 3}, [b"a", b"bcd"]),
    ({"type": "length_prefixed", "prefix": 1}, [b"\0", b"\1", b"\2", b"\5"]),
]


def read_version(
    made: RecordFormat, content: bytes, start: int, block_size: int, accounting: ByteAccounting
) -> Records:
    """What the blocks of one version give, cut at multiples from where the version before ended."""
    records: Records = []
    position, state = start, 0
    source = MemorySource(content)
    while position < len(content):
        end = min((position // block_size + 1) * block_size, len(content))
        block = BlockMetadata(
            *(0, URL, FileVersion(len(content)), position, end, end == len(content)),
            entry_state=state,
            continuation=Continuation(is_open=True, resumes=0 < position == start),
        )
        if (scanned := scanned_before(made)) and not block.is_last:
            state = scanned.exit_state(state, scanned.prescan(source, resumed_block(made, source, block)))
        for batch in ContentReader(made, "none").read(source, block, accounting):
            raw = made.parse(batch, accounting).raw
            records += zip(raw.offsets().tolist(), raw.to_pylist(), strict=True)
        position = end
    return records


@settings(max_examples=examples(400))
@given(st.data())
def test_a_growing_file_gives_each_record_once(data: st.DataObject) -> None:
    """Whenever it is looked at, however it is cut: the records of the last version; the last one may wait.

    With a regex the one before waits too, until the line that may begin the next record is complete.
    """
    options, pieces = data.draw(st.sampled_from(FORMATS))
    content = b"".join(data.draw(st.lists(st.sampled_from(pieces), max_size=24)))
    sizes = sorted(data.draw(st.sets(st.integers(1, max(1, len(content))), max_size=6)) | {len(content)})
    made = RECORD_FORMATS.make(options)
    made.chunk_bytes = data.draw(st.sampled_from([4, 7, 1 << 20]))
    accounting = ByteAccounting(URL, Counter(), lambda reject: None)
    records: Records = []
    start = 0
    for size in sizes:
        block_size = data.draw(st.integers(1, 12))
        records += read_version(
            RECORD_FORMATS.make(options) if size % 2 else made, content[:size], start, block_size, accounting
        )
        start = size
    whole = read_cut(RECORD_FORMATS.make(options), content, max(1, len(content)))[0]
    most_waiting = 2 if "pattern" in options else 1
    assert records == whole[: len(records)]
    assert len(whole) - len(records) <= most_waiting
    waiting = accounting.counters[WAITING_BYTES] - accounting.counters[RESUMED_BYTES]
    assert waiting == len(content) - (RECORD_FORMATS.make(options).complete_end(MemorySource(content)) or 0)


@example(b"one\ntwo\nthr", b"ee\n")
@given(st.binary(max_size=20), st.binary(max_size=20))
def test_what_was_kept_is_read_again_with_its_end(before: bytes, added: bytes) -> None:
    """A version that was read to its end as if complete: nothing is lost, and every record of the new one is there."""
    made = RECORD_FORMATS.make("lines")
    accounting = ByteAccounting(URL, Counter(), None)
    content = before + added
    kept = read_cut(made, before, max(1, len(before)))[0]
    tail = read_version(made, content, len(before), 1 << 20, accounting) if added else []
    found = dict(kept) | dict(tail)
    whole = read_cut(made, content, max(1, len(content)))[0]
    for offset, record in whole[:-1]:
        assert found[offset] == record


def test_a_long_record_in_progress_is_not_held_in_memory() -> None:
    """The search for its end goes through the file in steps, and finds where it begins."""
    content = b"short\n" + b"x" * 100_000
    for options in ("lines", {"type": "csv", "header": False, "columns": ["a"]}):
        made = RECORD_FORMATS.make(options)
        made.chunk_bytes = 64
        assert made.complete_end(MemorySource(content)) == 6
        assert made.complete_end(MemorySource(content + b"\ny")) == 100_007
        assert made.complete_end(MemorySource(content + b"\n")) == 100_007
        assert made.complete_end(MemorySource(content + b"\r")) == 6


@pytest.mark.parametrize(
    ("content", "waiting"),
    [
        (b"<r><a/></r>\n", 0), (b"<r></r>", 0), (b"<r><ab", 0), (b"x < y", 0), (b"<r><a", 2), (b"<r><", 1),
        (b"<a>x</a", 7), (b"<a/><!-- <a/>", 9), (b"<a/><!", 2), (b"<!DOCTYPE r [", 13), (b"<a>" + b"x" * 99, 0),
    ],
)  # fmt: skip
def test_of_xml_only_what_may_be_an_element_waits(content: bytes, waiting: int) -> None:
    """A complete file, or one that no end can repair, does not wait; a file in UTF-16 is refused at once."""
    made = RECORD_FORMATS.make({"type": "xml", "tag": "a", "max_record": 50})
    assert made.complete_end(MemorySource(content)) == len(content) - waiting
    assert made.complete_end(MemorySource(content.decode().encode("utf-16"))) is None


def test_a_record_in_progress_is_found_from_the_end() -> None:
    """Only the end of a growing file is read to find its last complete record."""
    source = MemorySource(b"line\n" * 100_000 + b"part")
    reads: list[int] = []

    class Watched(MemorySource):
        def read_into(self, offset: int, buffer: memoryview) -> int:
            reads.append(offset)
            return super().read_into(offset, buffer)

    assert RECORD_FORMATS.make("lines").complete_end(Watched(source.content)) == 500_000
    assert min(offset for offset in reads if offset) > 490_000


def test_a_format_that_has_no_place_to_go_on_from_begins_again() -> None:
    """A file that is one record cannot be continued: the longer one is a new record, and its bytes add up."""
    block = BlockMetadata(0, URL, FileVersion(8), 4, 8, True).continued(resumes=True)
    accounting = ByteAccounting(URL, Counter(), None)
    made = RECORD_FORMATS.make("whole_file")
    batches = ContentReader(made, "none").read(MemorySource(b"12345678"), block, accounting)
    assert [record for batch in batches for record in accounting.parse(made, batch).raw.to_pylist()] == [b"12345678"]
    assert (accounting.due, accounting.covered, accounting.counters[RESUMED_BYTES]) == (8, 8, 0)


class ThreeByteRecords(RecordFormat):
    """Every three bytes are a record; it does not say where a file can be gone on with."""

    def read(self, source: ByteSource, block: BlockMetadata, accounting: ByteAccounting) -> Iterator[RecordBatch]:
        """The records that begin in a block."""
        for offset in range(-(-block.start // 3) * 3, min(block.end, source.size_bytes), 3):
            yield frame_one(read_exactly(source, offset, offset + 3).tobytes(), b"", block, offset)


def test_a_format_without_a_complete_end_refuses_appended_files() -> None:
    """Its records would be there twice, or a part of one would be lost; a file that has not grown is read."""
    whole = BlockMetadata(0, URL, FileVersion(6), 0, 6, True)
    reader = ContentReader(ThreeByteRecords(), "none")
    batches = reader.read(MemorySource(b"aaabbb"), whole, ByteAccounting(URL, Counter(), None))
    assert [record for batch in batches for record in batch.to_pylist()] == [b"aaa", b"bbb"]
    with pytest.raises(RecordError, match=r"appended to, and ThreeByteRecords has no complete_end\(\)") as caught:
        later = replace(whole, start=6, end=9).continued(resumes=True)
        resumed_block(ThreeByteRecords(), MemorySource(b"aaabbbccc"), later)
    assert caught.value.offset == 6


class ContinuesGrownFiles(ThreeByteRecords):
    """The same, and says where a file can be gone on with."""

    def complete_end(self, source: ByteSource) -> int:
        """The end of the last whole record."""
        return source.size_bytes // 3 * 3


class ReadsGrownFilesAnew(ThreeByteRecords):
    """The same, and has a longer file read as a new one."""

    def complete_end(self, source: ByteSource) -> None:
        """None: a longer file has no place to continue from."""


APP = """
name: threes
attributes: {{checkpoint: {root}/journal}}
operators:
  splitter: {{class: FileSplitterInput, properties: {{files: {root}/in}}}}
  reader: {{class: BlockReader, properties: {{format: {module}.{format}}}}}
  writer: {{class: RecordWriter, properties: {{path: {root}/out}}, partition: parallel}}
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  records: {{from: reader.messages, to: writer.input}}
"""


@pytest.mark.parametrize(
    ("format", "published"), [("ContinuesGrownFiles", b"aaabbbccc"), ("ReadsGrownFilesAnew", b"aaabbbaaabbbccc")]
)
def test_a_complete_end_lets_a_run_go_on_behind_what_was_read(tmp_path: Path, format: str, published: bytes) -> None:
    """As the error advises: with each record once, or with the longer file as a new one."""
    app, file = tmp_path / "app.yaml", tmp_path / "in" / "a"
    file.parent.mkdir()
    file.write_bytes(b"aaabbb")

    def work(format: str) -> None:
        app.write_text(APP.format(root=tmp_path, module=__name__, format=format))
        run(load_app(app), runtime=InlineRuntime)

    work("ThreeByteRecords")
    with file.open("ab") as more:
        more.write(b"ccc")
    with pytest.raises(RecordError, match=r"ThreeByteRecords has no complete_end\(\)"):
        work("ThreeByteRecords")
    work(format)
    work(format)
    assert b"".join(path.read_bytes() for path in sorted((tmp_path / "out").glob("part-*"))) == published
