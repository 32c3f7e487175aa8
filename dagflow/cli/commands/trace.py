"""`dagflow trace`: from a row of a table to the bytes that it is from, and back."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from dagflow.cli import output
from dagflow.cli.commands.replay import app_to_repeat
from dagflow.cli.locations import is_app_file, journal_required, load
from dagflow.cli.output import count, on_one_line
from dagflow.cli.shared_options import Settings, set_option
from dagflow.cli.signals import on_driver_thread, stop_requested_by_signals
from dagflow.engine.apart import Output, outputs_of
from dagflow.engine.run_setup import RunOptions
from dagflow.engine.tracing import Tracer
from dagflow.errors import DagflowError, cut_text, own_name
from dagflow.plan.logical import LogicalPlan
from dagflow.report.traced_rows import Source, Trace, TracedRow
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
        raise click.UsageError('give either --where, such as --where "id = 17", or FILE:OFFSET')
    url, offset = ("", 0) if place is None else _parsed(place)
    logical, checkpoint, found = _app_of(table, app, checkpoint, settings, overrides)
    options = RunOptions(checkpoint=checkpoint, workers=1)
    with journal_required(app or table), stop_requested_by_signals(_STOPPING) as stop:
        tracer = Tracer(logical, options, found.operator, stop)
        trace = on_driver_thread(
            lambda: tracer.of_bytes(url, offset, most) if where is None else tracer.of_rows(where, most)
        )
    if as_json:
        output.result(settings.redact(json.dumps(_to_json(trace), default=_json_value)))
    else:
        output.result(settings.redact("\n".join(_lines(trace))))
    return 0


def _parsed(place: str) -> tuple[str, int]:
    match = re.fullmatch(r"(.+):([0-9]{1,18})", place, re.ASCII | re.DOTALL)
    if match is None:
        raise click.UsageError(f"{place!r} is no FILE:OFFSET, such as in/a.csv:4096")
    return absolute(match[1]), int(match[2])


def _app_of(
    table: str, app: str | None, checkpoint: str | None, settings: Settings, overrides: tuple[str, ...]
) -> tuple[LogicalPlan, str, Output]:
    """The app that writes a table, its checkpoint, and the output that the table is."""
    if app is None and (is_app_file(table) or Path(table, "log").is_dir()):
        logical, own, _ = app_to_repeat(table, None, settings, overrides)
        outputs = outputs_of(logical)
        if len(outputs) > 1:
            names = ", ".join(each.name for each in outputs)
            raise click.UsageError(f"{table} has several outputs; name one of them: {names}")
        return logical, checkpoint or own, outputs[0]
    if app is not None:
        logical = load(app, settings, overrides)
        for each in outputs_of(logical):
            if _is(each, table):
                return logical, checkpoint or logical.attributes.checkpoint, each
        names = ", ".join(each.name for each in outputs_of(logical))
        raise click.UsageError(f"{app} does not write {table}; it writes {names}")
    for path in _apps_that_name(re.split(r"[/:#]", table.rstrip("/"))[-1]):
        try:
            logical = load(str(path), settings, overrides)
            found = [each for each in outputs_of(logical) if _is(each, table)]
        except DagflowError:
            continue
        if found:
            return logical, checkpoint or logical.attributes.checkpoint, found[0]
    raise click.UsageError(
        f"no app in {os.getcwd()}, or in a directory below it, writes {table}: name the app with --app"
    )


def _apps_that_name(name: str) -> Iterator[Path]:
    """The files here, and one directory below, that look like an app, and have a name in their text."""
    for pattern in ("*.yaml", "*.yml", "*/*.yaml", "*/*.yml"):
        for path in sorted(Path().glob(pattern)):
            text = path.read_text(errors="replace") if path.is_file() else ""
            if name in text and re.search(r"^(steps|operators):", text, re.MULTILINE):
                yield path


def _is(found: Output, table: str) -> bool:
    """Whether an output is a table, which is named as in the app, or by its location, or by its operator."""
    _, _, location = table.partition(":")
    names = {table.rstrip("/"), absolute(table).rstrip("/"), absolute(location).rstrip("/") if location else table}
    own = {found.operator, own_name(found.operator), *found.locations}
    if found.target is not None:
        name = found.target.name.removeprefix("table ")
        own |= {name, name.partition(":")[2]}
        kind = table.partition(":")[0]
        names |= {f"{kind}:{absolute(location)}"} if location else set()
    return not names.isdisjoint(own)


def _to_json(trace: Trace) -> dict[str, Any]:
    """What `--json` prints."""
    return {
        "table": trace.output,
        "version": trace.version,
        "count": trace.count,
        "rows": [asdict(row) for row in trace.rows],
        "sources": [asdict(source) for source in trace.sources],
        "refused": trace.refused,
    }


def _json_value(value: Any) -> Any:
    return output.text_or_base64(value) if isinstance(value, bytes) else str(value)


def _lines(trace: Trace) -> Iterator[str]:
    version = f", {trace.version}" if trace.version else ""
    for source in trace.sources:
        yield from _source_lines(source, "")
    if trace.refused:
        yield f"the record was refused: {on_one_line(trace.refused)}"
    if trace.sources and not trace.rows and not trace.refused:
        is_old = all(source.state == "corrected" for source in trace.sources)
        why = "an operator has left the record out"
        if is_old:
            why = "its rows were taken out again, because the file was corrected or deleted"
        yield f"no row of {trace.output}{version}: {why}"
    for row in trace.rows:
        yield f"{'row' if row.is_of_record or row.values else 'results'} of {trace.output}{version}{_shown(row)}"
        if not trace.sources:
            for source in row.sources:
                yield from _source_lines(source, "    ", is_of_record=row.is_of_record)
        yield from (f"    in {on_one_line(url)}" for url in row.files)
        if row.note:
            yield f"    {row.note}"
    if trace.count > len(trace.rows):
        yield f"and {count(trace.count - len(trace.rows), 'more row')}; -n shows more"


def _shown(row: TracedRow) -> str:
    values = ", ".join(f"{name} {value}" for name, value in row.values.items())
    return f": {on_one_line(cut_text(values, _MOST_CHARACTERS))}" if values else ""


def _source_lines(source: Source, indent: str, *, is_of_record: bool = True) -> Iterator[str]:
    modified = datetime.fromtimestamp(source.mtime_ns / 1e9, UTC).isoformat(timespec="milliseconds")
    version = f"etag {source.etag}" if source.etag else f"modified {modified}"
    at = f":{source.offset}" if source.offset is not None else ""
    state = "" if source.state == "read" else f", {source.state}"
    length = count(source.size_bytes, "byte")
    yield f"{indent}from {on_one_line(source.file)}{at}, version of {length}, {version}{state}"
    if source.record is not None:
        extent = f"[{source.offset}, {source.record_end})" if source.record_end is not None else f"{source.offset}"
        yield f"{indent}    record {extent}: {_text(source.record)}"
    elif is_of_record and source.problem:
        yield f"{indent}    {on_one_line(source.problem)}"
    app = source.app
    same = "as the newest run had it" if app.is_newest else "which has changed since"
    yield f"{indent}    block [{source.start}, {source.end}), window {source.window}"
    yield f"{indent}    app {on_one_line(redacted(app.file))}, {same} (fingerprint {app.fingerprint})"


def _text(record: Any) -> str:
    if isinstance(record, bytes):
        return output.printable(cut_text(record.decode(errors="backslashreplace"), _MOST_CHARACTERS))
    return on_one_line(cut_text(json.dumps(record, default=_json_value, ensure_ascii=False), _MOST_CHARACTERS))
