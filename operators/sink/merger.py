"""Merge many files into few."""

from __future__ import annotations

import base64
import itertools
import json
import os
from abc import abstractmethod
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import Field

from dagflow.api.context import OperatorContext, RunPreparation
from dagflow.api.operator import Operator
from dagflow.api.ports import InputPort
from dagflow.api.properties import Count, OutputLocation, Size
from dagflow.api.records import UNKNOWN, RecordBatch
from dagflow.api.regular_expressions import Pattern, found_in
from dagflow.late import compute as pc
from dagflow.storage.columns import binary_column, borders_of
from dagflow.storage.concatenated import INDEX_SUFFIX, encode_index
from dagflow.storage.location import NAME_BYTES, NO_VALUE, absolute, escaped, join, relocated, shortened
from operators.files.metadata import BlockMetadata
from operators.files.small_file_batch import SmallFileBlocks
from operators.sink.file_sink import FileSink, claim_directory, numbered_names
from operators.sink.formats.base import FileEncoder, FileStream, SinkFormat
from operators.sink.formats.parquet import ParquetEncoder, ParquetSink
from operators.sink.formats.text_format import bytes_of

_PREFIX = "merged"


class FileMerger(Operator):
    """Writes whole files, as the format whole_file reads them, into larger ones.

    Guarantee: every file that arrives is in exactly one published file, whole and never cut. A published file holds
    at most max_bytes, or a single larger file. It ends where the next file does not fit, or with the window. So there
    are at most (2 x all bytes / max_bytes) + (windows x partitions x groups) of them; where the files that arrive are
    small, the first part is about half as large. A splitter with batches: whole, and with batch_bytes as large as
    max_bytes, makes windows that fill the files. A window that is run again writes the same names and bytes.
    """

    path: Annotated[OutputLocation, Field(description="directory that the merged files are published in")]
    output: Annotated[
        Literal["concat", "lines", "json", "parquet"],
        Field(
            description="concat: one file after another, with an index for dagflow extract; lines: the same, each "
            "ended by a newline; json: a line with path and content for each; parquet: a row with path and content "
            "for each"
        ),
    ] = "concat"
    max_bytes: Annotated[Size, Field(ge=1, description="maximum bytes of source files in a merged file")] = 128 << 20
    below: Annotated[
        str, Field(description="directory that paths are relative to; default: the whole path is kept")
    ] = ""
    group_by: Annotated[
        Pattern,
        Field(
            description="groups files by their paths: directory, or a regular expression; named groups become "
            "name=value directories"
        ),
    ] = ""
    max_open: Annotated[
        Count, Field(ge=1, description="maximum number of merged files that a partition writes at the same time")
    ] = 64

    input = InputPort()

    _root: str
    _sink: FileSink

    def check_properties(self) -> None:
        """Make the directories absolute now: executors have another working directory."""
        self._root = absolute(self.path)
        self._below = join(absolute(self.below), "") if self.below else ""
        self._grouping = Grouping(self.group_by)

    def properties_below(self, directory: str) -> dict[str, str]:
        return {"path": relocated(self.path, directory)}

    def prepare(self, run: RunPreparation) -> None:
        claim_directory(run, self._root, numbered_names(_PREFIX))

    def setup(self, context: OperatorContext) -> None:
        self._sink = FileSink(context, self._root, prefix=_PREFIX, max_bytes=self.max_bytes, max_open=self.max_open)

    def begin_window(self, window_id: int) -> None:
        self._sink.begin_window(window_id)

    @input.batch
    def merge(self, batch: RecordBatch) -> None:
        if not len(batch):
            return
        if not batch.is_raw:
            raise ValueError(
                f"only raw records can be merged, not columns ({', '.join(batch.to_arrow().schema.names)})"
            )
        if batch.delimiters.uniform != b"":
            raise ValueError("only whole files can be merged; say format: whole_file in the reader")
        paths = self._paths_of(batch)
        contents = batch.record
        start = 0
        for group, members in itertools.groupby(paths, self._grouping.group_of):
            named = list(members)
            files = files_batch(named, contents.slice(start, len(named)))
            self._sink.write(files, MERGE_FORMATS[self.output], group)
            start += len(named)

    def _paths_of(self, batch: RecordBatch) -> list[str]:
        indices = batch.origin.block_indices(len(batch)) if batch.origin is not None else np.empty(0, np.int32)
        if not len(indices) or (indices == UNKNOWN).any():
            raise ValueError("merging needs records that know their file; an operator upstream made new ones")
        blocks: Sequence[BlockMetadata] = batch.blocks
        urls = blocks.urls if isinstance(blocks, SmallFileBlocks) else [block.url for block in blocks]
        return [urls[index].removeprefix(self._below) for index in indices.tolist()]

    def end_window(self) -> None:
        self._sink.end_window()


