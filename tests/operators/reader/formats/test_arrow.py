"""Arrow's IPC format: files and streams, dictionaries that change, and files that end too early."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.feather
import pytest

from operators.reader.formats import RECORD_FORMATS
from operators.reader.formats.base import ByteAccounting
from operators.testing import MemorySource, TableContract, block_of, read_range
from tests.operators.reader.formats.test_parquet import orders


def streamed(batches: Sequence[pa.RecordBatch], **options: Any) -> bytes:
    """The bytes of a stream."""
    out = io.BytesIO()
    with pa.ipc.new_stream(out, batches[0].schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return out.getvalue()


def filed(batches: Sequence[pa.RecordBatch], **options: Any) -> bytes:
    """The bytes of a file with a footer."""
    out = io.BytesIO()
    with pa.ipc.new_file(out, batches[0].schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return out.getvalue()


def changing() -> list[pa.RecordBatch]:
    """Batches of which each has another dictionary."""
    return [
        pa.record_batch({"n": [*range(row, row + 3)], "kind": pa.array([f"k{row}", "a", None]).dictionary_encode()})
        for row in range(0, 12, 3)
    ]


class TestRecordBatches(TableContract):
    """With and without a footer and compression, with one dictionary and with changing ones."""

    formats: ClassVar = ["arrow"]

    def files(self) -> Sequence[tuple[bytes, Sequence[dict[str, Any]]]]:
        """Files of each kind."""
        table = orders(20)
        batches = table.to_batches(max_chunksize=6)
        rows = table.to_pylist()
        feather = io.BytesIO()
        pyarrow.feather.write_feather(table, feather, chunksize=5)
        return [
            (streamed(batches), rows),
            (filed(batches, compression="lz4"), rows),
            (feather.getvalue(), rows),
            (streamed(changing()), pa.Table.from_batches(changing()).to_pylist()),
            (
                streamed(changing(), emit_dictionary_deltas=True, use_legacy_format=True),
                pa.Table.from_batches(changing()).to_pylist(),
            ),
        ]


@pytest.mark.parametrize("write", [streamed, filed])
def test_a_file_that_ends_early_gives_its_whole_batches(write: Any) -> None:
    """The batch that is cut is refused, with its rows; so is a file that ends before its footer."""
    batches = orders(20).to_batches(max_chunksize=6)
    content = write(batches)
    second = read_range(RECORD_FORMATS.make("arrow"), content[: len(content) // 2], 0, len(content) // 2)
    assert [record for _, record in second[0]] == orders(20).to_pylist()[: len(second[0])]
    ((offset, length),) = second[1]
    assert offset == len(second[0])
    assert length in (1, 6)


def test_a_file_without_rows_is_read() -> None:
    """It has columns, and no record."""
    content = streamed([pa.record_batch({"a": [0]}).slice(1)])
    accounting = ByteAccounting("a", Counter())
    made = RECORD_FORMATS.make("arrow")
    assert not [*made.read(MemorySource(content), block_of(content, 0, len(content)), accounting)]
    assert accounting.covered == len(content)


def test_a_dictionary_of_lists_of_dictionaries_is_decoded() -> None:
    """As deep as they are encoded."""
    names = pa.array(["x", "y", "x"]).dictionary_encode()
    lists = pa.ListArray.from_arrays(pa.array([0, 2, 3], pa.int32()), names)
    batch = pa.record_batch({"a": pa.DictionaryArray.from_arrays(pa.array([1, 0, None], pa.int8()), lists)})
    content = streamed([batch])
    records, rejects = read_range(RECORD_FORMATS.make("arrow"), content, 0, len(content))
    assert ([record for _, record in records], rejects) == ([{"a": ["x"]}, {"a": ["x", "y"]}, {"a": None}], [])
