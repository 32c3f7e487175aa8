"""The kinds of tables that records are joined with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dagflow.suggestions import did_you_mean
from operators.lookup.csv_source import CsvSource
from operators.lookup.parquet_source import ParquetSource
from operators.lookup.source import LookupSource
from operators.lookup.table_sources import DeltaSource, IcebergSource

_KINDS = ("csv", "parquet", "delta", "iceberg")


def lookup_source(table: str, csv: Mapping[str, Any], catalog: Mapping[str, str]) -> LookupSource:
    """The table that an operator names.

    Args:
        table: Kind and location.
        csv: Options of the format csv.
        catalog: Options of a catalog of Iceberg.

    Raises:
        ValueError: The kind does not exist, its package is missing, or its options are wrong.
    """
    kind, colon, location = table.partition(":")
    if kind not in _KINDS or not colon or not location:
        kinds = "csv:PATH, as in csv:data/rates.csv, parquet:PATH, delta:PATH or iceberg:NAMESPACE.NAME"
        raise ValueError(f"table takes {kinds}; got {table!r}{did_you_mean(kind, _KINDS)}")
    if csv and kind != "csv":
        raise ValueError(f"csv has options of the format csv, and table is of kind {kind}")
    if catalog and kind != "iceberg":
        raise ValueError(f"catalog is for tables of iceberg, and table is of kind {kind}")
    if kind == "csv":
        return CsvSource(location, csv)
    if kind == "parquet":
        return ParquetSource(location)
    return DeltaSource(location) if kind == "delta" else IcebergSource(location, catalog)
