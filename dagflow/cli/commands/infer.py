"""`dagflow infer`: the columns of files, with the evidence for each."""

from __future__ import annotations

import json
import os
import re
import sys
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from dagflow.cli import output
from dagflow.cli.locations import load
from dagflow.cli.output import count, place
from dagflow.cli.progress import operators_silenced
from dagflow.cli.scaffold.app_guess import guess_app, plan_of, read_heads, require_read
from dagflow.cli.scaffold.app_text import app_text
from dagflow.cli.scaffold.column_types import ColumnGuess, column_lines, comment, evidence_of, value_text
from dagflow.cli.shared_options import Settings
from dagflow.engine.preview import Preview, preview
from dagflow.engine.preview_chain import PreviewOptions
from dagflow.errors import AppError, DagflowError
from dagflow.frozen import frozen
from dagflow.plan.logical import LogicalPlan
from dagflow.spec.class_description import known_names
from dagflow.spec.operator_reader import COLUMNS, is_column_file, path_of
from dagflow.spec.problems import Place, Problems
from dagflow.spec.step_reader import StepReader
from dagflow.spec.yaml_parser import parse_file, scalar
from dagflow.spec.yaml_tree import Environment, Node, Scalar, plain
from dagflow.spec.yaml_tree import Mapping as YamlMapping
from dagflow.storage.backends.local.disk import replace_file, translated
from dagflow.storage.file_kinds import FORMAT_BY_KIND
from dagflow.storage.location import absolute, is_local

COLUMN_FILE = "columns.yaml"
_MARK = "# Columns by dagflow infer"
_CHECKSUM = "; checksum "
_ROWS = 100_000


@click.command("infer")
@click.argument("files", metavar="FILES|APP")
@click.option("--write", is_flag=True, help=f"Write a file of columns: {COLUMN_FILE} here, or the one that APP names.")
@click.option(
    "--rows",
    type=click.IntRange(min=0),
    default=_ROWS,
    show_default=True,
    metavar="N",
    help="Number of records to look at, 0 for all; they are held in memory.",
)
@click.pass_obj
def command(settings: Settings, files: str, write: bool, rows: int) -> int:
    """Propose the columns of CSV, JSON, XML, paragraphs, records of one length, and of files of rows, such as Parquet.

    FILES is a file, directory, glob or URL; its format is detected as by dagflow init. For APP, the input of its reader
    is examined. Columns have names and types, each with its evidence as a comment: in which share of the records the
    column has which type, and the first record of another type, as file:offset. With --write, APP names the file of
    columns from then on; the rest of APP stays unchanged.
    """
    app = AppColumns.of(files) if files.endswith((".yaml", ".yml")) else None
    with operators_silenced(is_verbose=settings.is_verbose):
        plan, reader, places = _of_files(files) if app is None else _of_app(app, settings)
        limits = PreviewOptions(at=f"{reader}.{RECORDS}", records=rows or sys.maxsize, read_bytes=sys.maxsize)
        found = require_read(preview(plan, limits))
    if places is None:
        guesses, looked_at = _as_they_are(found), len(found.records)
    else:
        columns, looked_at = evidence_of((each.values, place(each.file, each.offset)) for each in found.records)
        made = (column.guess(looked_at) for column in columns)
        guesses = [replace(each, place=places.get(each.name, ())) for each in made]
    if not guesses:
        raise DagflowError(f"{files}: there is no record with a column")
    text = _text(found, guesses, looked_at, is_all=found.is_complete and looked_at != rows)
    if not write:
        output.result(text.rstrip("\n"))
    elif app is None:
        _write(Path(COLUMN_FILE), text)
    else:
        before = Path(app.app).read_bytes().decode("utf-8")
        _write(app.file, text)
        if (after := app.with_file(before)) != before:
            with translated(app.app, "write"):
                replace_file(app.app, after.encode())
            output.note(f"{Path(app.app)} names it; the rest of the app is as it was")
    return 0


Places = dict[str, tuple[int, ...]]


