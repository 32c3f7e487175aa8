"""Writes an app for files of a format, with the evidence as comments, and the package of a plug-in."""

from __future__ import annotations

import keyword
import posixpath
import re
from collections.abc import Iterator, Sequence

from dagflow.cli.scaffold.column_types import column_lines, comment, value_text
from dagflow.cli.scaffold.format_guess import FormatGuess
from dagflow.errors import DagflowError
from dagflow.spec.yaml_parser import scalar

SCHEMA_FILE = "app.schema.json"
TARGETS = "a directory, or a table such as delta:out/table or parquet:out/table"
_CHECKPOINT = "journal"
_REJECTS = "rejects"


def app_text(
    name: str,
    location: str,
    guess: FormatGuess,
    to: str,
    evidence: Sequence[str] = (),
    operator: str | None = None,
    selection: str = "",
) -> str:
    """The text of an app that reads files and writes their records.

    Args:
        to: Where the records go: a directory, or a table as a TableWriter names it.
        selection: A property of the splitter that selects files, as YAML; "" for none.
        operator: The class of an operator of the app's own that records pass through; None for none.

    Raises:
        DagflowError: The target names no place, or takes only records with columns.
    """
    own = [f"  - class: {MODULE_FILE.removesuffix('.py')}.{operator}  # in {MODULE_FILE}"] if operator else []
    lines = [
        f"# yaml-language-server: $schema={SCHEMA_FILE}",
        "# Paths without a / at the beginning are relative to the directory in which dagflow is started.",
        f"name: {scalar(name)}",
        "attributes:",
        f"  checkpoint: {_CHECKPOINT}  # what was read and published, so that the next run reads only what is new",
        "steps:",
        f"  - files: [{scalar(location)}]",
        *([f"    {selection}"] if selection else []),
        *_change_lines(to),
        *(f"  # {comment(line)}" for line in (*guess.evidence, *evidence)),
        *_read_lines(guess),
        *own,
        *_writer_lines(guess, to),
        f"rejects: {_REJECTS}  # records that do not fit, each with file, offset and reason",
    ]
    return "\n".join(lines) + "\n"


def _change_lines(to: str) -> list[str]:
    """What becomes of files that are replaced: tables with transactions can take their rows out."""
    if not target_of(to)[0]:
        return []
    lines = "# a corrected file takes the place of its rows", "on_change: {replaced: supersede, truncated: supersede}"
    return [f"    {line}" for line in lines]


def _read_lines(guess: FormatGuess) -> Iterator[str]:
    if not (guess.options or guess.has_columns):
        yield f"  - read: {guess.name}"
        return
    yield "  - read:"
    yield f"      type: {guess.name}"
    for option, value in guess.options.items():
        yield f"      {option}: {value_text(value)}"
    if guess.infers:
        yield "      columns: infer  # those of the first file"
    elif guess.columns:
        yield "      columns:"
        yield from column_lines(guess.columns, " " * 8)


def _writer_lines(guess: FormatGuess, to: str) -> Iterator[str]:
    kind, path = target_of(to)
    if kind:
        yield f"  - table: {scalar(to)}"
        yield from (f"    {line}" for line in _NEEDS.get(kind, ("", ""))[1:] if line)
        if is_database(to):
            yield "    metadata_columns: part  # by which the rows of a file are found when it is corrected"
        nested = [each.name for each in guess.columns if str(each.type).startswith(("struct", "list", "map"))]
        if nested and kind in _FLAT:
            yield f"    on_new_column: rescue  # {_FLAT[kind]} has no lists and structs: {comment(', '.join(nested))}"
            yield "    # are kept in _rescued, as JSON"
        return
    what = "  # as lines of JSON" if guess.has_columns else "  # as they are"
    yield f"  - write: {scalar(path)}{what}"


_NEEDS = {
    "iceberg": ("out", "catalog: {type: sql, uri: 'sqlite:///out/catalog.db', warehouse: out/warehouse}"),
    "postgres": (
        ".dagflow-postgres",
        "connection: postgresql://  # as PGHOST, PGDATABASE and PGUSER say; or postgresql://USER@HOST/DATABASE",
    ),
}
"""Where kinds of tables have files that their names do not tell, and what else a TableWriter needs for them."""


_FLAT = {"postgres": "PostgreSQL", "sqlite": "SQLite"}


