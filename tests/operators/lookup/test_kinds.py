"""Tables of CSV by themselves."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dagflow.storage.context import StorageContext
from operators.lookup.kinds import CsvSource

STORAGE = StorageContext.default()
TYPED = {"columns": {"a": "int32"}}
NAMED: dict[str, Any] = {"columns": ["a", "s"]}


@pytest.mark.parametrize(
    ("text", "options", "kinds"),
    [
        ("a,s\n", {}, {"a": pa.string(), "s": pa.string()}),
        ("a,s", TYPED, {"a": pa.int32(), "s": pa.string()}),
        ("\ufeff\r\n\r\ns,a\r\n\r\n", TYPED, {"s": pa.string(), "a": pa.int32()}),
        (
            "# a list\na;'x\ny'\n",
            {"skip_header": 1, "delimiter": ";", "quote": "'"},
            {"a": pa.string(), "x\ny": pa.string()},
        ),
        ("x,y\n", NAMED, {"a": pa.string(), "s": pa.string()}),
        ("", NAMED | {"header": False}, {"a": pa.string(), "s": pa.string()}),
        ("", TYPED, {"a": pa.int32()}),
        ("", {}, {}),
    ],
)
@pytest.mark.parametrize("compressed", [False, True])
def test_a_table_without_rows_has_columns(
    tmp_path: Path, text: str, options: dict[str, Any], kinds: dict[str, pa.DataType], compressed: bool
) -> None:
    """The header names them, with the types that they have beside rows; without a header the app declares them."""
    path = tmp_path / ("t.csv.gz" if compressed else "t.csv")
    path.write_bytes(gzip.compress(text.encode()) if compressed else text.encode())
    source = CsvSource(str(path), options)
    assert source.columns(STORAGE) == pa.schema(kinds.items())
    assert list(source.batches(STORAGE, list(kinds))) == []


def test_a_table_that_loses_its_rows_keeps_its_columns(tmp_path: Path) -> None:
    """As a list that is worked off does, which an app goes on to look into."""
    path, options = tmp_path / "t.csv", {"columns": {"n": "decimal(9, 2)"}, "null_values": ["-"]}
    path.write_text("k,n\n-,1\n")
    before = CsvSource(str(path), options).columns(STORAGE)
    path.write_text("k,n\n")
    assert CsvSource(str(path), options).columns(STORAGE) == before
