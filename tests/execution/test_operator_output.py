"""What operators print, taken line by line."""

from __future__ import annotations

import io
import sys
import threading

from hypothesis import given
from hypothesis import strategies as st

from dagflow.execution.operator_output import MAX_LINE, CapturedStream, captured


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
