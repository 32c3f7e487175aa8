"""Publish records as files."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from dagflow.api.columns.column_typing import ColumnTyped, StreamColumns
from dagflow.api.context import OperatorContext, RunPreparation
from dagflow.api.operator import Operator
from dagflow.api.ports import InputPort
from dagflow.api.properties import OutputLocation, Size
from dagflow.api.records import UNKNOWN, RecordBatch
from dagflow.storage.location import absolute, relocated
from operators.sink.file_sink import BLOCK_NAMES, FileSink, block_name, claim_directory, numbered_names
from operators.sink.formats import SINK_FORMATS, SinkFormatSpec

_PREFIX = "part"

_MAX_LAYOUTS = 4
"""Number of part files of different columns that are written at the same time."""


class RecordWriter(Operator, ColumnTyped):
    """Writes records into files: by default raw ones as they were read, and those with columns as lines of JSON.

    Names of files end as usual for their format, such as .csv; those of raw records have no extension.
    Records with other columns than those before them go to part files of their own.

    Guarantee: a file appears whole, under its final name, when its window is committed; a window that
    is run again writes the same names and bytes. Files that others put into the directory are never touched.
    """

    path: Annotated[OutputLocation, Field(description="directory that the files are published in")]
    file_name: Annotated[
        Literal["part", "block"],
        Field(
            description="block: one file per block, named by the block's id in hex; part: one or more per window and "
            "partition"
        ),
    ] = "part"
    format: Annotated[
        SinkFormatSpec,
        Field(
            description=f"one of {', '.join(SINK_FORMATS.class_paths)}, or the dotted path of a class. auto: raw "
            "records as raw, and columns as json_lines; raw: the bytes of raw records, and an error for columns; the "
            "others: an object or a row per record; with options as in {type: csv, header: false}"
        ),
    ] = "auto"  # type: ignore[assignment]  # given as in YAML, and made a format by the validator
    max_bytes: Annotated[
        Size, Field(ge=1, description="size on disk at which a part file ends; with compression, about")
    ] = 1 << 30

    input = InputPort()

    _root: str
    _sink: FileSink

    def check_properties(self) -> None:
        """Make the directory absolute now: executors have another working directory."""
        self._root = absolute(self.path)

    def check_arriving(self, arriving: StreamColumns) -> None:
        self.format.check_columns(arriving)

    def properties_below(self, directory: str) -> dict[str, str]:
        return {"path": relocated(self.path, directory)}

    def prepare(self, run: RunPreparation) -> None:
        claim_directory(run, self._root, BLOCK_NAMES if self.file_name == "block" else numbered_names(_PREFIX))

    def setup(self, context: OperatorContext) -> None:
        self._sink = FileSink(context, self._root, prefix=_PREFIX, max_bytes=self.max_bytes, max_open=_MAX_LAYOUTS)

    def begin_window(self, window_id: int) -> None:
        self._sink.begin_window(window_id)

    @input.batch
    def write(self, batch: RecordBatch) -> None:
        batch = self.format.held(batch)
        if self.file_name == "part":
            self._sink.write(batch, self.format)
            return
        blocks = batch.blocks
        if len(blocks) == 1:
            self._sink.write_named(batch, self.format, block_name(blocks[0].block_id))
            return
        indices = batch.origin.block_indices(len(batch)) if batch.origin is not None else np.empty(0, np.int32)
        if not blocks or (indices == UNKNOWN).any():
            raise ValueError("file_name: block needs records that know their block; an operator upstream made new ones")
        for index, block in enumerate(blocks):
            records = batch.take(np.flatnonzero(indices == index))
            self._sink.write_named(records, self.format, block_name(block.block_id))

    def end_window(self) -> None:
        self._sink.end_window()
