"""The index of a file that holds others."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dagflow.errors import StorageError
from dagflow.storage.concatenated import INDEX_SUFFIX, SCHEMA, encode_index, find, list_entries
from dagflow.storage.pending import PENDING_DIRECTORY
from tests.storage.shared import STORAGE

_ENCODES = """
import sys
import numpy as np
import pyarrow as pa
from dagflow.storage.concatenated import encode_index
encode_index(pa.chunked_array([pa.array([b"b"]), pa.array([b"a"])]), np.array([0, 1]), np.array([1, 4]))
sys.exit("pandas" in sys.modules)
"""


def test_an_index_is_sorted_by_path_and_keeps_any_byte() -> None:
    """A path may be no UTF-8; numbers may lie in memory in any way."""
    numbers = np.arange(6, dtype=np.int64)
    paths = pa.chunked_array([[b"z"], [b"\xff", b"a"]], pa.binary())
    table = pq.read_table(io.BytesIO(encode_index(paths, numbers[::-2], numbers[::2])))
    assert table.schema == SCHEMA
    assert [tuple(row.values()) for row in table.to_pylist()] == [(b"a", 1, 4), (b"z", 5, 0), (b"\xff", 3, 2)]


def test_an_index_of_nothing_is_a_table() -> None:
    """With its columns, and no row."""
    nothing = np.empty(0, np.int64)
    index = encode_index(pa.chunked_array([], pa.binary()), nothing, nothing)
    assert pq.read_table(io.BytesIO(index)).schema == SCHEMA


def test_entries_are_of_all_directories_but_that_of_what_is_pending(tmp_path: Path) -> None:
    """A directory of the input may begin with a dot, and groups are named like those; what is pending may vanish."""
    for directory in (".h", "sub/.h", PENDING_DIRECTORY):
        (tmp_path / directory).mkdir(parents=True)
        paths = pa.chunked_array([[f"{directory}/x".encode()]], pa.binary())
        index = encode_index(paths, np.array([1]), np.array([2]))
        (tmp_path / directory / f"part{INDEX_SUFFIX}").write_bytes(index)
    assert sorted(entry.path for entry in list_entries(STORAGE, str(tmp_path))) == [".h/x", "sub/.h/x"]
    assert find(STORAGE, str(tmp_path), ".h/x").url == str(tmp_path / ".h" / "part")


def test_an_index_is_written_without_pandas() -> None:
    """Its import took each worker half a second."""
    pytest.importorskip("pandas")
    subprocess.run([sys.executable, "-c", _ENCODES], check=True)


@pytest.mark.parametrize("content", [b"", b"PAR1 and so on", None])
def test_a_damaged_index_is_named(tmp_path: Path, content: bytes | None) -> None:
    """Empty, cut off, or a table that is no index: the error is no riddle, and says which file it is."""
    index = tmp_path / f"m{INDEX_SUFFIX}"
    if content is None:
        pq.write_table(pa.table({"path": ["text"], "content": ["x"]}), index)
    else:
        index.write_bytes(content)
    with pytest.raises(StorageError, match="cannot be read as an index") as caught:
        find(STORAGE, str(tmp_path), "a")
    assert caught.value.url == str(index)
