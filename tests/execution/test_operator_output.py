"""What operators print, taken line by line."""

from __future__ import annotations

import contextlib
import io
import logging
import sys
import threading
from collections.abc import Callable
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagflow.execution.operator_output import MAX_LINE, CapturedStream, captured, named_records


@given(st.lists(st.text(st.sampled_from("ab\n"), max_size=6)))
def test_lines_are_whole_however_they_are_written(pieces: list[str]) -> None:
    """Each line is taken once, and the last one also without an end."""
    lines: list[str] = []
    stream = CapturedStream(None, lambda line: lines.append(line) or True)  # type: ignore[func-returns-value]  # appends
    for piece in pieces:
        stream.write(piece)
    stream.end()
    *whole, rest = "".join(pieces).split("\n")
    assert lines == [*whole, *([rest] if rest else [])]


def test_only_the_thread_of_the_task_is_captured() -> None:
    """Other threads of the driver write to the terminal as before; so does what takes the lines."""
    original, lines = io.StringIO(), []

    def take(line: str) -> bool:
        lines.append(line)
        sys.stdout.write("took one\n")
        return line != "not mine"

    before, sys.stdout = sys.stdout, original
    try:
        with captured("stdout", take=take, thread=threading.get_ident()):
            print("mine")
            print("not mine")
            thread = threading.Thread(target=print, args=("another's",))
            thread.start()
            thread.join()
            sys.stdout.close()
            print("x" * (2 * MAX_LINE))
        assert sys.stdout is original
    finally:
        sys.stdout = before
    assert lines[:2] == ["mine", "not mine"] and len(lines[2]) < MAX_LINE + 40
    assert original.getvalue().splitlines() == ["took one", "took one", "not mine", "another's", "took one"]


def noting(lines: list[str]) -> Callable[[str], bool]:
    """What takes note of a line, and lets it go on."""

    def take(line: str) -> bool:
        lines.append(line)
        return False

    return take


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_captures_end_in_any_order_and_leave_nothing(order: tuple[int, ...]) -> None:
    """Runs of several threads overlap: a capture that ends takes none of the others with it, and brings none back."""
    original, before, factory = io.StringIO(), sys.stdout, logging.getLogRecordFactory()
    lines: list[list[str]] = [[], [], []]
    sys.stdout = original
    try:
        open_ones = [contextlib.ExitStack() for _ in lines]
        for took, stack in zip(lines, open_ones, strict=True):
            stack.enter_context(captured("stdout", take=noting(took)))
            stack.enter_context(named_records(lambda: "op"))
        streams = [sys.stdout]
        for each in order:
            print("all")
            open_ones[each].close()
        assert sys.stdout is original
        print("late", file=streams[0])
    finally:
        sys.stdout = before
    assert [len(took) for took in lines] == [order.index(each) + 1 for each in range(3)]
    assert original.getvalue().splitlines() == ["all", "all", "all", "late"]
    assert logging.getLogRecordFactory() is factory
