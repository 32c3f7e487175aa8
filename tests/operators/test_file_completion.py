"""Files are done when their last block is."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagflow.engine.run import run
from dagflow.errors import DagflowError, OperatorError
from dagflow.plan.logical import LogicalPlan
from dagflow.runtime.local import InlineRuntime
from dagflow.testing.operators import OperatorHarness
from operators.file_completion import FileCompletion, FileCompletionState
from operators.files.metadata import BlockMetadata, FileMetadata, FileVersion
from operators.reader.block_reader import BlockReader
from operators.sink.metadata_writer import MetadataWriter
from operators.sink.record_writer import RecordWriter
from operators.splitter.splitter import FileSplitterInput
from tests.engine.dags import Given, dag, lines
from tests.engine.test_driver import crashing


def files_of(counts: Sequence[int]) -> tuple[list[FileMetadata], list[BlockMetadata]]:
    """Files with so many blocks each, and all their blocks."""
    files, blocks, next_id = [], [], 1
    for number, count in enumerate(counts):
        version = FileVersion(count * 10)
        files.append(FileMetadata(f"f{number}", "", version, 10, next_id, count))
        for index in range(count):
            place = (f"f{number}", version, index * 10, index * 10 + 10)
            blocks.append(BlockMetadata(next_id + index, *place, is_last=index == count - 1))
        next_id += count
    return files, blocks


@given(st.lists(st.integers(0, 4), max_size=8), st.randoms(use_true_random=False), st.integers(1, 5))
def test_each_file_is_emitted_once_with_its_last_block(counts: list[int], random: object, per_window: int) -> None:
    """In whatever order the blocks come, with a restart after every window."""
    files, blocks = files_of(counts)
    random.shuffle(blocks)  # type: ignore[attr-defined]  # hypothesis gives a Random
    harness = OperatorHarness(FileCompletion())
    emitted: list[str] = []
    harness.window({"files_metadata_input": files})
    remaining = Counter(block.url for block in blocks)
    for start in range(0, len(blocks) + per_window, per_window):
        emitted += [file.url for file in harness.emitted["output"]]
        assert set(emitted) == {file.url for file in files if not remaining[file.url]}
        harness = harness.restart()
        window = blocks[start : start + per_window]
        harness.window({"blocks_metadata_input": window})
        remaining.subtract(block.url for block in window)
    assert sorted(emitted) == sorted(file.url for file in files)
    assert harness.operator.snapshot() == FileCompletionState([])


def test_directories_are_not_emitted_and_empty_files_are_at_once() -> None:
    """Neither has a block to wait for."""
    harness = OperatorHarness(FileCompletion())
    version = FileVersion(0)
    directory = FileMetadata("d", "d", version, 10, 1, 0, is_directory=True)
    empty = FileMetadata("e", "e", version, 10, 1, 0)
    harness.window({"files_metadata_input": [directory, empty]})
    assert harness.emitted["output"] == [empty]


def test_a_block_of_no_file_is_refused() -> None:
    """A splitter whose files are not connected would leave every file undone."""
    _, blocks = files_of([1])
    with pytest.raises(OperatorError, match="block 1 of f0 is of no file that was announced"):
        OperatorHarness(FileCompletion()).window({"blocks_metadata_input": blocks})


@pytest.mark.parametrize("after", [1, 2, 3, 9])
def test_in_a_run_each_file_is_emitted_once_also_after_a_crash(tmp_path: Path, after: int) -> None:
    """Together with its last records, whichever window the driver dies in."""
    data = tmp_path / "data"
    data.mkdir()
    sizes = {"a": 250, "b": 0, "c": 30, "d": 99}
    for name, size in sizes.items():
        (data / name).write_bytes(b"x" * (size - 1) + b"\n" * bool(size))
    edges = [
        *("splitter.blocks_metadata_output reader.blocks_metadata_input", "reader.messages writer.input"),
        *("splitter.files_metadata_output completion.files_metadata_input", "completion.output done.input"),
        *("reader.blocks_metadata_output completion.blocks_metadata_input",),
        *("splitter.files_metadata_output found.input",),
    ]

    def app() -> LogicalPlan:
        operators: dict[str, Given] = {
            "splitter": FileSplitterInput(files=[str(data)], block_size=50, blocks_threshold=3),
            "reader": BlockReader(max_readers=2),
            "writer": (RecordWriter(path=str(tmp_path / "out")), "parallel"),
            "completion": FileCompletion(),
            "done": MetadataWriter(path=str(tmp_path / "done")),
            "found": MetadataWriter(path=str(tmp_path / "found")),
        }
        return dag(tmp_path, operators, edges)

    if after < 9:
        with pytest.raises(DagflowError, match="the lights went out"):
            run(app(), runtime=crashing(after))
        done = [Path(json.loads(line)["url"]).name for line in lines(tmp_path / "done")]
        written = {len(line) + 1 for line in lines(tmp_path / "out")}
        assert {sizes[name] for name in done} <= written | {0}
    run(app(), runtime=InlineRuntime)
    for where in ("done", "found"):
        emitted = sorted(Path(json.loads(line)["url"]).name for line in lines(tmp_path / where))
        assert [name for name in emitted if name in sizes] == sorted(sizes)
    assert sorted(len(line) + 1 for line in lines(tmp_path / "out")) == [30, 99, 250]
