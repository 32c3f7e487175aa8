"""`dagflow trace`: from a row of a table to the bytes that it is from, and back."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path

import click

from dagflow.cli import output
from dagflow.cli.locations import is_app_file, journal_required, load
from dagflow.cli.output import count, on_one_line
from dagflow.cli.shared_options import Settings, set_option
from dagflow.cli.signals import on_driver_thread, stop_requested_by_signals
from dagflow.engine.tracing import Source, Trace, Tracer
from dagflow.engine.what_if import Output, outputs_of
from dagflow.engine.window_replay import app_file
from dagflow.errors import DagflowError, cut_text, own_name
from dagflow.plan.logical import LogicalPlan
from dagflow.storage.context import StorageContext
from dagflow.storage.location import absolute, redacted

_STOPPING = "stopping: nothing is changed; a second signal (Ctrl-C) stops at once"
_MOST_CHARACTERS = 200


@click.command("trace")
@click.argument("table", metavar="TABLE")
@click.argument("place", metavar="[FILE:OFFSET]", required=False)
@click.option("--where", metavar="CONDITION", help='Trace the rows for which this is true, such as "id = 17".')
@click.option("-n", "most", type=click.IntRange(1), default=10, show_default=True, help="Rows to trace.")
@click.option(
    "--app", metavar="APP", help="The app that writes TABLE, if its file is not in this directory or one below it."
)
@click.option("--checkpoint", metavar="URL", help="Its checkpoint, if the app does not name it.")
@set_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_obj
def command(
    settings: Settings,
    table: str,
    place: str | None,
    where: str | None,
    most: int,
    app: str | None,
    checkpoint: str | None,
    overrides: tuple[str, ...],
    as_json: bool,
) -> int:
    """Show the bytes that rows of TABLE are from: file, version, range, record, window, and the app as it was.

    With FILE:OFFSET, shows the rows that the record at this byte became. TABLE is named as in its app, such as
    delta:out/orders, or by its location; an app file, or its checkpoint, stands for its only output. The app runs again
    in this process on the inputs of the rows, in a directory of its own; nothing else is written.
    """
    if (where is None) == (place is None):
        raise click.UsageError('behind TABLE, give either --where, such as --where "id = 17", or FILE:OFFSET')
    at = re.fullmatch(r"(.+):([0-9]{1,18})", place or "in/a.csv:0", re.ASCII | re.DOTALL)
    if at is None:
        raise click.UsageError(f"{place!r} is no FILE:OFFSET, such as in/a.csv:4096")
    logical, own_checkpoint, found = _output_of(table, app, partial(load, settings=settings, overrides=overrides))
    with journal_required(app or table), stop_requested_by_signals(_STOPPING) as stop:
        tracer = Tracer(logical, found, absolute(checkpoint or own_checkpoint), stop)
        trace = on_driver_thread(
            lambda: tracer.of_bytes(absolute(at[1]), int(at[2]), most) if where is None else tracer.of_rows(where, most)
        )
    text = json.dumps(asdict(trace), default=output.json_value) if as_json else "\n".join(_lines(trace))
    output.result(settings.redact(text))
    return 0


def _output_of(table: str, app: str | None, load_app: Callable[[str], LogicalPlan]) -> tuple[LogicalPlan, str, Output]:
    """The app that writes a table, its checkpoint, and the output that the table is."""
    is_checkpoint = app is None and Path(table, "log").is_dir()
    is_whole = is_checkpoint or (app is None and is_app_file(table))
    if is_whole:
        app = app_file(table, StorageContext.default()) if is_checkpoint else table
    logical = load_app(app) if app else _app_that_writes(table, load_app)
    outputs = outputs_of(logical)
    chosen = [each for each in outputs if is_whole or _is(each, table)]
    names = ", ".join(each.name for each in outputs) or "nothing"
    if is_whole and len(chosen) > 1:
        raise click.UsageError(f"{table} has several outputs; name one of them: {names}")
    if not chosen:
        raise click.UsageError(f"{app} does not write {table}; it writes {names}")
    return logical, table if is_checkpoint else logical.attributes.checkpoint, chosen[0]


def _app_that_writes(table: str, load_app: Callable[[str], LogicalPlan]) -> LogicalPlan:
    """The app of a file here, or one directory below, that has the name of a table in its text, and writes it."""
    name = re.split(r"[/:#]", table.rstrip("/"))[-1]
    for path in (path for pattern in ("*.y*ml", "*/*.y*ml") for path in sorted(Path().glob(pattern))):
        if path.is_file() and name in path.read_text(errors="replace"):
            with suppress(DagflowError):
                logical = load_app(str(path))
                if any(_is(each, table) for each in outputs_of(logical)):
                    return logical
    here = os.getcwd()
    raise click.UsageError(f"no app in {here}, or in a directory below it, writes {table}: name the app with --app")


def _is(found: Output, table: str) -> bool:
    """Whether an output is a table, which is named as in the app, or by its location, or by its operator."""
    table, name = table.rstrip("/"), found.name.removeprefix("table ")
    kind, _, location = table.partition(":")
    named = {table, absolute(table)} | ({absolute(location), f"{kind}:{absolute(location)}"} if location else set())
    own = {found.operator, own_name(found.operator), *found.locations, name, name.split(":", 1)[-1]}
    return not named.isdisjoint(own)


def _lines(trace: Trace) -> Iterator[str]:
    name = f"{trace.table}, {trace.version}" if trace.version else trace.table
    for source in trace.sources:
        yield from _source_lines(source, "")
    if trace.refused:
        yield f"the record was refused: {on_one_line(trace.refused)}"
    elif trace.sources and not trace.rows:
        is_old = all(source.state == "corrected" for source in trace.sources)
        taken = "its rows were taken out again, because the file was corrected or deleted"
        yield f"no row of {name}: {taken if is_old else 'an operator has left the record out'}"
    for row in trace.rows:
        values = ", ".join(f"{column} {value}" for column, value in row.values.items())
        shown = f": {on_one_line(cut_text(values, _MOST_CHARACTERS))}" if values else ""
        yield f"{'row' if row.is_of_record or values else 'results'} of {name}{shown}"
        for source in row.sources if not trace.sources else ():
            yield from _source_lines(source, "    ")
        yield from (f"    in {on_one_line(url)}" for url in row.files)
        yield from [f"    {row.note}"] if row.note else ()
    if trace.count > len(trace.rows):
        yield f"and {count(trace.count - len(trace.rows), 'more row')}; -n shows more"


def _source_lines(source: Source, indent: str) -> Iterator[str]:
    at = "" if source.offset is None else f":{source.offset}"
    state = "" if source.state == "read" else f", {source.state}"
    version = f"version of {count(source.size_bytes, 'byte')}, {output.version_text(source)}"
    yield f"{indent}from {on_one_line(source.file)}{at}, {version}{state}"
    if source.record is not None:
        extent = f"{source.offset}" if source.record_end is None else f"[{source.offset}, {source.record_end})"
        raw = source.record
        raw = raw if isinstance(raw, bytes) else json.dumps(raw, default=output.json_value, ensure_ascii=False).encode()
        yield f"{indent}    record {extent}: {cut_text(raw.decode(errors='backslashreplace'), _MOST_CHARACTERS)}"
    elif source.problem:
        yield f"{indent}    {on_one_line(source.problem)}"
    yield f"{indent}    block [{source.start}, {source.end}), window {source.window}"
    same = "as the newest run had it" if source.app.is_newest else "which has changed since"
    yield f"{indent}    app {on_one_line(redacted(source.app.file))}, {same} (fingerprint {source.app.fingerprint})"
