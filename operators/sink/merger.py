"""Merge many files into few."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field

from dagflow.api.context import OperatorContext, OutputFiles, RunPreparation
from dagflow.api.operator import Operator
from dagflow.api.ports import InputPort
from dagflow.api.properties import Count, Location, Size
from dagflow.api.records import UNKNOWN, RecordBatch
from dagflow.errors import StorageError
from dagflow.storage.location import absolute, join
from operators.files.metadata import BlockMetadata
from operators.files.small_file_batch import SmallFileBlocks
from operators.sink.directory import take_directory
from operators.sink.grouping import Grouping
from operators.sink.merged_outputs import OUTPUTS, MergedOutput, borders_of

_NAME = re.compile(r"merged-\d{8}-\d{5}-\d{4}.*")


class FileMerger(Operator):
    """Writes whole files, as the format whole_file reads them, into larger ones.

    Guarantee: every file that arrives is in exactly one published file, whole and never cut. A published file
    holds at most max_bytes, or a single larger original. Each partition ends its files with the window; so
    there are at most (all bytes / max_bytes) + (windows x partitions x groups) of them, and packs that are
    not divided, as large as max_bytes, make the second part as small as the listing allows. A window that is
    run again writes the same names and bytes.
    """

    path: Annotated[Location, Field(description="directory that the merged files are published in")]
    output: Annotated[
        Literal["concat", "lines", "json", "parquet"],
        Field(
            description="concat: one behind the other, with an index for dagflow extract; lines: the same, each ended "
            "by a newline; json: a line with path and content for each; parquet: a row with path and content for each"
        ),
    ] = "concat"
    max_bytes: Annotated[Size, Field(ge=1, description="bytes of originals in a merged file at most")] = 128 << 20
    below: Annotated[str, Field(description="directory that paths are told from; all of the path if not given")] = ""
    group_by: Annotated[
        str,
        Field(
            description="keeps files apart by their paths: directory, or a regular expression; named groups become "
            "name=value directories"
        ),
    ] = ""
    max_open: Annotated[Count, Field(ge=1, description="merged files that a partition writes at the same time")] = 64

    input = InputPort()

    _root: str
    _files: OutputFiles

    def check_properties(self) -> None:
        """Fix the directories now: executors have another working directory.

        Raises:
            ValueError: group_by is no regular expression.
        """
        self._root = absolute(self.path)
        self._below = join(absolute(self.below), "") if self.below else ""
        try:
            self._grouping = Grouping(self.group_by)
        except re.error as error:
            raise ValueError(f"group_by, {self.group_by!r}, is no regular expression: {error}") from None

    def prepare(self, run: RunPreparation) -> None:
        """Refuse a directory in which a name that this run may publish is taken by somebody else."""
        take_directory(run, self._root, _NAME)

    def setup(self, context: OperatorContext) -> None:
        """Take note of where files are opened, and of the partition, which is part of their names."""
        if context.outputs is None:
            raise StorageError("a writer runs in a partition, not in the driver", url=self._root)
        self._files = context.outputs
        self._partition = context.partition
        self._open: dict[str, MergedOutput] = {}

    def begin_window(self, window_id: int) -> None:
        """Start the window's numbering of files."""
        self._window_id = window_id
        self._parts = 0

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
            self._append(group, paths[start:end], contents.slice(start, end - start))

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

    def _append(self, group: str, paths: Sequence[str], contents: pa.BinaryArray) -> None:
        done = 0
        while done < len(paths):
            output = self._output(group)
            sizes = np.diff(borders_of(contents.slice(done)))
            count = int(np.searchsorted(np.cumsum(sizes), self.max_bytes - output.size_bytes, side="right"))
            if not count and output.records:
                self._end(group)
                continue
            count = max(count, 1)
            output.add(paths[done : done + count], contents.slice(done, count))
            done += count

    def _output(self, group: str) -> MergedOutput:
        output = self._open.pop(group, None)
        if output is None:
            if len(self._open) >= self.max_open:
                # The one that was not written to for the longest time.
                self._end(next(iter(self._open)))
            kind = OUTPUTS[self.output]
            name = f"merged-{self._window_id:08d}-{self._partition:05d}-{self._parts:04d}{kind.suffix}"
            self._parts += 1
            output = kind(self._files, join(self._root, group, name) if group else join(self._root, name))
        self._open[group] = output
        return output

    def _end(self, group: str) -> None:
        self._open.pop(group).close()

    def end_window(self) -> None:
        """End all files."""
        for group in list(self._open):
            self._end(group)


def _runs(groups: Sequence[str], count: int) -> list[tuple[str, int, int]]:
    """Neighbours of one group: the group, and the range of their positions."""
    if not groups:
        return [("", 0, count)]
    runs, start = [], 0
    for group, members in itertools.groupby(groups):
        end = start + len(list(members))
        runs.append((group, start, end))
        start = end
    return runs
