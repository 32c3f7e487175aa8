"""Records as a table that fits a terminal."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.cells import cell_len, set_cell_size

from dagflow.cli.output import on_one_line, printable

_GAP = "  "
_MOST_CELL = 60
"""Columns of the screen that a value takes at most where the width is not limited, and others stand beside it."""

_LEAST_CELL = 12
"""Columns of the screen that a value gets before a column of records is left out."""


_MOST_NAME = 200
"""Characters of the name of a column that are shown."""


@dataclass(frozen=True, slots=True)
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
            _fitted(text, size, is_right=_is_number(column), is_place=column.is_place)
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


def _is_number(column: Column) -> bool:
    return any(column.type.startswith(each) for each in ("int", "uint", "float", "double", "half", "decimal"))


def _fitted(text: str, width: int, *, is_right: bool, is_place: bool) -> str:
    size = cell_len(text)
    if size > width and is_place:
        while cell_len(text) > width - 1:
            text = text[1:]
        text = f"…{text}"
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


def place(url: str, offset: int = -1) -> str:
    """A file as a user would type it, relative below the working directory; and the offset, if known."""
    here = os.path.join(os.getcwd(), "")
    name = url[len(here) :] if url.startswith(here) else url
    return f"{name}:{offset}" if offset >= 0 else name


def listed_columns(columns: Iterable[Column]) -> str:
    return ", ".join(f"{_head(column.name)} ({column.type})" for column in columns)


def _head(name: str) -> str:
    """A file may give a column a name of any length."""
    return printable(name if len(name) <= _MOST_NAME else f"{name[: _MOST_NAME - 1]}…")
