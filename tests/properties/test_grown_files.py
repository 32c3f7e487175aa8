"""Files that are appended to, or renamed, between the plan and the read of a run to completion."""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.execution.messages import Program, WindowJob
from dagflow.plan.load import load_app
from dagflow.plan.logical import LogicalPlan
from dagflow.runtime.base import Runtime
from dagflow.runtime.local import InlineRuntime
from operators.files.metadata import BlockMetadata, Continuation, FileVersion
from operators.reader.content import ContentReader, resumed_block
from operators.reader.formats import RECORD_FORMATS
from operators.reader.formats.base import ByteAccounting, RecordFormat, scanned_before
from operators.testing import URL, MemorySource, Records, read_cut
from tests.nightly import by_day, examples
from tests.operators.reader.test_content_growing import FORMATS
from tests.operators.splitter.splitter_driver import write

APP = """\
name: sample
attributes: {{checkpoint: {folder}/journal}}
operators:
  splitter: {{class: FileSplitterInput, properties: {{files: "{folder}/in", {splitter}}}}}
  reader: {{class: BlockReader, properties: {{format: {format}}}}}
  writer: {{class: RecordWriter, properties: {{path: "{folder}/out"}}, partition: parallel}}
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  records: {{from: reader.messages, to: writer.input}}
"""

CUTS = {
    "in a batch": "block_size: 1MiB",
    "alone": "batch_bytes: 0",
    "in blocks": "block_size: 4",
    "in windows": "block_size: 4, blocks_threshold: 1",
    "waiting": "block_size: 4, unterminated: wait",
    "batch that waits": "unterminated: wait",
    "keeping": "unterminated: keep",
}


def app_over(folder: Path, splitter: str, format: str = "lines") -> LogicalPlan:
    """An app over a directory."""
    write(folder / "app.yaml", APP.format(folder=folder, splitter=splitter, format=format))
    return load_app(str(folder / "app.yaml"))


def at_window(window_id: int, act: Callable[[], object]) -> Callable[[Program], Runtime]:
    """A runtime in which something happens when a window was planned, and before it runs."""

    def before(window: WindowJob) -> None:
        if window.window_id == window_id:
            act()

    return lambda program: InlineRuntime(program, before=before)


def appending(path: Path, data: bytes) -> Callable[[], object]:
    """Appends to a file."""

    def act() -> None:
        with path.open("ab") as file:
            file.write(data)

    return act


def published(folder: Path) -> list[bytes]:
    """The records that were published, sorted."""
    return sorted(b"".join(file.read_bytes() for file in (folder / "out").iterdir()).splitlines())


@pytest.mark.parametrize("splitter", by_day(3, CUTS.values()), ids=by_day(3, CUTS))
def test_what_is_appended_before_the_read_comes_with_the_next_run(tmp_path: Path, splitter: str) -> None:
    """The planned bytes are read as planned; a record that their end cuts is read once, whole."""
    app, path = app_over(tmp_path, splitter), write(tmp_path / "in" / "a", b"line 1\nL2")
    first = run(app, RunOptions(), runtime=at_window(1, appending(path, b"\nL3\nL4")))
    assert (first.state, published(tmp_path)) == ("completed", [b"line 1"])
    run(app, RunOptions(), runtime=at_window(first.last_planned + 1, appending(path, b" and more\n")))
    run(app, RunOptions(), runtime=InlineRuntime)
    assert published(tmp_path) == [b"L2", b"L3", b"L4 and more", b"line 1"]


@pytest.mark.parametrize("splitter", CUTS.values(), ids=CUTS)
def test_a_log_that_is_rotated_before_the_read_is_read_under_its_new_name(tmp_path: Path, splitter: str) -> None:
    """The planned version is found by its inode, and read on there, though no location takes that name."""
    app, path = (
        app_over(tmp_path, splitter + ", file_pattern: app.log"),
        write(tmp_path / "in" / "app.log", b"1\n2\n3\n"),
    )

    def rotate() -> None:
        appending(path, b"4\n")()
        path.rename(path.with_name("app.log.1"))
        write(path, b"new 1\nnew 2\n")

    assert run(app, RunOptions(), runtime=at_window(1, rotate)).state == "completed"
    assert published(tmp_path) == [b"1", b"2", b"3"]
    run(app, RunOptions(), runtime=InlineRuntime)
    assert published(tmp_path) == [b"1", b"2", b"3", b"4", b"new 1", b"new 2"]


