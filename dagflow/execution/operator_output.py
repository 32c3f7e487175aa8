"""Takes what operators print, and passes it on line by line with the operator's name."""

from __future__ import annotations

import contextlib
import io
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, TextIO

from dagflow.errors import cut_text

MAX_LINE = 2000
"""Characters of a line that are passed on."""


class CapturedStream(io.TextIOBase):
    """Stands in for sys.stdout or sys.stderr, and gives whole lines to a function.

    Args:
        original: The stream that it stands in for.
        take: Takes a line without its end; returns False for a line that goes to the original stream.
        thread: Only what this thread writes is taken; None for all threads.
    """

    def __init__(self, original: TextIO | None, take: Callable[[str], bool], thread: int | None = None) -> None:
        self._original = original
        self._take = take
        self._thread = thread
        self._rest = ""
        self._is_taking = False

    def write(self, text: str) -> int:
        """Take text; what is behind the last end of a line waits for more."""
        is_other = self._thread is not None and threading.get_ident() != self._thread
        if is_other or self._is_taking:
            self._pass_on(text)
            return len(text)
        *lines, rest = (self._rest + text).split("\n")
        self._rest = rest[:MAX_LINE]  # a line without an end does not fill the memory
        for line in lines:
            self._line(line)
        return len(text)

    def _line(self, line: str) -> None:
        self._is_taking = True  # what takes the line may write itself
        try:
            if not self._take(cut_text(line, MAX_LINE)):
                self._pass_on(f"{line}\n")
        finally:
            self._is_taking = False

    def _pass_on(self, text: str) -> None:
        # An operator may have closed the stream; its output is then lost, and nothing else.
        with contextlib.suppress(OSError, ValueError):
            if self._original is not None:
                self._original.write(text)

    def flush(self) -> None:
        """Flush the original stream."""
        with contextlib.suppress(OSError, ValueError):
            if self._original is not None:
                self._original.flush()

    def close(self) -> None:
        """Stay open: an operator that closes its output must not close that of others."""

    def end(self) -> None:
        """Take a last line that has no end."""
        rest, self._rest = self._rest, ""
        if rest:
            self._line(rest)

    def fileno(self) -> int:
        """The descriptor of the original stream."""
        if self._original is None:
            raise io.UnsupportedOperation("fileno")
        return self._original.fileno()

    def isatty(self) -> bool:
        """Whether the original stream is a terminal."""
        return self._original is not None and self._original.isatty()

    def writable(self) -> bool:
        """Text may be written."""
        return True

    @property
    def encoding(self) -> str:  # type: ignore[override]  # the base class has a variable
        """The encoding of the original stream."""
        return getattr(self._original, "encoding", None) or "utf-8"


@contextlib.contextmanager
def captured(*names: str, take: Callable[[str], bool], thread: int | None = None) -> Iterator[None]:
    """Let a function take what is printed within the block.

    Args:
        names: "stdout", "stderr" or both.
        take: See CapturedStream.
        thread: See CapturedStream.
    """
    before = {name: getattr(sys, name) for name in names}
    streams = {name: CapturedStream(stream, take, thread) for name, stream in before.items()}
    for name, stream in streams.items():
        setattr(sys, name, stream)
    try:
        yield
    finally:
        for name, stream in streams.items():
            if getattr(sys, name) is stream:
                setattr(sys, name, before[name])
            stream.end()


@contextlib.contextmanager
def named_records(name: Callable[[], str]) -> Iterator[None]:
    """Put the operator in front of what this thread logs within the block, but for dagflow's own records.

    Args:
        name: Gives the operator at work; "" for none.
    """
    before, thread = logging.getLogRecordFactory(), threading.get_ident()

    def make(*arguments: Any, **options: Any) -> logging.LogRecord:
        record = before(*arguments, **options)
        is_own = record.name.partition(".")[0] in ("dagflow", "operators")
        if not is_own and threading.get_ident() == thread and (operator := name()):
            record.msg, record.args = f"{operator}: {record.getMessage()}", None
        return record

    logging.setLogRecordFactory(make)
    try:
        yield
    finally:
        logging.setLogRecordFactory(before)
