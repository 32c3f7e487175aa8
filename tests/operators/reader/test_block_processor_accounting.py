"""The byte accounting of a run: what became of every byte, what was refused, and when that is too much."""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagflow.api.records import RecordBatch
from dagflow.engine.run import run
from dagflow.engine.run_setup import RuntimeFactory
from dagflow.errors import AppError, DagflowError
from dagflow.plan.load import load_app
from dagflow.report.reading import status
from dagflow.report.snapshot import RunSnapshot
from dagflow.runtime.local import InlineRuntime
from dagflow.storage.context import StorageContext
from operators.files.metadata import BlockMetadata
from operators.reader.block_reader import BlockReader
from operators.reader.byte_source import ByteSource
from operators.reader.formats.base import ByteAccounting, Parsed
from operators.reader.formats.lines import Lines
from operators.reader.scanning.framing import frame_one
from tests.nightly import by_day, examples
from tests.operators.reader.test_content_compression import COMPRESS, SUFFIX
from tests.spec.apps import check

APP = """
name: account
attributes: {{checkpoint: {work}/journal}}
operators:
  splitter:
    class: FileSplitterInput
    properties: {{files: {work}/in, block_size: {block_size}, blocks_threshold: {threshold},
        batch_bytes: {batch_bytes}}}
  reader: {{class: BlockReader, properties: {{{reader}}}}}
  writer: {{class: RecordWriter, properties: {{path: {work}/out, file_name: {name}}}, partition: parallel}}{rejects}
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  records: {{from: reader.messages, to: writer.input}}{refused}
"""
REJECTS = "\n  rejects: {{class: RecordWriter, properties: {{path: {work}/rejects}}, partition: parallel}}"
REFUSED = "\n  refused: {from: reader.errors, to: rejects.input}"


def run_app(
    work: Path,
    reader: str,
    files: dict[str, bytes] | None = None,
    *,
    block_size: int = 7,
    threshold: int = 1000,
    batch_bytes: int = 0,
    file_name: str = "part",
    takes_rejects: bool = True,
    runtime: RuntimeFactory = InlineRuntime,
) -> RunSnapshot:
    """Read files with a BlockReader of the given properties, in this process.

    Args:
        work: Holds the input in `in`, what is published in `out`, and what is refused in `rejects`.
        reader: Properties of the BlockReader, as YAML.
        files: Contents of files that are put into `in` first.
        block_size: Bytes of a block.
        threshold: Blocks of a window.
        batch_bytes: Smaller files are read in batches.
        file_name: Names of the published files.
        takes_rejects: Whether the reader's errors are written.
        runtime: Runs the windows.
    """
    (work / "in").mkdir(exist_ok=True)
    for name, content in (files or {}).items():
        (work / "in" / name).write_bytes(content)
    app = work / "app.yaml"
    app.write_text(
        APP.format(
            work=work,
            reader=reader,
            block_size=block_size,
            threshold=threshold,
            batch_bytes=batch_bytes,
            name=file_name,
            rejects=REJECTS.format(work=work) if takes_rejects else "",
            refused=REFUSED if takes_rejects else "",
        )
    )
    return run(load_app(str(app)), runtime=runtime)


def published(folder: Path) -> bytes:
    """What was published, in order of names."""
    return b"".join(path.read_bytes() for path in sorted(folder.iterdir())) if folder.is_dir() else b""


class LosesTails(Lines):
    """Lines, but a last one without newline is forgotten."""

    name: ClassVar[str] = "loses_tails"

    def _last(self, *arguments: object) -> Iterator[RecordBatch]:
        return iter(())


class ReadsNextFirstByte(Lines):
    """Lines, but every block also has the first byte of the next."""

    name: ClassVar[str] = "doubles"

    def read(self, source: ByteSource, block: BlockMetadata, accounting: ByteAccounting) -> Iterator[RecordBatch]:
        """One batch too many for blocks that do not end the file."""
        yield from super().read(source, block, accounting)
        if not block.is_last:
            yield frame_one(b"x", b"", block, block.end)


class DropsSilently(Lines):
    """Lines, but records that begin with an x are dropped and not counted."""

    name: ClassVar[str] = "forgets"

    def parse(self, batch: RecordBatch, accounting: ByteAccounting) -> Parsed:
        """Drop them."""
        import pyarrow.compute as pc

        return Parsed(batch.filter(pc.invert(pc.starts_with(batch.record, b"x"))))


