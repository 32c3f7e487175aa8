"""RecordWriter: names, delimiters, and what it refuses."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
import pytest

from dagflow.api.properties import property_model
from dagflow.api.records import Delimiters, Origin, RecordBatch
from dagflow.engine.run import run
from dagflow.errors import DagflowError, OperatorError, StorageError
from dagflow.execution.messages import WindowJob
from dagflow.plan.load import load_app
from dagflow.runtime.local import InlineRuntime
from dagflow.storage.context import StorageContext
from dagflow.storage.pending import PendingFile
from dagflow.testing.operators import MemoryOutputs, OperatorHarness
from operators.files.metadata import BlockMetadata, FileVersion
from operators.sink.formats import SINK_FORMATS
from operators.sink.record_writer import RecordWriter
from tests.nightly import by_day


class Preparation:
    """A run that has published the given files."""

    writer = ""

    def __init__(self, published: Iterable[str] = ()) -> None:
        self.published = list(published)
        self.claims: list[str] = []
        self.storage = StorageContext.default()
        self.held_files: list[PendingFile] = []

    def has_forgotten(self, url: str) -> bool:
        """It knows all that it has published."""
        return False

    def claim(self, url: str) -> None:
        """Remember."""
        self.claims.append(url)

    def reads(
        self, url: str, takes_in: Callable[[str], bool] | None = None, *, glob: str = "", is_there: bool = True
    ) -> None:
        """A writer reads nothing."""
        raise AssertionError(url)


def block(block_id: int) -> BlockMetadata:
    """A block of ten bytes."""
    return BlockMetadata(block_id, "in", FileVersion(100), block_id * 10, block_id * 10 + 10, False)


def batch(*records: bytes, blocks: tuple[BlockMetadata, ...], codes: list[int] | None = None) -> RecordBatch:
    """A batch of records ended by line feeds."""
    starts = np.arange(len(records))
    origin = Origin(blocks, starts, 0, None if codes is None else np.array(codes, np.int32))
    return RecordBatch.from_records(list(records), Delimiters((b"\n",)), origin)


def written(harness: OperatorHarness) -> dict[str, bytes]:
    """File contents by name."""
    assert isinstance(harness.outputs, MemoryOutputs)
    return {url.rpartition("/")[2]: data for url, data in harness.outputs.files.items()}


def test_each_block_has_a_file_of_its_id_even_if_no_record_is_left(tmp_path: Path) -> None:
    """One output file per block, in hex, of equal width so that names sort as blocks do."""
    harness = OperatorHarness(RecordWriter(path=str(tmp_path), file_name="block"))
    harness.window({"input": batch(b"a", b"b", blocks=(block(10),))})
    harness.window({"input": batch(blocks=(block(11),))})
    assert written(harness) == {f"{10:016x}": b"a\nb\n", f"{11:016x}": b""}


def test_a_batch_of_several_blocks_is_dealt_out_to_their_files(tmp_path: Path) -> None:
    """Where a reader reads small files in batches, every record still lands in the file of its own block."""
    harness = OperatorHarness(RecordWriter(path=str(tmp_path), file_name="block"))
    harness.window({"input": batch(b"a", b"b", b"c", blocks=(block(1), block(2), block(3)), codes=[0, 2, 2])})
    assert written(harness) == {f"{1:016x}": b"a\n", f"{2:016x}": b"", f"{3:016x}": b"b\nc\n"}


def test_part_files_are_numbered_by_window_partition_and_part(tmp_path: Path) -> None:
    """A window that is run again writes the same names."""
    harness = OperatorHarness(RecordWriter(path=str(tmp_path), max_bytes=4))
    harness.window({"input": batch(b"ab", b"cd", blocks=(block(1),))})
    harness.window({"input": batch(b"x", blocks=(block(2),))})
    assert written(harness) == {"part-00000001-00000-0000": b"ab\ncd\n", "part-00000002-00000-0000": b"x\n"}


def test_an_empty_window_publishes_no_part_file(tmp_path: Path) -> None:
    """Nothing arrived, nothing is written."""
    harness = OperatorHarness(RecordWriter(path=str(tmp_path)))
    harness.window({})
    assert written(harness) == {}


def test_records_without_a_block_cannot_be_named_by_block(tmp_path: Path) -> None:
    """The error says what is missing instead of inventing a name."""
    harness = OperatorHarness(RecordWriter(path=str(tmp_path), file_name="block"))
    with pytest.raises(OperatorError, match="needs records that know their block"):
        harness.window({"input": [b"a"]})


def test_files_of_other_names_are_left_alone(tmp_path: Path) -> None:
    """Files of other names in the directory do not matter."""
    (tmp_path / "README").write_text("mine")
    (tmp_path / "part-of-me").write_text("mine")
    run = Preparation()
    RecordWriter(path=str(tmp_path)).prepare(run)
    assert run.claims == [str(tmp_path)]
    assert [(tmp_path / name).read_text() for name in ("README", "part-of-me")] == ["mine", "mine"]


def test_a_name_that_is_taken_stops_the_run_before_it_starts(tmp_path: Path) -> None:
    """A clash is found before anything is read."""
    taken = tmp_path / f"{1:016x}"
    taken.write_text("not dagflow's")
    writer = RecordWriter(path=str(tmp_path), file_name="block")
    with pytest.raises(StorageError, match=r"holds files that this checkpoint did not publish.*0000000000000001"):
        writer.prepare(Preparation())
    writer.prepare(Preparation([str(taken)]))


def test_a_directory_that_is_not_there_yet_is_fine(tmp_path: Path) -> None:
    """It is taken for this run, and what is published first creates it."""
    run = Preparation()
    RecordWriter(path=str(tmp_path / "not" / "yet")).prepare(run)
    assert run.claims == [str(tmp_path / "not" / "yet")]
    assert not (tmp_path / "not").exists()


def test_columns_are_written_as_lines_of_json(tmp_path: Path) -> None:
    """By themselves, without being asked; raw records only when they are."""
    rows = RecordBatch.from_records([{"a": 1, "b": "x"}, {"a": 2, "b": None}])
    harness = OperatorHarness(RecordWriter(path=str(tmp_path)))
    harness.window({"input": rows})
    assert written(harness) == {"part-00000001-00000-0000.jsonl": b'{"a":1,"b":"x"}\n{"a":2,"b":null}\n'}
    harness = OperatorHarness(RecordWriter(path=str(tmp_path), format="json_lines"))
    harness.window({"input": batch(b"a", b"b", blocks=(block(1),))})
    assert written(harness) == {"part-00000001-00000-0000.jsonl": b'{"record":"a"}\n{"record":"b"}\n'}


APP = """\
name: replayed
attributes: {{checkpoint: {root}/journal}}
operators:
  splitter: {{class: FileSplitterInput, properties: {{files: {data}, block_size: 100, blocks_threshold: 5}}}}
  reader: {{class: BlockReader, properties: {{format: csv, max_readers: 2}}}}
  writer:
    class: RecordWriter
    properties: {{path: {root}/out, format: {format}, file_name: {file_name}, max_bytes: 300}}
    partition: parallel
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  rows: {{from: reader.messages, to: writer.input}}
"""


def published(root: Path, format: str, file_name: str, runtime: Any) -> dict[str, bytes]:
    """The files that an app has published below root/out, after a run of it."""
    root.mkdir(exist_ok=True)
    app = root / "app.yaml"
    app.write_text(APP.format(root=root, data=root.parent / "in.csv", format=format, file_name=file_name))
    run(load_app(str(app)), runtime=runtime)
    return {path.name: path.read_bytes() for path in (root / "out").iterdir() if path.is_file()}


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_all_files_of_blocks_have_the_columns_of_records(format: str, tmp_path: Path) -> None:
    """What columns a block without records would have is not known, so it has no file in a format of columns."""
    (tmp_path / "in.csv").write_text("n,t\n" + "".join(f"{n},{'text ' * 90}\n" for n in range(3)))
    files = published(tmp_path / "run", format, "block", InlineRuntime)
    assert len(files) == 3
    columns = {tuple(read_table(name, data).schema.names) for name, data in files.items()}
    assert columns == {("n", "t")}


def read_table(name: str, data: bytes) -> pa.Table:
    """The rows of a file of CSV or Parquet."""
    return pq.read_table(pa.BufferReader(data)) if name.endswith("parquet") else arrow_csv.read_csv(io.BytesIO(data))


class LosesSecondWindow(InlineRuntime):
    """Runs the tasks of the second window, and loses what they did."""

    def _run(self, window: WindowJob) -> Any:
        results = super()._run(window)
        if window.window_id == 2:
            raise DagflowError("the lights went out")
        return results


@pytest.mark.parametrize("file_name", ["part", "block"])
@pytest.mark.parametrize("format", by_day(2, ["json_lines", "csv", "parquet", "{type: csv, compression: gzip}"]))
def test_a_window_that_is_run_again_publishes_the_same_bytes(format: str, file_name: str, tmp_path: Path) -> None:
    """Under the same names, in every format, as a run that nothing disturbs."""
    (tmp_path / "in.csv").write_text("n,t\n" + "".join(f"{n},text {n * n}\n" for n in range(200)))
    expected = published(tmp_path / "calm", format, file_name, InlineRuntime)
    with pytest.raises(DagflowError, match="the lights went out"):
        published(tmp_path / "broken", format, file_name, LosesSecondWindow)
    assert published(tmp_path / "broken", format, file_name, InlineRuntime) == expected
    assert len(expected) > 4


def test_the_page_of_the_writer_lists_all_formats() -> None:
    """Also one that is added to the registry: the list is made of it."""
    described = str(property_model(RecordWriter).model_fields["format"].description)
    assert f"one of {', '.join(SINK_FORMATS.class_paths)}, or" in described