def test_a_compressed_file_that_grows_before_the_read_is_read_once(tmp_path: Path) -> None:
    """Whether the planned end is the end of a member, or lies within one."""
    one, two = gzip.compress(b"1\n2\n"), gzip.compress(b"3\n4\n")
    app = app_over(tmp_path, "batch_bytes: 0")
    path = write(tmp_path / "in" / "a.gz", one)
    other = write(tmp_path / "in" / "b.gz", one + two[:10])

    def append() -> None:
        appending(path, two)()
        appending(other, two[10:])()

    run(app, RunOptions(), runtime=at_window(1, append))
    assert published(tmp_path) == [b"1", b"1", b"2", b"2"]
    run(app, RunOptions(), runtime=InlineRuntime)
    assert published(tmp_path) == [b"1", b"1", b"2", b"2", b"3", b"3", b"4", b"4"]


@settings(max_examples=examples(150))
@given(st.data())
def test_a_file_that_grew_after_its_plan_gives_each_record_once(data: st.DataObject) -> None:
    """Whatever the cuts: a version's last record waits, and the next version has it whole; the bytes add up."""
    options, pieces = data.draw(st.sampled_from(FORMATS))
    content = b"".join(data.draw(st.lists(st.sampled_from(pieces), min_size=2, max_size=24)))
    planned = data.draw(st.integers(1, max(1, len(content) - 1)))
    made = RECORD_FORMATS.make(options)
    made.chunk_bytes = data.draw(st.sampled_from([4, 7, 1 << 20]))
    records = _read_version(made, content[:planned], 0, data.draw(st.integers(1, 12)), has_grown=True)
    if planned < len(content):
        records += _read_version(made, content, planned, data.draw(st.integers(1, 12)), has_grown=False)
    whole = read_cut(RECORD_FORMATS.make(options), content, max(1, len(content)))[0]
    # Of a regex two records may wait, and begin in two blocks, of which the second does not know of the first.
    assert sorted(set(records)) == sorted(whole) if "pattern" in options else sorted(records) == sorted(whole)


@settings(max_examples=examples(150))
@given(st.data())
def test_blocks_that_saw_a_file_before_and_after_it_grew_add_up(data: st.DataObject) -> None:
    """Nothing is lost, and each byte is accounted for, whichever blocks were read before the append."""
    content = b"".join(data.draw(st.lists(st.sampled_from([b"\n", b"a", b"bcd"]), min_size=2, max_size=12)))
    planned = data.draw(st.integers(1, max(1, len(content) - 1)))
    made = RECORD_FORMATS.make("lines")
    flags = data.draw(st.lists(st.booleans(), min_size=len(content), max_size=len(content)))
    records = _read_version(made, content[:planned], 0, data.draw(st.integers(1, 12)), has_grown=flags)
    records += _read_version(made, content, planned, 1 << 20, has_grown=False) if planned < len(content) else []
    assert set(read_cut(made, content, max(1, len(content)))[0]) <= set(records)


def _read_version(
    made: RecordFormat, content: bytes, start: int, block_size: int, *, has_grown: bool | list[bool]
) -> Records:
    """What the blocks of a version give that is not expected to grow; its bytes add up."""
    records: Records = []
    position, state = start, 0
    source, accounting = MemorySource(content), ByteAccounting(URL, Counter(), lambda reject: None)
    while position < len(content):
        end = min((position // block_size + 1) * block_size, len(content))
        block = BlockMetadata(
            *(0, URL, FileVersion(len(content)), position, end, end == len(content)),
            entry_state=state,
            continuation=Continuation(resumes=0 < position == start),
        )
        if (scanned := scanned_before(made)) and not block.is_last:
            state = scanned.exit_state(state, scanned.prescan(source, resumed_block(made, source, block)))
        grown = has_grown if isinstance(has_grown, bool) else has_grown[position]
        for batch in ContentReader(made, "none").read(source, block, accounting, has_grown=grown):
            raw = accounting.parse(made, batch).raw
            records += zip(raw.offsets().tolist(), raw.to_pylist(), strict=True)
        position = end
    assert accounting.due == accounting.covered or not made.traits.adds_up
    return records