def test_rejects_reach_a_writer_as_json_lines_with_all_facts(tmp_path: Path) -> None:
    """Each line has the file, offset, length, reason and bytes of one refused record; the others are published."""
    content = b'{"a": 1}\nnot json\n{"a": 2}\n\xff\xfe\n'
    summary = run_app(tmp_path, "format: json_lines", {"x.jsonl": content})
    assert published(tmp_path / "out") == b'{"a": 1}\n{"a": 2}\n'
    facts = [json.loads(line) for line in published(tmp_path / "rejects").splitlines()]
    for each in facts:
        raw = base64.b64decode(each["raw"])
        assert content[each["offset"] : each["offset"] + each["length"]] == raw
        assert each["url"] == str(tmp_path / "in" / "x.jsonl")
    assert [(each["offset"], each["reason"][:9]) for each in facts] == [(9, "not JSON:"), (27, "not valid")]
    assert summary.rejected == 2


@pytest.mark.parametrize("most", ["3", "'30%'", "'100%'"])
def test_a_run_within_its_limit_of_rejects_completes(tmp_path: Path, most: str) -> None:
    """The limit itself is allowed, as a count and as a share of all records."""
    content = b"{}\n" * 7 + b"no\n" * 3
    summary = run_app(tmp_path, f"format: json_lines, max_rejects: {most}", {"x": content})
    assert (summary.state, summary.rejected) == ("completed", 3)


@pytest.mark.parametrize("most", ["2", "0", "'29%'", "'0.5%'", "'0%'"])
def test_a_run_beyond_its_limit_of_rejects_fails(tmp_path: Path, most: str) -> None:
    """The window that exceeds the limit publishes nothing."""
    content = b"{}\n" * 7 + b"no\n" * 3
    shown = most.strip("'")
    with pytest.raises(
        DagflowError, match=f"3 of 10 records were refused, and max_rejects is {shown}; window .*\n.*errors"
    ):
        run_app(tmp_path, f"format: json_lines, max_rejects: {most}", {"x": content})
    assert published(tmp_path / "out") == published(tmp_path / "rejects") == b""


def test_a_limit_counts_what_earlier_windows_of_the_run_have_refused(tmp_path: Path) -> None:
    """Rejects of all windows of a run count; the next run begins anew."""
    content = b"{}\nno\n" * 20
    with pytest.raises(DagflowError, match=r"1[12] of .* records were refused, and max_rejects is 10"):
        run_app(tmp_path, "format: json_lines, max_rejects: 10", {"x": content}, block_size=6, threshold=4)
    before = published(tmp_path / "rejects").count(b"\n")
    assert 0 < before <= 10
    run_app(tmp_path, f"format: json_lines, max_rejects: {20 - before}", block_size=6, threshold=4)
    assert published(tmp_path / "rejects").count(b"\n") == 20
    assert published(tmp_path / "out") == b"{}\n" * 20


@pytest.mark.parametrize("most", ["1 %", "%", "-1%", "many", "true"])
def test_a_limit_that_is_none_is_refused(tmp_path: Path, most: str) -> None:
    """The app is refused before anything runs."""
    with pytest.raises(AppError, match="max_rejects"):
        run_app(tmp_path, f"max_rejects: '{most}'")


@pytest.mark.parametrize("most", ["150%", "100.01%"])
def test_a_share_of_more_than_all_records_is_refused_where_it_stands(tmp_path: Path, most: str) -> None:
    """It would limit nothing, which is not what was meant."""
    (tmp_path / "app.yaml").write_text(
        f"name: x\noperators:\n  r: {{class: BlockReader, properties: {{max_rejects: {most}}}}}\n"
    )
    found = [f"{each.line}:{each.column}: {each.message}" for each in check(tmp_path / "app.yaml")]
    assert (
        "3:53: operator 'r' (BlockReader), property 'max_rejects': expected a whole number, got "
        f"'{most}'; {most} is more than all records; give 100% at most, or null for any number" in found
    )


def test_no_records_at_all_are_within_any_share() -> None:
    """An empty run is within any limit."""
    BlockReader(max_rejects="0%").check_limits({})
    BlockReader().check_limits({"rejected": 10})