def _of_files(files: str) -> tuple[LogicalPlan, str, Places | None]:
    """A plan that reads the files, its reader, and the places of columns; None where they have types already."""
    named = absolute(files) if is_local(files) else files
    guess = guess_app(named, read_heads(named))
    for warning in guess.warnings:
        output.note(f"warning: {output.on_one_line(warning)}")
    is_raw = guess.format.name in ("paragraphs", "regex") and not guess.format.columns
    if is_raw or guess.format.name not in COLUMNED:
        raise DagflowError(
            f"{files}: records of the format {guess.format.name} have no columns",
            hint=f"columns are inferred for {', '.join(dict.fromkeys(COLUMNED))}",
        )
    declared = () if guess.format.is_tabular or guess.format.name == "xml" else guess.format.columns
    columns = tuple(each.as_text("") for each in declared)
    options = {name: value for name, value in guess.format.options.items() if name != "null_values"}
    format = replace(guess.format, options=options, columns=columns, infers=guess.format.name == "xml")
    places = None if format.is_tabular else {each.name: each.place for each in columns}
    return plan_of(app_text("infer", named, format, "out")), "read", places


def _of_app(app: AppColumns, settings: Settings) -> tuple[LogicalPlan, str, Places | None]:
    options = app.options
    plan = load(app.app, settings, (f"{app.reader}.format={json.dumps(options)}",))
    if options["type"] in FORMAT_BY_KIND.values():
        return plan, app.reader, None
    columns = options.get(COLUMNS, {}) if options["type"] == "fixed" else {}
    return plan, app.reader, {name: tuple(place) for name, place in columns.items()}


_NAMELESS = re.compile(r"binary|map<|halffloat|duration|interval|null|union|decimal256| or ")


def _as_they_are(found: Preview) -> list[ColumnGuess]:
    """The columns of files that have types, with the names that apps give these."""
    names = {name: re.sub(r"list<\w+: ", "list<", kind) for name, kind in found.columns.items()}
    names = {name: re.sub(r"\bfloat\b", "float32", kind) for name, kind in names.items()}
    return [
        ColumnGuess(name, None, f"an app has no name for {kind}")
        if _NAMELESS.search(kind)
        else ColumnGuess(name, kind, "as the files have it")
        for name, kind in names.items()
    ]


def _text(found: Preview, guesses: Sequence[ColumnGuess], rows: int, *, is_all: bool) -> str:
    how_many = "all" if is_all else "the first"
    lines = [f"{_MARK}: from {how_many} {count(rows, 'record')} of {count(len(found.files), 'file')}"]
    if found.reject_count:
        reject = found.rejects[0]
        lines.append(
            f"# {count(found.reject_count, 'record')} refused, such as {comment(place(reject.file, reject.offset))}: "
            f"{' '.join(reject.reason.split())}"
        )
    if all(guess.type is None for guess in guesses):
        raise DagflowError(
            f"no column has a type: {'; '.join(f'{each.name}: {each.evidence}' for each in guesses[:3])}"
        )
    if words := sorted({word for guess in guesses for word in guess.null_words}):
        lines.append(f"# Words that stand for no value: give the format null_values: {value_text(['', *words])}")
    return "\n".join([*lines, *column_lines(guesses)]) + "\n"


def _write(path: Path, text: str) -> None:
    """An existing file is replaced only if it was not edited since it was written here."""
    with translated(str(path), "write"):
        before = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
        first, _, rest = before.partition("\n")
        unedited = _with_checksum(f"{first.rpartition(_CHECKSUM)[0]}\n{rest}")
        if path.exists() and not (first.startswith(_MARK) and before == unedited):
            why = "dagflow infer has not written it, or it was edited since"
            raise DagflowError(
                f"{path} is there already and stays as it is: {why}",
                hint="move it away, and run this again; then copy what you have edited into the new file",
            )
        path.write_text(_with_checksum(text), encoding="utf-8")
    output.note(f"written: {path}")


def _with_checksum(text: str) -> str:
    """The text with a checksum in its first line, by which an edit is known."""
    first, _, rest = text.partition("\n")
    return f"{first}{_CHECKSUM}{zlib.crc32(text.encode()):08x}\n{rest}"


COLUMNED = ("csv", "json_lines", "json", "xml", "fixed", "paragraphs", "regex", *FORMAT_BY_KIND.values())
RECORDS = "messages"


