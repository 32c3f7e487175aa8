"""Publish metadata as lines of JSON."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Annotated, Any, ClassVar

from pydantic import Field

from dagflow.api.context import OperatorContext, OutputFile, OutputFiles, RunPreparation
from dagflow.api.control import ControlOperator
from dagflow.api.ports import InputPort
from dagflow.api.properties import Location
from dagflow.errors import StorageError
from dagflow.storage.location import absolute, join
from operators.sink.directory import take_directory

_NAMES = re.compile(r"metadata-\d{8}")


class MetadataWriter(ControlOperator):
    """Writes metadata tuples as lines of JSON, one file for each window that has any; it runs in the driver.

    Guarantee: the file appears whole, together with the window's other output; each tuple is in one line.
    """

    runs_at_commit: ClassVar[bool] = True

    path: Annotated[Location, Field(description="directory that the files are published in")]

    input = InputPort(object)

    _root: str
    _files: OutputFiles | None = None
    _file: OutputFile | None = None

    def check_properties(self) -> None:
        """Fix the directory, whatever the working directory will be."""
        self._root = absolute(self.path)

    def prepare(self, run: RunPreparation) -> None:
        """Refuse a directory in which a name that this run may publish is taken by somebody else."""
        take_directory(run, self._root, _NAMES)

    def setup(self, context: OperatorContext) -> None:
        """Take note of where files are opened."""
        self._files = context.outputs

    def begin_window(self, window_id: int) -> None:
        """Note the window, which is part of the file's name."""
        self._window_id = window_id
        self._lines = 0

    @input.each
    def write(self, item: Any) -> None:
        """Append one line."""
        if self._file is None:
            if self._files is None:
                raise StorageError("there is nowhere to open files", url=self._root)
            self._file = self._files.open(join(self._root, f"metadata-{self._window_id:08d}"))
        is_plain = dataclasses.is_dataclass(item) and not isinstance(item, type)
        value = dataclasses.asdict(item) if is_plain else item
        self._file.write(json.dumps(value, default=str).encode() + b"\n")
        self._lines += 1

    def end_window(self) -> None:
        """End the file."""
        file, self._file = self._file, None
        if file is not None:
            file.close(records=self._lines)