def target_of(to: str) -> tuple[str, str]:
    """The kind of a target, "" for plain files, and where it has files."""
    kind, colon, path = to.partition(":")
    if not colon or path.startswith("//"):
        kind, path = "", to
    if not path.strip():
        raise DagflowError(f"--to: '{to}' names no place", hint=f"give {TARGETS}")
    if kind not in ("", "parquet", "delta"):
        path = _NEEDS[kind][0] if kind in _NEEDS else path.rpartition("#")[0] or path
    place = posixpath.normpath(path)
    if place == _REJECTS or f"{place}/".startswith(f"{_CHECKPOINT}/"):
        what = "its rejects" if place == _REJECTS else "its checkpoint"
        raise DagflowError(f"--to: the app has {what} in {place}", hint="give another directory")
    return kind, path.rstrip("/") or "/"


def is_database(to: str) -> bool:
    """Whether a target is a table of a database, which keeps the types that its columns have."""
    return target_of(to)[0] in ("duckdb", "postgres", "sqlite")


MODULE_FILE = "my_ops.py"

_NAME = re.compile(r"[A-Z][A-Za-z0-9]{0,99}")

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


def require_operator_name(name: str) -> None:
    """Refuse what is no name of a class."""
    if not _NAME.fullmatch(name) or keyword.iskeyword(name):
        raise DagflowError(f"--operator {name}: a class has a name such as DropEmpty", hint="give another name")


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
"""A record format with columns of one's own: lines of labels, such as `host:a`, with tabs between them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from operators.reader.columns.typing import TextColumns
from operators.reader.formats.lines import Lines


class {format}(TextColumns, Lines):
    """Lines of labels with tabs between them; a label is a name, a colon and a value."""

    name: ClassVar[str] = "{name}"

    def values(self, text: str) -> Mapping[str, str]:
        """The values by the names of their labels; a line with anything else in it is refused."""
        labels = [label.partition(":") for label in text.split("\\t") if label]
        for name, colon, _ in labels:
            if not colon:
                raise ValueError(f"{{name!r}} is no label such as host:a")
        return {{name: value for name, _, value in labels}}
'''

_OPERATOR = '''\
"""An operator of one's own: it passes on the records that have a value in a column."""

from __future__ import annotations

from dagflow import InputPort, Operator, OutputPort, RecordBatch


class {operator}(Operator):
    """Passes on the records that have a value in a column."""

    column: str

    input = InputPort()
    output = OutputPort()

    @input.batch
    def take(self, batch: RecordBatch) -> None:
        """Take some records; emitted records go to the next operator."""
        self.output.emit(batch.filter(batch.to_arrow().column(self.column).is_valid()))
'''

_TEST = '''\
"""The format keeps the laws of all formats, wherever files are cut, and the operator does what it says."""

from __future__ import annotations

from typing import Any

from dagflow.testing.operators import run_operator
from operators.reader.formats.lines import Lines
from operators.testing import FormatContract, Records, Rejects, columns_of, read_range

from {module}.operator import {operator}
from {module}.record_format import {format}


class Test{format}(FormatContract):
    """Many contents, cut into blocks of every size, give the records of `reference`."""

    formats = ({{"type": "{name}", "columns": {{"a": "string"}}}},)
    pieces = (b"a", b":", b"\\t", b"\\n")

    def reference(self, content: bytes, format: Any) -> tuple[Records, Rejects]:
        """The lines of the content, by the format lines; without those with a part that is no label."""
        lines = read_range(Lines(), content, 0, len(content))[0]
        rejects = [(offset, len(line)) for offset, line in lines if not is_right(line)]
        return [(offset, line) for offset, line in lines if is_right(line)], rejects

    def test_labels_are_columns(self) -> None:
        """A label that is missing is null; one that is not of its column's type is refused."""
        made = {format}(columns={{"host": "string", "bytes": "int64"}})
        rows, rejects = columns_of(made, b"bytes:1\\thost:a\\nhost:b\\nbytes:x\\n")
        assert rows == [{{"host": "a", "bytes": 1}}, {{"host": "b", "bytes": None}}]
        assert "'x' is no whole number" in rejects[0]["reason"]


def is_right(line: bytes) -> bool:
    """Whether a line is UTF-8, and each part of it has a colon."""
    return line == line.decode("utf-8", "replace").encode() and all(b":" in part for part in line.split(b"\\t") if part)


def test_records_without_a_value_are_left_out() -> None:
    assert run_operator({operator}(column="a"), [{{"a": 1}}, {{"a": None}}]) == {{"output": [{{"a": 1}}]}}
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
