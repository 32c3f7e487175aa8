"""Reads published files back, as rows that a test can compare."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dagflow.api.columns.json_values import readable_rows
from dagflow.storage.partition_names import column_of

_CODECS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}
_PARQUET = b"PAR1"
_CSV = ".csv"


def decompressed(path: str, data: bytes) -> bytes:
    """The content of a file, decompressed if its name shows a compression."""
    codec = _CODECS.get(Path(path).suffix)
    if codec is None or not data:
        return data
    with pa.CompressedInputStream(pa.BufferReader(data), codec) as stream:
        content: bytes = stream.read()
    return content


def is_parquet(data: bytes) -> bool:
    """Whether a file is a Parquet file."""
    return data.startswith(_PARQUET)


def rows_of(files: Mapping[str, bytes], place: str) -> list[dict[str, Any]]:
    """The rows of files.

    Args:
        files: The content of each, by path.
        place: The file, or the directory that contains all of them.

    Raises:
        ValueError: A file has no columns.
    """
    return [row for path in sorted(files) for row in _rows_of_file(path, files[path], place)]


def _rows_of_file(path: str, data: bytes, place: str) -> Iterator[dict[str, Any]]:
    data = decompressed(path, data)
    if is_parquet(data):
        values = _partition_values(path, place)
        yield from ({**row, **values} for row in readable_rows(pq.ParquetFile(pa.BufferReader(data)).read()))
        return
    text = data.decode(errors="backslashreplace")
    if _CSV in Path(path).suffixes[-2:]:
        yield from csv.DictReader(io.StringIO(text))
        return
    for line in text.split("\n"):
        if not line:
            continue
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if not isinstance(row, dict):
            raise ValueError(f"{path} has no columns: it is neither Parquet, CSV nor lines of JSON; compare its text")
        yield row


def _partition_values(path: str, place: str) -> dict[str, str | None]:
    """The columns given by directories such as day=2026-01-01."""
    return dict(filter(None, map(column_of, path.removeprefix(place).split("/")[:-1])))
