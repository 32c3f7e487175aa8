"""`dagflow init`: an app for files that are there."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePosixPath

import click

from dagflow.cli import output
from dagflow.cli.progress import operators_silenced
from dagflow.cli.scaffold.app_guess import (
    AppGuess,
    FileHead,
    guess_app,
    plan_of,
    read_heads,
    require_read,
    require_target,
    with_types,
)
from dagflow.cli.scaffold.app_text import (
    MODULE_FILE,
    SCHEMA_FILE,
    app_text,
    is_database,
    operator_text,
    plugin_files,
    require_operator_name,
    target_of,
)
from dagflow.cli.scaffold.format_guess import FormatGuess
from dagflow.cli.shared_options import Settings
from dagflow.engine.preview import preview
from dagflow.engine.preview_chain import PreviewOptions
from dagflow.errors import DagflowError
from dagflow.frozen import frozen
from dagflow.spec.class_description import known_names
from dagflow.spec.json_schema import json_schema
from dagflow.spec.yaml_parser import behind_key, scalar
from dagflow.storage.backends.local.disk import translated
from dagflow.storage.location import absolute, archive_of, is_local
from dagflow.testing.app_cases import failures_of, read_cases
from dagflow.testing.case_update import update_file

APP_FILE = "app.yaml"
_SAMPLE_FILE = "data/orders.csv"
_SAMPLE = """\
order,placed,price,paid,note
2000,2026-01-01,255.24,false,
2001,2026-02-02,791.12,false,"blue; not green"
2002,2026-03-03,779.08,true,"she said ""hello"",
and left"
"""
_IGNORED = "/journal/\n/rejects/\n/.dagflow/\n__pycache__/\n"


@click.command("init")
@click.argument("directory", metavar="DIR", required=False)
@click.option("--from", "location", metavar="FILES", help="A file, directory, glob or URL to read; default: a sample.")
@click.option(
    "--to",
    metavar="TARGET",
    default="out",
    show_default=True,
    help="Directory for the records, relative to DIR, or a table: parquet:PATH, delta:PATH, iceberg:NAMESPACE.NAME, "
    "duckdb:FILE#TABLE, postgres:SCHEMA.TABLE, sqlite:FILE#TABLE.",
)
@click.option(
    "--format",
    "format_name",
    metavar="NAME",
    help="The format of the files that are read, if they have several; files of others are left out.",
)
@click.option(
    "--operator",
    metavar="NAME",
    help=f"Add an operator of your own, the class NAME in {MODULE_FILE}: it passes records on unchanged.",
)
@click.option(
    "--plugin", metavar="NAME", help="Write a package instead, which adds a format and an operator to dagflow."
)
@click.pass_obj
def command(
    settings: Settings,
    directory: str | None,
    location: str | None,
    to: str,
    format_name: str | None,
    operator: str | None,
    plugin: str | None,
) -> int:
    """Write an app into DIR that reads files; their format, columns and types are detected.

    Reads the beginnings of a few files, decompressed; changes none. Comments in the app give the reason for each
    decision.
    """
    if plugin is not None:
        return _write_plugin(Path(directory or plugin), plugin)
    if directory is None:
        raise click.UsageError("missing argument DIR")
    folder = Path(directory)
    require_target(to)  # before anything is read or written
    if operator is not None:
        require_operator_name(operator)
    for file in (APP_FILE, *([MODULE_FILE] if operator is not None else [])):
        if (folder / file).exists():
            raise DagflowError(f"{folder / file} is there already, and stays as it is", hint="give another directory")
    if location is None:
        files, named = [(_SAMPLE_FILE, _SAMPLE)], _SAMPLE_FILE
        _write(folder, *files[0])
        heads_of = str(folder / _SAMPLE_FILE)
    else:
        # An app may be started in any directory; a local name is relative to the current one.
        named = heads_of = absolute(location) if is_local(location) else location
        if is_local(named) and Path(named).is_dir() and folder.resolve().is_relative_to(Path(named).resolve()):
            raise DagflowError(
                f"--from: {folder} lies in {named}, so that the app would read what it writes",
                hint=f"say which files, such as --from '{named}/*.csv', or give another DIR",
            )
    with operators_silenced(is_verbose=settings.is_verbose):
        guess = guess_app(heads_of, read_heads(heads_of), partial(_chosen, format_name))
        if guess.format.infers and guess.format.name in ("json", "json_lines") and is_database(to):
            guess = replace(guess, format=with_types(guess.format, heads_of, guess.head))
    write = partial(app_text, _name_of(folder), named, guess.format, to, guess.evidence, selection=guess.selection)
    text = write()
    plan_of(text)  # a mistake in it would be found too late
    if operator is None:
        _write(folder, APP_FILE, text)
    else:
        _write(folder, APP_FILE, write(operator=operator))
        _write(folder, MODULE_FILE, operator_text(operator, has_columns=guess.format.has_columns))
    _write(folder, SCHEMA_FILE, json.dumps(json_schema(known_names(str(folder / APP_FILE))), indent=1) + "\n")
    if not (folder / ".gitignore").exists():
        path = target_of(to)[1]
        first = path.split("/")[0]
        is_inside = is_local(path) and not path.startswith("/") and first not in ("", ".", "..")
        own = f"/{first}{'*' if '#' in to and first == path else '/'}\n"  # a database has files beside its own
        _write(folder, ".gitignore", (own if is_inside else "") + _IGNORED)
    _report(folder, guess, has_test=_write_case(folder, text, guess, to), has_operator=operator is not None)
    return 0


def _chosen(format_name: str | None, names: Sequence[str]) -> str:
    """The format that was asked for, or is chosen at a terminal, or most files have."""
    if format_name is not None or len(names) < 2 or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return format_name or next(iter(names), "")
    chosen: str = click.prompt("Files of several formats; read", type=click.Choice(names), default=names[0], err=True)
    return chosen


def _write_plugin(folder: Path, name: str) -> int:
    if not re.fullmatch(r"[a-z](-?[a-z0-9])*", name):
        raise click.UsageError(f"--plugin takes small letters, digits and '-', as in acme-logs; got {name!r}")
    if folder.exists() and any(folder.iterdir()):
        raise DagflowError(f"{folder} is not empty, and stays as it is", hint="give another directory")
    for file, text in plugin_files(name):
        _write(folder, file, text)
    output.result(f"{folder}: a package with the format {name} and an operator")
    output.note(f"next: cd {shlex.quote(str(folder))} && pip install -e '.[test]' && python -m pytest")
    return 0


def _write_case(folder: Path, text: str, guess: AppGuess, to: str) -> bool:
    """Write a test of the app beside it, unless one exists; returns whether one exists now."""
    if (folder / CASES_FILE).exists():
        return True
    with translated(str(folder / CASES_FILE), "write"):
        sample = FirstRecords.of(guess.head, text, guess.format)
        return sample is not None and bool(write_case(folder, sample, guess.format, to))


def _write(folder: Path, name: str, text: str) -> None:
    path = folder / name
    with translated(str(path), "write"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def _name_of(folder: Path) -> str:
    name = re.sub(r"[^a-z0-9]+", "-", folder.resolve().name.lower()).strip("-")
    return name or "app"


def _report(folder: Path, guess: AppGuess, *, has_test: bool, has_operator: bool) -> None:
    lines = [f"{folder / APP_FILE}: an app for the format {guess.format.name}"]
    lines += [f"    {output.on_one_line(line)}" for line in (*guess.format.evidence, *guess.evidence)]
    for column in guess.format.columns:
        kind = column.type
        shown = f"{kind['type']} as {kind['format']}" if isinstance(kind, dict) else kind
        lines.append(f"    {column.name}: {shown}")
    output.result("\n".join(lines))
    for warning in guess.warnings:
        output.note(f"warning: {output.on_one_line(warning)}")
    enter = "" if folder.resolve() == Path.cwd() else f"cd {shlex.quote(str(folder))} && "
    steps = [f"{enter}dagflow preview {APP_FILE}"]
    steps += [f"edit {MODULE_FILE}"] if has_operator else []
    test = f"dagflow test{' --update' if has_operator else ''}"
    steps += [test] if has_test else []
    output.note(f"next: {', '.join(steps[:-1])}{', and ' if steps[1:] else ''}{steps[-1]}")


CASES_FILE = "test_app.yaml"

_RECORDS = 3
_MOST_ROWS = 20
"""Rows of a file that cannot be cut."""

_INLINE_BYTES = 2000
_PACKED = frozenset([".gz", ".bz2", ".xz", ".zst", ".lz4", ".sz", ".bgz"])
_FOLDER = "test_data"


@frozen
class FirstRecords:
    name: str
    data: bytes

    @classmethod
    def of(cls, head: FileHead, app: str, format: FormatGuess) -> FirstRecords | None:
        """The records; None where a file cannot be cut, and is long."""
        limits = PreviewOptions(at="read.messages", file=head.url, records=_MOST_ROWS + 1)
        offsets = [record.offset for record in require_read(preview(plan_of(app), limits)).records]
        if format.is_tabular and (len(offsets) > _MOST_ROWS or not head.is_whole):
            return None
        is_cut = len(offsets) > _RECORDS and not format.is_tabular
        end = offsets[_RECORDS] if is_cut else len(head.data)
        inside = archive_of(head.url)
        name = PurePosixPath(head.url if inside is None else inside[1])
        name = name.with_suffix("") if name.suffix.lower() in _PACKED else name
        # A name that begins with a dot or an underscore is hidden from a scan; YAML holds no bytes that are no UTF-8.
        shown = "".join(char if char.isprintable() else "_" for char in name.name)
        data = head.data[: end if end > 0 else len(head.data)]
        return cls(shown.lstrip("._") or "records", closed_json(data) if is_cut and format.name == "json" else data)

    @property
    def text(self) -> str | None:
        """The sample as text that fits into a test; None where it has to be a file of its own."""
        try:
            text = self.data.decode()
        except UnicodeDecodeError:
            return None
        return text if len(text) <= _INLINE_BYTES and "\r" not in text else None


_JSON_PART = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)


def closed_json(data: bytes) -> bytes:
    """The beginning of a document of JSON, cut before a member of a list, as a whole document."""
    ends: list[bytes] = []
    for part in _JSON_PART.findall(data):
        if part in b"[{":
            ends.append(b"]" if part == b"[" else b"}")
        elif part in b"]}" and ends:
            ends.pop()
    return data.rstrip().removesuffix(b",") + b"".join(reversed(ends)) + b"\n"


def write_case(folder: Path, sample: FirstRecords, format: FormatGuess, to: str) -> list[Path]:
    """Write a test that states the current output of the app for a sample.

    Returns:
        The files that were written; none where the app makes nothing of the sample alone.
    """
    file, data = folder / CASES_FILE, folder / _FOLDER / sample.name
    written = [file]
    if sample.text is None:
        data.parent.mkdir(exist_ok=True)
        data.write_bytes(sample.data)
        written.append(data)
    file.write_text("\n".join(_lines(sample, format, to)) + "\n", encoding="utf-8")
    (case,) = read_cases(str(file))
    update_file(str(file), [each.actual for each in failures_of(case) if each.actual is not None])
    (case,) = read_cases(str(file))
    if not failures_of(case):
        return written
    for path in written:
        path.unlink()
    if sample.text is None:
        data.parent.rmdir()
    return []


def _lines(sample: FirstRecords, format: FormatGuess, to: str) -> Iterator[str]:
    kind, path = target_of(to)
    is_inside = is_local(path) and not path.startswith("/") and path.split("/")[0] not in ("", "..")
    place = "table" if kind else path if is_inside else "out"
    yield "# dagflow test runs this; after an intended change, dagflow test --update writes the new output here."
    yield "app: app.yaml"
    yield "tests:"
    yield "  the first records:"
    yield "    files:"
    if sample.text is None:
        yield f"      {scalar(f'in/{sample.name}')}: {{from: {scalar(f'{_FOLDER}/{sample.name}')}}}"
    else:
        yield f"      {scalar(f'in/{sample.name}')}:{behind_key(sample.text, 6)}"
    yield "    set:"
    yield "      files.files: in"
    if not (is_inside or kind):
        yield "      write.path: out"
    if format.has_columns:
        yield from ("    schema:", "      read.messages:")
    if format.has_columns or kind:
        yield from ("    rows:", f"      {scalar(place)}:")
    elif sample.text is not None:
        yield from ("    output:", f"      {scalar(place)}:")
    yield from ("    records:", "      read.messages:", "    rejected:")
