"""The library of operators: splitters, readers, transforms and writers, each loaded when it is first asked for."""

from __future__ import annotations

import importlib
import linecache
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from operators.aggregate.aggregate import Aggregate as Aggregate
    from operators.aggregate.count_by import CountBy as CountBy
    from operators.aggregate.top_n import TopN as TopN
    from operators.deadline import DeadlinePartitioner as DeadlinePartitioner
    from operators.deadline import StatelessPartitioner as StatelessPartitioner
    from operators.file_completion import FileCompletion as FileCompletion
    from operators.files.metadata import BlockMetadata as BlockMetadata
    from operators.files.metadata import FileInfo as FileInfo
    from operators.files.metadata import FileMetadata as FileMetadata
    from operators.files.metadata import FileVersion as FileVersion
    from operators.reader.block_reader import BlockReader as BlockReader
    from operators.reader.content import read_block as read_block
    from operators.reader.formats.base import RecordFormat as RecordFormat
    from operators.sink.cleaner import SourceCleaner as SourceCleaner
    from operators.sink.merger import FileMerger as FileMerger
    from operators.sink.metadata_writer import MetadataWriter as MetadataWriter
    from operators.sink.record_writer import RecordWriter as RecordWriter
    from operators.sink.table_writer import TableWriter as TableWriter
    from operators.splitter.block_splitter import FileSplitterBase as FileSplitterBase
    from operators.splitter.splitter import FileSplitterInput as FileSplitterInput
    from operators.sql.sql import Sql as Sql
    from operators.stateful import Deduplicator as Deduplicator
    from operators.stateful import KeyCounter as KeyCounter
    from operators.transform.check import Check as Check
    from operators.transform.enrich import Enrich as Enrich
    from operators.transform.parse import Parse as Parse
    from operators.transform.record_filter import RecordFilter as RecordFilter
    from operators.transform.select import Select as Select

# Each public name is imported when it is first asked for, so that checking an app imports only what the app uses. The
# list above, which type checkers know, is the only one; the loader finds its text in a zip file as well.
_SOURCE = "".join(linecache.getlines(__file__, globals()))
_MODULE_BY_NAME = {name: module for module, name in re.findall(r"^    from (\S+) import \w+ as (\w+)$", _SOURCE, re.M)}


def __getattr__(name: str) -> Any:
    """Import a public name."""
    if name == "__all__":
        return sorted(_MODULE_BY_NAME)
    if name not in _MODULE_BY_NAME:
        raise AttributeError(f"module 'operators' has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULE_BY_NAME[name]), name)
    globals()[name] = value
    return value