@pytest.mark.parametrize("wrong", by_day(1, [LosesTails, ReadsNextFirstByte, DropsSilently]))
def test_a_format_that_loses_or_makes_up_bytes_fails_the_run(tmp_path: Path, wrong: type) -> None:
    """The byte accounting of the file does not add up, and the run does not call itself complete."""
    with pytest.raises(DagflowError, match=r"the byte accounting does not add up: .*x.txt of 19 bytes.* off by -?\d"):
        run_app(tmp_path, f"format: {wrong.__module__}.{wrong.__name__}", {"x.txt": b"aaa\nxbb\n\ncccc\nddddd"})


@pytest.mark.parametrize("batch_bytes", [0, 1 << 20])
def test_a_file_that_is_left_out_keeps_the_accounting_right(tmp_path: Path, batch_bytes: int) -> None:
    """The records of the other files are published."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "gone.txt").symlink_to(tmp_path / "nowhere")
    reader = "format: lines, on_error: skip"
    summary = run_app(tmp_path, reader, {"a.txt": b"aaa\nb", "b.txt": b"\nccc\n"}, batch_bytes=batch_bytes)
    assert (summary.state, published(tmp_path / "out").count(b"\n")) == ("completed", 4)


@pytest.mark.parametrize("block_size", by_day(2, [1, 40, 100, 1000]))
@pytest.mark.parametrize("compression", ["gzip", "zstd", "bzip2"])
@pytest.mark.parametrize("format", ["lines", "{type: xml, tag: t}"])
def test_what_is_lost_of_a_damaged_archive_is_left_out(
    format: str, compression: str, block_size: int, tmp_path: Path
) -> None:
    """Its bytes, and those of the blocks that are read, are all of the file; nothing that is listed is published."""
    lines = [b"<t>%d</t>\n" % number for number in range(10)]
    units = [COMPRESS[compression](line) for line in lines]
    borders = [*itertools.accumulate(map(len, units), initial=0)]
    content = bytearray(b"".join(units))
    content[borders[5]] ^= 1
    files = {f"a{SUFFIX[compression]}": bytes(content)}
    summary = run_app(tmp_path, f"format: {format}, on_error: skip", files, block_size=block_size)
    lost = sorted((each.lost_start, each.lost_end) for each in summary.left_out.newest)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(lost))
    assert {border for each in lost for border in each} <= {*borders}
    assert lost[-1][1] == len(content)
    assert summary.left_out.bytes == sum(end - start for start, end in lost) == len(content) - summary.bytes
    read = [line for line, start in zip(lines, borders, strict=False) if not any(a <= start < b for a, b in lost)]
    assert published(tmp_path / "out") == b"".join(read if format == "lines" else [])
    assert status(str(tmp_path / "journal"), StorageContext.default()).left_out == summary.left_out


PIECES = [b"\n", b"\r", b"a", b"bbbb", b'"', b"<t>", b"</t>", b"{}", b"\\", b"\n\n"]
FORMATS = [
    "lines",
    "{type: lines, delimiter: '||'}",
    "{type: lines, max_record: 3, on_long: skip}",
    "{type: lines, skip_header: 2, max_record: 2, on_long: cut}",
    "{type: escaped_lines, unescape: true}",
    "{type: csv, header: false, columns: [x]}",
    "json_lines",
    "{type: regex, pattern: a}",
    "paragraphs",
    "{type: fixed, length: 3}",
    "{type: length_prefixed, prefix: 1}",
    "{type: xml, tag: t}",
    "whole_file",
]


@pytest.mark.parametrize("format", by_day(7, FORMATS))
def test_every_byte_of_a_run_is_accounted_for_whatever_the_blocks(
    format: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Bytes are records, delimiters, rejects and skips; the sums of a run say so, in files and in batches."""

    @settings(max_examples=examples(8))
    @given(
        st.lists(st.lists(st.sampled_from(PIECES), max_size=12).map(b"".join), min_size=1, max_size=3),
        st.integers(1, 9),
        st.sampled_from([0, 1 << 20]),
    )
    def check(contents: list[bytes], block_size: int, batch_bytes: int) -> None:
        work = tmp_path_factory.mktemp("run")
        files = {f"{number}.txt": content for number, content in enumerate(contents)}
        summary = run_app(work, f"format: {format}", files, block_size=block_size, batch_bytes=batch_bytes)
        assert summary.state == "completed"
        accounting = summary.byte_accounting()
        assert accounting["bytes"] == summary.bytes == sum(map(len, contents))
        assert accounting.pop("bytes") == sum(accounting.values())

    check()