UNMATCHED = "other"
"""The group of paths that a pattern without named groups does not match."""


class Grouping:
    """Names the group of a path, which is the directory that its merged file is published in.

    Args:
        pattern: "" puts all into one group; "directory" keeps each directory apart; anything else is a regular
            expression that is searched in the path. Its named groups give `name=value` directories, as readers of
            partitioned tables expect them; without names its groups' texts do; without groups the whole match.
    """

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern if pattern not in ("", "directory") else ""
        self._by_directory = pattern == "directory"

    def group_of(self, path: str) -> str:
        """The directory below that of the output; "" for that directory itself."""
        if self._by_directory:
            return path.rpartition("/")[0].lstrip("/")
        if not self._pattern:
            return ""
        groups, names = found_in(self._pattern, path)
        if not groups:
            # Readers of tables refuse a whole table if one of its directories is no partition.
            return "/".join(f"{name}={NO_VALUE}" for name in names) or UNMATCHED
        if names:
            return "/".join(f"{name}={_safe(groups[at], len(name) + 1)}" for name, at in names.items())
        return "/".join(map(_safe, groups[1:] or groups))


def _safe(value: str, taken: int = 0) -> str:
    """A text as the name of a directory that no reader skips."""
    raw = os.fsencode(value)
    # If a byte that is no text is escaped on its own, DuckDB and Arrow refuse the whole table.
    shown = raw.decode("utf-8", "backslashreplace")
    text = escaped(shown) or NO_VALUE
    text = text if text[0] not in "._" or not shown else f"%{ord(text[0]):02X}{text[1:]}"
    room = NAME_BYTES - taken
    # Texts that look the same, and texts that are cut alike, each get a directory of their own.
    return text if shown == value and len(text.encode()) <= room else shortened(text, raw, room)


_ROW_GROUP_BYTES = 32 << 20


def files_batch(paths: Sequence[str], contents: pa.BinaryArray) -> RecordBatch:
    """Files, at least one, as records with the columns path, as the file system has it, and content, both bytes."""
    # As bytes, because a path may hold any byte but NUL.
    columns = [binary_column(os.fsencode("\0".join(paths)).split(b"\0")), contents]
    return RecordBatch(pa.RecordBatch.from_arrays(columns, ["path", "content"]))


class MergedFile(FileEncoder):
    """One file that takes in others, up to a number of bytes in their contents; a larger one has a file of its own."""

    def __init__(self, stream: FileStream, max_bytes: int | None) -> None:
        self.stream = stream
        self._max_bytes = max_bytes
        self._files = 0
        self._content_bytes = 0

    def write(self, rows: pa.RecordBatch) -> int:
        contents = rows.column(1)
        count = len(contents)
        if self._max_bytes is not None:
            ends = np.cumsum(np.diff(borders_of(contents)), dtype=np.int64)
            count = int(np.searchsorted(ends, self._max_bytes - self._content_bytes, side="right"))
            count = count or int(not self._files)
        if count:
            contents = contents.slice(0, count)
            borders = borders_of(contents)
            self.append(rows.column(0).slice(0, count), contents, borders)
            self._files += count
            self._content_bytes += int(borders[-1]) - int(borders[0])
        return count

    @abstractmethod
    def append(self, paths: pa.BinaryArray, contents: pa.BinaryArray, borders: npt.NDArray[np.int32]) -> None:
        """Write files; borders are those of contents in its buffer."""


