"""Publish records as files."""

from __future__ import annotations

import re
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from dagflow.api.context import OperatorContext, OutputFile, OutputFiles, RunPreparation
from dagflow.api.operator import Operator
from dagflow.api.ports import InputPort
from dagflow.api.properties import Location, Size
from dagflow.api.records import UNKNOWN, RecordBatch
from dagflow.errors import StorageError
from dagflow.storage.location import absolute, join
from operators.sink.directory import take_directory
from operators.sink.formats.json_lines import json_lines

_NAMES = {"block": re.compile(r"[0-9a-f]{16}"), "part": re.compile(r"part-\d{8}-\d{5}-\d{4}")}


class RecordWriter(Operator):
    """Writes records into files: raw ones each with the delimiter that it was read with, columns as lines of JSON.

    In JSON decimals are text, which keeps their digits; times are in ISO 8601; bytes are text, or an object with the
    one member base64 where they are no UTF-8; infinities and NaN are null.

    Guarantee: a file appears whole, under its final name, when its window is committed; a window that
    is run again writes the same names. Files that others put into the directory are never touched.
    """

    path: Annotated[Location, Field(description="directory that the files are published in")]
    file_name: Annotated[
        Literal["part", "block"],
        Field(description="block: one file per block, named by the block's id in hex; part: one or more per window"),
    ] = "part"
    format: Annotated[
        Literal["auto", "raw", "json_lines"],
        Field(
            description="raw: the bytes of raw records, and an error for columns; json_lines: an object per record; "
            "auto: raw records as they are, and columns as json_lines"
        ),
    ] = "auto"
    max_bytes: Annotated[Size, Field(ge=1, description="a part file that has reached this size is ended")] = 1 << 30

    input = InputPort()

    _root: str
    _files: OutputFiles
    _file: OutputFile | None

    def check_properties(self) -> None:
        """Fix the directory now: executors have another working directory."""
        self._root = absolute(self.path)

    def prepare(self, run: RunPreparation) -> None:
        """Refuse a directory in which a name that this run may publish is taken by somebody else."""
        take_directory(run, self._root, _NAMES[self.file_name])

    def setup(self, context: OperatorContext) -> None:
        """Take note of where files are opened, and of the partition, which is part of their names."""
        if context.outputs is None:
            raise StorageError("a writer runs in a partition, not in the driver", url=self._root)
        self._files = context.outputs
        self._partition = context.partition
        self._file = None
        self._key: object = None

    def begin_window(self, window_id: int) -> None:
        """Start the window's numbering of part files."""
        self._window_id = window_id
        self._parts = 0

    @input.batch
    def write(self, batch: RecordBatch) -> None:
        """Append the records of one batch."""
        if self.file_name == "part":
            if len(batch):
                self._append(batch, None)
            return
        blocks = batch.blocks
        if len(blocks) == 1:
            self._append(batch, blocks[0].block_id)
            return
        indices = batch.origin.block_indices(len(batch)) if batch.origin is not None else np.empty(0, np.int32)
        if not blocks or (indices == UNKNOWN).any():
            raise ValueError("file_name: block needs records that know their block; an operator upstream made new ones")
        for index, block in enumerate(blocks):
            self._append(batch.take(np.flatnonzero(indices == index)), block.block_id)

    def _append(self, batch: RecordBatch, key: int | None) -> None:
        if self._file is None or key != self._key:
            self._end_file()
            self._key = key
            name = (
                f"part-{self._window_id:08d}-{self._partition:05d}-{self._parts:04d}" if key is None else f"{key:016x}"
            )
            self._parts += 1
            self._file = self._files.open(join(self._root, name))
            self._records = self._bytes = 0
        if len(batch):
            data = self._bytes_of(batch)
            self._file.write(data)
            self._records += len(batch)
            self._bytes += len(data)
        if key is None and self._bytes >= self.max_bytes:
            self._end_file()

    def _bytes_of(self, batch: RecordBatch) -> memoryview | bytes:
        if self.format == "json_lines" or (self.format == "auto" and not batch.is_raw):
            return json_lines(batch.to_arrow())
        if not batch.is_raw:
            names = ", ".join(batch.to_arrow().schema.names)
            raise ValueError(f"format: raw writes raw records, not columns ({names}); say format: json_lines")
        framed = batch.framed()
        offsets = np.frombuffer(framed.buffers()[1], np.int32)[framed.offset :][: len(framed) + 1]
        return memoryview(framed.buffers()[2] or b"").cast("B")[int(offsets[0]) : int(offsets[-1])]

    def _end_file(self) -> None:
        if self._file is not None:
            self._file.close(records=self._records)
            self._file = None

    def end_window(self) -> None:
        """End the last file."""
        self._end_file()
