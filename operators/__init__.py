"""The library of operators: splitters, readers, transforms and writers, each loaded when it is first asked for."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from operators.aggregate.aggregate import Aggregate
    from operators.aggregate.count_by import CountBy
    from operators.aggregate.top_n import TopN
    from operators.control.file_completion import FileCompletion
    from operators.files.metadata import BlockMetadata, FileInfo, FileMetadata, FileVersion
    from operators.partitioning.deadline import DeadlinePartitioner
    from operators.partitioning.stateless import StatelessPartitioner
    from operators.reader.block_reader import BlockReader
    from operators.reader.formats.base import RecordFormat
    from operators.reader.read_block import read_block
    from operators.sink.cleaner import SourceCleaner
    from operators.sink.merger import FileMerger
    from operators.sink.metadata_writer import MetadataWriter
    from operators.sink.record_writer import RecordWriter
    from operators.sink.table_writer import TableWriter
    from operators.splitter.named_files import FileSplitterBase
    from operators.splitter.splitter import FileSplitterInput
    from operators.sql.sql import Sql
    from operators.stateful.deduplicator import Deduplicator
    from operators.stateful.key_counter import KeyCounter
    from operators.transform.check import Check
    from operators.transform.enrich import Enrich
    from operators.transform.parse import Parse
    from operators.transform.record_filter import RecordFilter
    from operators.transform.select import Select

__all__ = [
    "Aggregate",
    "BlockMetadata",
    "BlockReader",
    "Check",
    "CountBy",
    "DeadlinePartitioner",
    "Deduplicator",
    "Enrich",
    "FileCompletion",
    "FileInfo",
    "FileMerger",
    "FileMetadata",
    "FileSplitterBase",
    "FileSplitterInput",
    "FileVersion",
    "KeyCounter",
    "MetadataWriter",
    "Parse",
    "RecordFilter",
    "RecordFormat",
    "RecordWriter",
    "Select",
    "SourceCleaner",
    "Sql",
    "StatelessPartitioner",
    "TableWriter",
    "TopN",
    "read_block",
]

_MODULE_BY_NAME = {
    "Aggregate": "operators.aggregate.aggregate",
    "BlockMetadata": "operators.files.metadata",
    "BlockReader": "operators.reader.block_reader",
    "Check": "operators.transform.check",
    "CountBy": "operators.aggregate.count_by",
    "Deduplicator": "operators.stateful.deduplicator",
    "DeadlinePartitioner": "operators.partitioning.deadline",
    "Enrich": "operators.transform.enrich",
    "FileCompletion": "operators.control.file_completion",
    "FileInfo": "operators.files.metadata",
    "FileMerger": "operators.sink.merger",
    "FileMetadata": "operators.files.metadata",
    "FileSplitterBase": "operators.splitter.named_files",
    "FileSplitterInput": "operators.splitter.splitter",
    "FileVersion": "operators.files.metadata",
    "KeyCounter": "operators.stateful.key_counter",
    "MetadataWriter": "operators.sink.metadata_writer",
    "RecordFormat": "operators.reader.formats.base",
    "Parse": "operators.transform.parse",
    "RecordFilter": "operators.transform.record_filter",
    "Select": "operators.transform.select",
    "RecordWriter": "operators.sink.record_writer",
    "TableWriter": "operators.sink.table_writer",
    "TopN": "operators.aggregate.top_n",
    "Sql": "operators.sql.sql",
    "SourceCleaner": "operators.sink.cleaner",
    "StatelessPartitioner": "operators.partitioning.stateless",
    "read_block": "operators.reader.read_block",
}


def __getattr__(name: str) -> Any:
    """Load what is asked for by name, so that checking an app imports only what the app uses."""
    if name not in _MODULE_BY_NAME:
        raise AttributeError(f"module 'operators' has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULE_BY_NAME[name]), name)
    globals()[name] = value
    return value