@frozen
class AppColumns:
    app: str
    reader: str
    format: Scalar | YamlMapping

    @classmethod
    def of(cls, app: str) -> AppColumns:
        problems = Problems()
        root = parse_file(app, Environment(os.environ), problems)
        if root is None:
            raise AppError(problems.found)
        reader = StepReader((), Environment(os.environ), Problems())  # mistakes are reported when the app is loaded
        entries = reader.expand(root)[0].entries if isinstance(root, YamlMapping) else {}
        with output.reserved_for_results():
            known = known_names(app).operators
        # Records of readers can be looked at; writers too have a format, and modules may hold readers. Loading the app
        # reports what is wrong with an unknown class.
        others = {
            name
            for name, each in known.items()
            if each.kind == "module" or RECORDS not in {port.name for port in each.outputs}
        }
        found = [
            cls(app, name, format)
            for name, each in entries.items()
            if name not in others and (format := _format_of(each.value))
        ]
        if len(found) != 1:
            formats = " and ".join(dict.fromkeys(COLUMNED))
            raise DagflowError(
                f"{app} has {len(found)} readers of the formats {formats}; columns are inferred for one",
                hint="give the files instead: dagflow infer FILES",
            )
        return found[0]

    @property
    def options(self) -> dict[str, Any]:
        """The format without its columns: every value is read as text."""
        if isinstance(self.format, Scalar):
            return {"type": self.format.text}
        given: dict[str, Any] = plain(self.format)
        columns = given.pop(COLUMNS, None)
        given.pop("null_values", None)
        if given.get("header") is False and columns:
            given[COLUMNS] = list(columns)
        if given["type"] == "fixed" and isinstance(columns, dict):
            given[COLUMNS] = {name: place[:2] for name, place in columns.items()}
        if given["type"] == "paragraphs" and isinstance(columns, dict):
            given[COLUMNS] = dict.fromkeys(columns, "string")
        if given["type"] == "xml":
            given[COLUMNS] = "infer"
        return given

    @property
    def file(self) -> Path:
        """The file of columns, as the app names it or will name it."""
        columns = self.format.get(COLUMNS) if isinstance(self.format, YamlMapping) else None
        if isinstance(columns, Scalar) and is_column_file(columns):
            return path_of(columns)
        name = f"{Path(self.app).stem}.columns.yaml"
        if columns is not None:
            raise DagflowError(
                f"{self.app}:{columns.place.line}: the app declares columns itself, and they stay as they are",
                hint=f"write columns: {name} in their place, and run this again",
            )
        return Path(self.app).parent / name

    def with_file(self, text: str) -> str:
        name = scalar(self.file.name)
        if isinstance(self.format, YamlMapping):
            if self.format.get(COLUMNS) is not None:
                return text
            kind = self.format.get("type")
            assert isinstance(kind, Scalar)  # _format_of has checked this
            is_flow = text[_offset(text, self.format.place)] == "{"
            indent = " " * (self.format.entries["type"].key_place.column - 1)
            added = f", columns: {name}" if is_flow else f"\n{indent}columns: {name}"
            start = _offset(text, kind.place) + len(kind.source)
            end = start if is_flow else text.find("\n", start)
            end = len(text.rstrip("\n")) if end < 0 else end
            return text[:end] + added + text[end:]
        start = _offset(text, self.format.place)
        added = f"{{type: {self.format.source}, columns: {name}}}"
        return text[:start] + added + text[start + len(self.format.source) :]


def _format_of(operator: Node) -> Scalar | YamlMapping | None:
    properties = operator.get("properties") if isinstance(operator, YamlMapping) else None
    format = properties.get("format") if isinstance(properties, YamlMapping) else None
    kind = format.get("type") if isinstance(format, YamlMapping) else format
    if not isinstance(kind, Scalar) or kind.text not in COLUMNED or not isinstance(format, Scalar | YamlMapping):
        return None
    return format


def _offset(text: str, place: Place) -> int:
    lines = text.splitlines(keepends=True)
    return sum(map(len, lines[: place.line - 1])) + place.column - 1
