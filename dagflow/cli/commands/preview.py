"""`dagflow preview`: the first records that reach a port, without Spark."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import click
from rich.cells import cell_len, set_cell_size

from dagflow.cli import output
from dagflow.cli.display import LineDisplay
from dagflow.cli.locations import load, size_in_bytes
from dagflow.cli.output import count, on_one_line, place, printable, size
from dagflow.cli.progress import logging_to, operators_silenced
from dagflow.cli.shared_options import Settings, set_option
from dagflow.engine.preview import Preview, preview
from dagflow.engine.preview_chain import DEFAULT_READ_BYTES, DEFAULT_RECORDS, PreviewOptions
from dagflow.frozen import frozen

_MOST_BYTES = 72
"""Columns of the screen that the bytes of a record that was refused take at most."""


@click.command("preview")
@click.argument("app", metavar="APP")
@set_option
@click.option("--at", metavar="OPERATOR.PORT", help="Port to look at; default: the input of the app's first writer.")
@click.option(
    "-n",
    "records",
    metavar="N",
    type=click.IntRange(1),
    default=DEFAULT_RECORDS,
    show_default=True,
    help="Records to show.",
)
@click.option("--file", metavar="FILE", help="Read only this file; it need not be part of the app's input.")
@click.option(
    "--offset",
    metavar="BYTE",
    type=click.IntRange(0),
    default=0,
    help="With --file: start at the first record that begins at this byte or after it.",
)
@click.option(
    "--read",
    "read_bytes",
    metavar="SIZE",
    default=f"{DEFAULT_READ_BYTES >> 20}MiB",
    show_default=True,
    callback=size_in_bytes,
    help="Read at most this much, even if fewer records arrive.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_obj
def command(
    settings: Settings,
    app: str,
    overrides: tuple[str, ...],
    at: str | None,
    records: int,
    file: str | None,
    offset: int,
    read_bytes: int,
    as_json: bool,
) -> int:
    """Show the first records that reach a port of APP, with their types, files and offsets.

    Runs the operators up to there in this process: without Spark and Java, without a checkpoint, and without output.
    Reads no more than it needs. Ends with exit code 1 if a run would fail on the same input.
    """
    logical = load(app, settings, overrides)
    # Ranges that are left out are part of the result; the time of a run is irrelevant here.
    with (
        logging_to(LineDisplay(logical.name, settings.redact), is_verbose=settings.is_verbose),
        operators_silenced(is_verbose=settings.is_verbose),
    ):
        found = preview(logical, PreviewOptions(at, records, file, offset, read_bytes))
    if as_json:
        facts = {field.name: getattr(found, field.name) for field in dataclasses.fields(found)}
        facts["error"] = None if found.error is None else str(found.error)
        shown = json.dumps(_plain(facts), ensure_ascii=False, indent=2)
    else:
        shown = "\n".join(_lines(found))
    if as_json or found.files or found.error is None:
        output.result(settings.redact(shown))
    if offset and found.is_complete and not found.files:
        output.note(f"no record begins at byte {offset:,} of {file}, or behind it")
    for note in found.notes():
        output.note(note)
    if found.error is not None:
        raise found.error
    return 1 if found.ends_run else 0


def _lines(found: Preview) -> Iterator[str]:
    # The caller may have closed it.
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if is_terminal else None
    if found.records:
        origins = [place(each.file, each.offset) for each in found.records]
        columns = [Column("file:offset", "", origins, is_place=True)] if any(origins) else []
        for name, kind in found.columns.items():
            columns.append(Column(name, kind, [each.values.get(name) for each in found.records]))
        text, left_out = table(columns, width)
        yield text
        if left_out:
            yield f"and {count(len(left_out), 'column')} that do not fit: {listed_columns(left_out)}"
        yield ""
    yield f"{found.port}: {_what_arrived(found)}"
    names = max((len(each.name) for each in found.operators), default=0)
    for each in found.operators:
        figures = ", ".join(f"{port} {number:,}" for port, number in each.given.items())
        figures = figures if len(each.given) > 1 else f"{sum(each.given.values()):,}"
        of = "" if each.taken is None else f" of {each.taken:,}"
        yield f"    {each.name:<{names}}  {figures}{of}"
    if found.rejects:
        hidden = found.reject_count - len(found.rejects)
        rest = f", and {hidden:,} of them not shown" if hidden else ""
        yield f"refused: {count(found.reject_count, 'record')}{rest}"
        for reject in found.rejects:
            # Whole, on lines of its own: its end says most, and a table would cut it.
            yield f"    {output.on_one_line(place(reject.file, reject.offset))}: {output.printable(reject.reason)}"
            raw = table([Column("", "", [reject.raw])], _MOST_BYTES)[0].strip()
            if not reject.reason.endswith(raw):
                yield f"        {raw}"
    for left in found.left_out:
        yield f"left out: {output.on_one_line(place(left.url))} [{left.start}, {left.end}): {left.reason}"


def _what_arrived(found: Preview) -> str:
    files = count(len(found.files), "file")
    extent = f"the first {size(found.size_bytes)} ({files})"
    if found.is_complete:
        extent = f"all input ({files}, {size(found.size_bytes)})"
    if found.error is not None:
        extent = f"{size(found.size_bytes)} ({files}) before an error"
    shown = _of(len(found.records), found.count, "record")
    if found.at_end:
        return f"{shown}: the result of {extent}" + ("" if found.is_complete else " alone")
    if not found.count:
        more = "" if found.is_complete or found.error is not None else "; --read reads further"
        return f"no records arrived from {extent}{more}"
    return f"{shown} from {extent}"


def _of(shown: int, number: int, noun: str) -> str:
    return count(number, noun) if shown == number else f"{shown:,} of {count(number, noun)}"


def _plain(value: Any) -> Any:
    """A value as JSON: text for types that JSON lacks; bytes that are no text in base64."""
    if isinstance(value, bytes):
        return output.text_or_base64(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if value is None or isinstance(value, bool | int | str):
        return value
    if dataclasses.is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return str(value)


_GAP = "  "
_NUMBERS = ("int", "uint", "float", "double", "half", "decimal")
_MOST_CELL = 60
"""Columns of the screen that a value takes at most where the width is not limited, and others stand beside it."""

_LEAST_CELL = 12
"""Columns of the screen that a value gets before a column of records is left out."""


_MOST_NAME = 200


@frozen
class Column:
    """A column of a table.

    Attributes:
        is_place: Whether values are cut at their beginning, because their end says most.
    """

    name: str
    type: str
    values: Sequence[Any]
    is_place: bool = False


def table(columns: Sequence[Column], width: int | None) -> tuple[str, list[Column]]:
    """Columns beside each other: names, types, and a line for each record.

    Returns:
        The table, and the columns for which there is no room.
    """
    cells = [[_shown(value) for value in column.values] for column in columns]
    heads = [
        [_head(column.name), column.type] if any(c.type for c in columns) else [_head(column.name)]
        for column in columns
    ]
    wanted = [max(map(cell_len, [*head, *own])) for head, own in zip(heads, cells, strict=True)]
    widths = _widths(wanted, width)
    lines = []
    for line in zip(*([*head, *own] for head, own in zip(heads, cells, strict=True)), strict=True):
        texts = [
            _fitted(text, size, is_right=column.type.startswith(_NUMBERS), is_place=column.is_place)
            for text, size, column in zip(line, widths, columns, strict=False)
        ]
        lines.append(_GAP.join(texts).rstrip())
    return "\n".join(lines), list(columns[len(widths) :])


def _widths(wanted: Sequence[int], width: int | None) -> list[int]:
    """The width of each column that has room, from the first on; one that is narrow keeps its width."""
    if width is None:
        return [min(each, _MOST_CELL) if len(wanted) > 2 else each for each in wanted]
    count, room = 0, width + len(_GAP)
    for each in wanted:
        room -= min(each, _LEAST_CELL) + len(_GAP)
        if room < 0 and count:
            break
        count += 1
    sizes = [min(each, _LEAST_CELL) for each in wanted[:count]]
    room = width - sum(sizes) - len(_GAP) * (count - 1)
    # The narrowest first: room that one column does not need goes to wider ones.
    for left, index in enumerate(sorted(range(count), key=lambda index: wanted[index])):
        more = min(wanted[index] - sizes[index], max(0, room) // (count - left))
        sizes[index] += more
        room -= more
    return sizes


def _fitted(text: str, width: int, *, is_right: bool, is_place: bool) -> str:
    size = cell_len(text)
    if size > width and is_place:
        text = f"…{set_cell_size(text[::-1], width - 1)[::-1]}"
    elif size > width:
        text = set_cell_size(text, max(width - 1, 0)).rstrip() + "…"
    padding = " " * (width - cell_len(text))
    return padding + text if is_right else text + padding


def _shown(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, bytes):
        value = value.decode(errors="backslashreplace")
    text = str(value)
    return on_one_line(text) if text else '""'


def listed_columns(columns: Iterable[Column]) -> str:
    return ", ".join(f"{_head(column.name)} ({column.type})" for column in columns)


def _head(name: str) -> str:
    """A file may give a column a name of any length."""
    return printable(name if len(name) <= _MOST_NAME else f"{name[: _MOST_NAME - 1]}…")
