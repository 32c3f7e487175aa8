"""The files of a package that adds a record format and an operator to dagflow: `dagflow init --plugin NAME`."""

from __future__ import annotations

from collections.abc import Iterator

_PROJECT = """\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "{name}"
version = "0.1.0"
description = "A record format and an operator for dagflow"
requires-python = ">=3.11"
dependencies = ["dagflow"]

[project.optional-dependencies]
test = ["hypothesis", "pytest"]

# What apps may name: `format: {name}` of a BlockReader, and `class: {operator}`.
# The other groups are dagflow.sink_formats, dagflow.targets (kinds of tables) and dagflow.stores (URL schemes).
[project.entry-points."dagflow.formats"]
{name} = "{module}.record_format:{format}"

[project.entry-points."dagflow.operators"]
{operator} = "{module}.operator:{operator}"
"""

_FORMAT = '''\
"""A record format of one's own: every two bytes are a record."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from dagflow.api.records import RecordBatch
from operators.files.metadata import BlockMetadata
from operators.reader.byte_source import ByteSource
from operators.reader.formats.base import ByteAccounting, RecordFormat
from operators.reader.scanning.framing import frame_one


class {format}(RecordFormat):
    """Every two bytes are a record."""

    name: ClassVar[str] = "{name}"

    def read(self, source: ByteSource, block: BlockMetadata, accounting: ByteAccounting) -> Iterator[RecordBatch]:
        """Yield the records that begin in the block, each whole, wherever the block ends."""
        buffer = bytearray(2)
        first = block.start + block.start % 2
        for offset in range(first, min(block.end, source.size_bytes), 2):
            count = source.read_into(offset, memoryview(buffer))
            yield frame_one(bytes(buffer[:count]), b"", block, offset)

    def complete_end(self, source: ByteSource) -> int:
        """The end of the last whole record: half of one waits until the file has grown."""
        return source.size_bytes - source.size_bytes % 2
'''

_OPERATOR = '''\
"""An operator of one's own: it passes on the records that are at least so long."""

from __future__ import annotations

from dagflow import InputPort, Operator, OutputPort


class {operator}(Operator):
    """Passes on the records of at least some length."""

    min_bytes: int = 1

    input = InputPort()
    output = OutputPort()

    @input.each
    def take(self, record: bytes) -> None:
        if len(record) >= self.min_bytes:
            self.output.emit(record)
'''

_TEST = '''\
"""The format keeps the laws of all formats, wherever files are cut, and the operator does what it says."""

from __future__ import annotations

from typing import Any

from dagflow.testing.operators import run_operator
from operators.testing import FormatContract, Records, Rejects

from {module}.operator import {operator}


class Test{format}(FormatContract):
    """Many contents, cut into blocks of every size, give the records of `reference`."""

    formats = ("{name}",)
    pieces = (b"a", b"b")

    def reference(self, content: bytes, format: Any) -> tuple[Records, Rejects]:
        """The records of a content, read from left to right in the simplest way."""
        return [(at, content[at : at + 2]) for at in range(0, len(content), 2)], []


def test_short_records_are_left_out() -> None:
    assert run_operator({operator}(min_bytes=2), [b"a", b"bb"]) == {{"output": [b"bb"]}}
'''


def plugin_files(name: str) -> Iterator[tuple[str, str]]:
    """The path and the text of each file of the package.

    Args:
        name: Letters, digits and dashes; the first is a letter.
    """
    module = name.replace("-", "_").lower()
    word = "".join(part.capitalize() for part in module.split("_"))
    names = {"name": name, "module": module, "format": word, "operator": f"{word}Filter"}
    yield "pyproject.toml", _PROJECT.format(**names)
    yield f"{module}/__init__.py", ""
    yield f"{module}/record_format.py", _FORMAT.format(**names)
    yield f"{module}/operator.py", _OPERATOR.format(**names)
    yield "tests/test_plugin.py", _TEST.format(**names)