class _Concatenation(MergedFile):
    """One file after the other, with an index beside it of where each is."""

    def __init__(self, stream: FileStream, max_bytes: int | None) -> None:
        super().__init__(stream, max_bytes)
        self._paths: list[pa.BinaryArray] = []
        self._lengths: list[npt.NDArray[np.int32]] = []

    def append(self, paths: pa.BinaryArray, contents: pa.BinaryArray, borders: npt.NDArray[np.int32]) -> None:
        self.stream.write(bytes_of(contents, borders))
        self._paths.append(paths)
        self._lengths.append(np.diff(borders))

    def finish(self) -> None:
        lengths = np.concatenate(self._lengths).astype(np.int64)
        index = encode_index(pa.chunked_array(self._paths), np.cumsum(lengths) - lengths, lengths)
        self.stream.add_companion(INDEX_SUFFIX, index)


class _Lines(MergedFile):
    """One file after the other; a newline is added to a file that does not end with it."""

    def append(self, paths: pa.BinaryArray, contents: pa.BinaryArray, borders: npt.NDArray[np.int32]) -> None:
        is_ended = pc.or_(pc.ends_with(contents, pattern=b"\n"), pc.equal(pc.binary_length(contents), 0))
        if not pc.all(is_ended).as_py():
            contents = pc.if_else(is_ended, contents, pc.binary_join_element_wise(contents, b"\n", b""))
            borders = borders_of(contents)
        self.stream.write(bytes_of(contents, borders))


class _JsonObjects(MergedFile):
    """A JSON object for each file: path and content; bytes that are no UTF-8 in base64.

    A content in base64 is content_base64 instead; a path then has path_base64 as well, since path has escapes.
    """

    def append(self, paths: pa.BinaryArray, contents: pa.BinaryArray, borders: npt.NDArray[np.int32]) -> None:
        pairs = zip(paths.to_pylist(), contents.to_pylist(), strict=True)
        self.stream.write("".join(self._line(path, content) for path, content in pairs).encode())

    def _line(self, path: bytes, content: bytes) -> str:
        shown = _shown(path)
        head = json.dumps(shown)
        if shown.encode() != path:
            head += f', "path_base64": "{base64.b64encode(path).decode()}"'
        try:
            return f'{{"path": {head}, "content": {json.dumps(content.decode(), ensure_ascii=False)}}}\n'
        except UnicodeDecodeError:
            return f'{{"path": {head}, "content_base64": "{base64.b64encode(content).decode()}"}}\n'


class _ParquetRows(MergedFile):
    """A row for each file: path and content; raw_path only where the path is no UTF-8."""

    schema: ClassVar[Any] = pa.schema([("path", pa.string()), ("raw_path", pa.binary()), ("content", pa.binary())])

    def __init__(self, stream: FileStream, max_bytes: int | None) -> None:
        super().__init__(stream, max_bytes)
        self._rows = ParquetEncoder(ParquetSink(row_group_bytes=_ROW_GROUP_BYTES), stream, self.schema, None)

    def append(self, paths: pa.BinaryArray, contents: pa.BinaryArray, borders: npt.NDArray[np.int32]) -> None:
        raw = paths.to_pylist()
        shown = [_shown(path) for path in raw]
        kept = [path if text.encode() != path else None for path, text in zip(raw, shown, strict=True)]
        columns = [pa.array(shown, pa.string()), pa.array(kept, pa.binary()), contents]
        self._rows.write(pa.RecordBatch.from_arrays(columns, schema=self.schema))

    def finish(self) -> None:
        self._rows.finish()


def _shown(path: bytes) -> str:
    """A path as text without lone surrogates, for which DuckDB, polars and others refuse the whole file."""
    return path.decode("utf-8", "backslashreplace")


class MergeFormat(SinkFormat):
    """A format of merged files, whose records are those of files_batch."""

    def __init__(self, extension: str, file: type[MergedFile]) -> None:
        super().__init__()
        self._extension = extension
        self._file = file

    @property
    def extension(self) -> str:
        return self._extension

    def start(self, stream: FileStream, batch: RecordBatch, max_bytes: int | None) -> FileEncoder:
        return self._file(stream, max_bytes)


MERGE_FORMATS = {
    "concat": MergeFormat("", _Concatenation),
    "lines": MergeFormat(".txt", _Lines),
    "json": MergeFormat(".jsonl", _JsonObjects),
    "parquet": MergeFormat(".parquet", _ParquetRows),
}
"""The formats of merged files by their names in YAML."""
