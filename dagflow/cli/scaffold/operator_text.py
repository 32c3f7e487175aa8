"""Writes an operator for an app: it passes records on, for its author to change."""

from __future__ import annotations

import keyword
import re

from dagflow.errors import DagflowError

MODULE_FILE = "my_ops.py"

_NAME = re.compile(r"[A-Z][A-Za-z0-9]{0,99}")
_TAKEN = ("splitter", "reader", "writer", "rejects")

_COLUMNS = '''\
"""Operators of this app."""

from dagflow import InputPort, Operator, OutputPort, RecordBatch


class {name}(Operator):
    """Passes all records on."""

    input = InputPort()
    output = OutputPort()

    @input.batch
    def process(self, batch: RecordBatch) -> None:
        """Take some records; emitted records go to the next operator."""
        columns = batch.to_arrow()  # a pyarrow.RecordBatch, such as for columns.append_column("name", values)
        self.output.emit(batch.with_columns(columns))
'''

_BYTES = '''\
"""Operators of this app."""

from dagflow import InputPort, Operator, OutputPort


class {name}(Operator):
    """Passes all records on."""

    input = InputPort()
    output = OutputPort()

    @input.each
    def process(self, record: bytes) -> None:
        """Take a record; a record that is not emitted is dropped."""
        self.output.emit(record)
'''


def operator_text(name: str, *, has_columns: bool) -> str:
    return (_COLUMNS if has_columns else _BYTES).format(name=name)


def operator_name(name: str) -> str:
    found = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    if not _NAME.fullmatch(name) or keyword.iskeyword(name) or found in _TAKEN:
        reason = "the app has such an operator" if found in _TAKEN else "a class has a name such as DropEmpty"
        raise DagflowError(f"--operator {name}: {reason}", hint="give another name")
    return found
