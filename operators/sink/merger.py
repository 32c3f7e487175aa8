"""Merge many files into few."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from dagflow.api.context import OperatorContext, RunPreparation
from dagflow.api.operator import Operator, Relocatable
from dagflow.api.ports import InputPort
from dagflow.api.properties import Count, OutputLocation, Size
from dagflow.api.records import UNKNOWN, RecordBatch
from dagflow.api.regular_expressions import Pattern
from dagflow.storage.location import absolute, join, relocated
from operators.files.metadata import BlockMetadata
from operators.files.small_file_batch import SmallFileBlocks
from operators.sink.file_sink import FileSink, claim_directory, numbered_names
from operators.sink.grouping import Grouping
from operators.sink.merged_files import MERGE_FORMATS, files_batch

_PREFIX = "merged"


class FileMerger(Operator, Relocatable):
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
        """The path for the operator inside of another one's directory."""
        return {"path": relocated(self.path, directory)}

    def prepare(self, run: RunPreparation) -> None:
        """Refuse a directory in which a name that this run may publish is taken."""
        claim_directory(run, self._root, numbered_names(_PREFIX))

    def setup(self, context: OperatorContext) -> None:
        """Called once before the first window."""
        self._sink = FileSink(context, self._root, prefix=_PREFIX, max_bytes=self.max_bytes, max_open=self.max_open)

    def begin_window(self, window_id: int) -> None:
        """Start the window's files."""
        self._sink.begin_window(window_id)

    @input.batch
    def merge(self, batch: RecordBatch) -> None:
        """Append whole files.

        Raises:
            ValueError: The records are not whole files with a known path.
        """
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
        groups = [self._grouping.group_of(path) for path in paths] if self.group_by else []
        for group, start, end in _runs(groups, len(paths)):
            files = files_batch(paths[start:end], contents.slice(start, end - start))
            self._sink.write(files, MERGE_FORMATS[self.output], group)

    def _paths_of(self, batch: RecordBatch) -> list[str]:
        indices = batch.origin.block_indices(len(batch)) if batch.origin is not None else np.empty(0, np.int32)
        if not len(indices) or (indices == UNKNOWN).any():
            raise ValueError("merging needs records that know their file; an operator upstream made new ones")
        blocks: Sequence[BlockMetadata] = batch.blocks
        urls = blocks.urls if isinstance(blocks, SmallFileBlocks) else [block.url for block in blocks]
        chosen = [urls[index] for index in indices.tolist()]
        if not self._below:
            return chosen
        return [url.removeprefix(self._below) for url in chosen]

    def end_window(self) -> None:
        """End the window's files."""
        self._sink.end_window()


def _runs(groups: Sequence[str], count: int) -> list[tuple[str, int, int]]:
    """Adjacent positions of one group: the group, and the half-open range."""
    if not groups:
        return [("", 0, count)]
    runs, start = [], 0
    for group, members in itertools.groupby(groups):
        end = start + len(list(members))
        runs.append((group, start, end))
        start = end
    return runs
