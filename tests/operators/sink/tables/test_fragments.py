"""Fragments are read as they were written, or are refused."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dagflow.api.context import OperatorContext
from dagflow.api.records import RecordBatch
from dagflow.errors import LostOutputError
from dagflow.execution.task_outputs import TaskOutputs
from dagflow.storage.context import StorageContext
from dagflow.storage.pending import PendingFile
from operators.sink.tables.delta_table import DeltaTable
from operators.sink.tables.fragments import FragmentFiles, Place, pieces_of, read_piece
from operators.sink.tables.table_files import FactOrigin

ROWS = pa.record_batch({"id": list(range(40)), "k": ["a", "b"] * 20, "v": [f"text {n}" for n in range(40)]})


def fragment(root: Path, rows: pa.RecordBatch = ROWS) -> PendingFile:
    """Rows of two partitions."""
    outputs = TaskOutputs(StorageContext.default(), "tag", "process")
    files = FragmentFiles(OperatorContext(outputs=outputs), DeltaTable(str(root), ["k"]), FactOrigin("table"))
    files.begin_window(1)
    files.write(RecordBatch(rows))
    files.end_window()
    (file,) = outputs.take_finished()
    return file


def pieces(file: PendingFile) -> list[Place]:
    """What the journal knows of the pieces of a fragment."""
    assert file.facts is not None
    return [piece.place for piece in pieces_of(file.facts)]


def rows_of(file: PendingFile) -> list[dict[str, Any]]:
    """All rows of a fragment."""
    read = [read_piece(StorageContext.default(), file.pending_url, piece) for piece in pieces(file)]
    return [row for batches in read for batch in batches for row in batch.to_pylist()]


def test_a_fragment_that_was_cut_is_refused_at_any_length(tmp_path: Path) -> None:
    """No row is missing or has another value."""
    file = fragment(tmp_path)
    assert sorted(row["id"] for row in rows_of(file)) == ROWS.column("id").to_pylist()
    path = Path(file.pending_url)
    content = path.read_bytes()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(LostOutputError, match=r"a fragment of the table is damaged, .*: it ends at byte"):
            rows_of(file)
    path.unlink()
    with pytest.raises(LostOutputError, match=r"a fragment of the table is gone, .*: another program has removed it"):
        rows_of(file)


def test_a_fragment_whose_end_became_zeros_is_refused(tmp_path: Path) -> None:
    """As a power loss leaves files that have their length, and not their bytes."""
    file = fragment(tmp_path)
    path = Path(file.pending_url)
    content = path.read_bytes()
    ends = [end for _, end, _ in pieces(file)]
    for length in range(max(ends) - 4):  # the mark of the end has zeros in its last four bytes
        path.write_bytes(content[:length] + bytes(len(content) - length))
        with pytest.raises(LostOutputError, match=r"its bytes .* are not those that were written"):
            rows_of(file)


@pytest.mark.parametrize(("texts", "is_shorter"), [(["a text of a table"], True), (None, False)])
def test_rows_wait_compressed_where_that_makes_them_shorter(
    tmp_path: Path, texts: list[str] | None, *, is_shorter: bool
) -> None:
    """Random text would take longer to compress than to write and to read, and does so again for each row."""
    dice, count = random.Random(1), 5_000
    values = (texts or [dice.randbytes(40).hex() for _ in range(count)]) * (1 if texts is None else count)
    rows = pa.record_batch({"id": list(range(count)), "k": ["a"] * count, "v": values})
    file = fragment(tmp_path, rows)
    assert [row["v"] for row in rows_of(file)] == values
    # Each row has the numbers of its offset and its block beside.
    assert (file.size_bytes < rows.nbytes + 16 * count) is is_shorter
