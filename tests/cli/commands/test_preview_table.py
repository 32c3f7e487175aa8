"""A table of records fits the screen, and different values look different."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from dagflow.cli.commands.preview import Column, table

COLUMNS = [
    Column("file:offset", "", ["in/orders.csv:1"], is_place=True),
    Column("id", "int64", [7]),
    Column("note", "string", ["a very long text " * 5]),
    Column("日本", "string", ["語" * 20]),
]


def test_values_that_a_terminal_would_obey_are_made_visible() -> None:
    """One line for each record, and null is not an empty text."""
    text, _ = table([Column("x", "string", ["a\nb", "", None, "\x1b[31m", True])], None)
    assert text.splitlines() == ["x", "string", "a\\nb", '""', "null", "\\x1b[31m", "true"]


@pytest.mark.parametrize("width", range(1, 120))
def test_a_table_is_no_wider_than_the_screen(width: int) -> None:
    """Values are cut, and columns for which there is no room are left out, from the last on."""
    text, left_out = table(COLUMNS, width)
    assert left_out == COLUMNS[len(COLUMNS) - len(left_out) :]
    assert max(map(cell_len, text.splitlines())) <= max(width, 12)
    assert width < 60 or not left_out


def test_the_end_of_a_place_and_the_beginning_of_a_text_are_kept() -> None:
    """Numbers stand at the right."""
    text, left_out = table(COLUMNS[:3], 40)
    assert text.splitlines()[-1] == "in/orders.csv:1      7  a very long tex…"
    assert not left_out
    of_wide, _ = table([Column("file:offset", "", ["入力/入力.csv:12"], is_place=True)], 12)
    assert of_wide.splitlines()[-1] == "…入力.csv:12"
