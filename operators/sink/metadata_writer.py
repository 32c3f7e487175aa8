"""Publish metadata as lines of JSON."""

from __future__ import annotations

import dataclasses
import json
from typing import Annotated, Any, ClassVar

from pydantic import Field

from dagflow.api.context import OperatorContext, RunPreparation
from dagflow.api.control import ControlOperator
from dagflow.api.ports import InputPort
from dagflow.api.properties import OutputLocation
from dagflow.api.records import RecordBatch
from dagflow.storage.location import absolute, relocated
from operators.sink.file_sink import FileSink, claim_directory, window_name, window_names
from operators.sink.formats.text_format import RawSink

_PREFIX = "metadata"
_FORMAT = RawSink()

_LINES = 10_000
"""Number of lines that are written together."""


class MetadataWriter(ControlOperator):
    """Writes metadata tuples as lines of JSON, one file for each window that has any; it runs in the driver.

    Guarantee: the file appears whole, together with the window's other output; each tuple is in one line.
    """

    runs_at_commit: ClassVar[bool] = True

    path: Annotated[OutputLocation, Field(description="directory that the files are published in")]

    input = InputPort(object)

    _root: str
    _sink: FileSink

    def check_properties(self) -> None:
        self._root = absolute(self.path)

    def properties_below(self, directory: str) -> dict[str, str]:
        return {"path": relocated(self.path, directory)}

    def prepare(self, run: RunPreparation) -> None:
        claim_directory(run, self._root, window_names(_PREFIX))

    def setup(self, context: OperatorContext) -> None:
        self._sink = FileSink(context, self._root)

    def begin_window(self, window_id: int) -> None:
        self._name = window_name(_PREFIX, window_id)
        self._lines: list[bytes] = []

    @input.each
    def write(self, item: Any) -> None:
        is_plain = dataclasses.is_dataclass(item) and not isinstance(item, type)
        value = dataclasses.asdict(item) if is_plain else item
        self._lines.append(json.dumps(value, default=str).encode())
        if len(self._lines) >= _LINES:
            self._write_lines()

    def _write_lines(self) -> None:
        if self._lines:
            self._sink.write_named(RecordBatch.from_records(self._lines), _FORMAT, self._name)
        self._lines = []

    def end_window(self) -> None:
        self._write_lines()
        self._sink.end_window()
