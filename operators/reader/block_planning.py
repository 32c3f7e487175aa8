"""The settings of a reader of blocks, and what the driver asks of it."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import Field

from dagflow.api.columns.column_typing import ColumnTyped, StreamColumns
from dagflow.api.operator import Operator, PreScanner, RejectRetrier, Seekable
from dagflow.api.rejects.refused_records import RefusedRecords
from dagflow.storage.context import StorageContext
from operators.files.refused_blocks import RefusedBlocks
from operators.reader.block_files import BlockFiles
from operators.reader.compression.recognition import CompressionSetting
from operators.reader.formats import RecordFormatSpec
from operators.reader.on_error import OnError, OnVanished
from operators.reader.path_values import PathSetting
from operators.reader.prescan import BlockPreScan
from operators.reader.seeking import blocks_from


class BlockPlanning(Operator, PreScanner, Seekable, RejectRetrier, ColumnTyped):
    """A reader of blocks as the driver sees it: what its records are, and which blocks have to be read for some."""

    format: Annotated[RecordFormatSpec, Field(description="record format: its name, or {type: name, ...}")] = "lines"  # type: ignore[assignment]  # given as in YAML, and made a format by the validator
    compression: Annotated[
        CompressionSetting,
        Field(
            description="auto: detected from the content, which the file's name must not contradict; none: bytes as "
            "they are"
        ),
    ] = "auto"
    on_error: Annotated[
        OnError,
        Field(
            description="a file that cannot be read or decompressed, or that has a bad header: end the run, or leave "
            "it out"
        ),
    ] = "fail"
    on_vanished: Annotated[
        OnVanished,
        Field(
            description="a version of a file that was replaced, truncated or deleted after it was planned: leave it "
            "out and list it, or end the run"
        ),
    ] = "skip"
    partition_values: PathSetting = None

    def prescan(self) -> BlockPreScan:
        """Scans blocks where their format or compression needs it."""
        infers = self.partition_values == "hive"
        return BlockPreScan(self.format, self.compression, self.on_error, self.on_vanished, infers_paths=infers)

    def check_properties(self) -> None:
        """Refuse columns of paths for records that have none of their own."""
        super().check_properties()
        declared = self.partition_values if isinstance(self.partition_values, dict) else {}
        if nested := [name for name, kind in declared.items() if kind.is_nested]:
            raise ValueError(f"partition_values: '{nested[0]}' is {declared[nested[0]].name}, which no path holds")
        if self.partition_values is not None and not self.format.has_columns:
            raise ValueError(
                f"partition_values adds columns, and records of the format {self.format.name} are bytes; csv, and "
                "json_lines with columns, have columns"
            )

    def columns_at(self, port: str, arriving: StreamColumns | None) -> StreamColumns | None:
        """The columns that the format declares; what paths add is not known."""
        if port == "errors":
            return StreamColumns.raw()
        is_known = port == "messages" and self.partition_values is None
        return self.format.declared_columns() if is_known else None

    def seek(self, items: Sequence[Any], offset: int, storage: StorageContext) -> list[Any]:
        """The blocks in which records may begin at an offset or behind it.

        Raises:
            StorageError: A file cannot be read.
        """
        with contextlib.closing(BlockFiles(storage)) as files:
            return list(blocks_from(offset, items, files, self.format, self.compression))

    def retry_batch(
        self, blocks: Mapping[int, Any], refused: RefusedRecords, is_tried: npt.NDArray[np.bool_], first_id: int
    ) -> RefusedBlocks:
        """The blocks of refused records."""
        return RefusedBlocks.of(blocks, refused, is_tried, first_id, in_one_pass=self.format.needs_prescan)
