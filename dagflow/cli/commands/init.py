"""`dagflow init`: an app for files that are there."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import click

from dagflow.cli import output
from dagflow.cli.progress import operators_silenced
from dagflow.cli.scaffold.app_guess import AppGuess, guess_app, plan_of, read_heads
from dagflow.cli.scaffold.app_text import MODULE_FILE, SCHEMA_FILE, app_text, operator_name, operator_text, target_of
from dagflow.cli.scaffold.case_text import CASES_FILE, FirstRecords, write_case
from dagflow.cli.shared_options import Settings
from dagflow.errors import DagflowError
from dagflow.spec.json_schema import json_schema
from dagflow.spec.known_names import known_names
from dagflow.storage.location import absolute, is_local

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
@click.argument("directory", metavar="DIR")
@click.option("--from", "location", metavar="FILES", help="A file, directory, glob or URL to read; default: a sample.")
@click.option(
    "--to",
    metavar="TARGET",
    default="out",
    show_default=True,
    help="Directory for the records, relative to DIR; parquet:out/table and delta:out/table write tables.",
)
@click.option(
    "--operator",
    metavar="NAME",
    help=f"Add an operator of your own, the class NAME in {MODULE_FILE}: it passes records on unchanged.",
)
@click.pass_obj
def command(settings: Settings, directory: str, location: str | None, to: str, operator: str | None) -> int:
    """Write an app into DIR that reads files; their format, columns and types are detected.

    Reads the beginnings of a few files, decompressed; changes none. Comments in the app give the reason for each
    decision.
    """
    folder = Path(directory)
    target_of(to)  # before anything is read or written
    if operator is not None:
        operator_name(operator)
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
        _require_apart(folder, named)
    with operators_silenced(is_verbose=settings.is_verbose):
        guess = guess_app(heads_of, read_heads(heads_of))
    text = app_text(_name_of(folder), named, guess.format, to, guess.evidence)
    plan_of(text)  # a mistake in it would be found too late
    if operator is None:
        _write(folder, APP_FILE, text)
    else:
        _write(folder, APP_FILE, app_text(_name_of(folder), named, guess.format, to, guess.evidence, operator))
        _write(folder, MODULE_FILE, operator_text(operator, has_columns=guess.format.has_columns))
    _write(folder, SCHEMA_FILE, json.dumps(json_schema(known_names(str(folder / APP_FILE))), indent=1) + "\n")
    if not (folder / ".gitignore").exists():
        _write(folder, ".gitignore", _ignored(to))
    _report(folder, guess, has_test=_write_case(folder, text, guess, to), has_operator=operator is not None)
    return 0


def _write_case(folder: Path, text: str, guess: AppGuess, to: str) -> bool:
    """Write a test of the app beside it, unless one exists; returns whether one exists now."""
    if (folder / CASES_FILE).exists():
        return True
    try:
        sample = FirstRecords.of(guess.head, text, guess.format)
        return sample is not None and bool(write_case(folder, sample, guess.format, to))
    except OSError as error:
        raise DagflowError(f"{folder / CASES_FILE}: cannot be written: {error.strerror or error}") from error


def _require_apart(folder: Path, named: str) -> None:
    """Refuse an app that would read itself, and what it writes."""
    if is_local(named) and Path(named).is_dir() and folder.resolve().is_relative_to(Path(named).resolve()):
        raise DagflowError(
            f"--from: {folder} lies in {named}, so that the app would read what it writes",
            hint=f"say which files, such as --from '{named}/*.csv', or give another DIR",
        )


def _write(folder: Path, name: str, text: str) -> None:
    path = folder / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise DagflowError(f"{path}: cannot be written: {error.strerror or error}") from error


def _name_of(folder: Path) -> str:
    name = re.sub(r"[^a-z0-9]+", "-", folder.resolve().name.lower()).strip("-")
    return name or "app"


def _ignored(to: str) -> str:
    _, path = target_of(to)
    is_inside = is_local(path) and not path.startswith("/") and path.split("/")[0] not in ("", ".", "..")
    return (f"/{path.split('/')[0]}/\n" if is_inside else "") + _IGNORED


def _report(folder: Path, guess: AppGuess, *, has_test: bool, has_operator: bool) -> None:
    lines = [f"{folder / APP_FILE}: an app for the format {guess.format.name}"]
    lines += [f"    {output.on_one_line(line)}" for line in (*guess.format.evidence, *guess.evidence)]
    lines += [f"    {column.name}: {_type(column.type)}" for column in guess.format.columns]
    output.result("\n".join(lines))
    for warning in guess.warnings:
        output.note(f"warning: {output.on_one_line(warning)}")
    enter = "" if folder.resolve() == Path.cwd() else f"cd {shlex.quote(str(folder))} && "
    steps = [f"{enter}dagflow preview {APP_FILE}"]
    steps += [f"edit {MODULE_FILE}"] if has_operator else []
    test = f"dagflow test{' --update' if has_operator else ''}"
    steps += [test] if has_test else []
    output.note(f"next: {', '.join(steps[:-1])}{', and ' if steps[1:] else ''}{steps[-1]}")


def _type(given: object) -> str:
    return f"{given['type']} as {given['format']}" if isinstance(given, dict) else str(given)
