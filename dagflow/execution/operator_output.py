"""Takes what operators print, and passes it on line by line with the operator's name."""

from __future__ import annotations

import contextlib
import io
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TextIO

from dagflow.api.operator import OPERATOR_LOGGER
from dagflow.errors import cut_text

MAX_LINE = 2000
"""Characters of a line that are passed on, at most."""


_LAYERS = threading.Lock()
"""Held while streams and factories are replaced, or removed from between others."""


class CapturedStream(io.TextIOBase):
    """Replaces sys.stdout or sys.stderr, and passes whole lines to a function.

    Attributes:
        beneath: The replaced stream; another one after that one has ended.
    """

    def __init__(self, original: TextIO | None, take: Callable[[str], bool], thread: int | None = None) -> None:
        self.beneath = original
        self._take = take
        self._thread = thread
        self._rest = ""
        self._is_taking = False
        self._is_over = False

    def write(self, text: str) -> int:
        """Take text; a line without an end waits for more."""
        is_other = self._thread is not None and threading.get_ident() != self._thread
        if is_other or self._is_taking or self._is_over:
            self._pass_on(text)
            return len(text)
        *lines, rest = (self._rest + text).split("\n")
        self._rest = rest[:MAX_LINE]  # an endless line must not fill the memory
        for line in lines:
            self._line(line)
        return len(text)

    def _line(self, line: str) -> None:
        self._is_taking = True  # the function may write as well
        try:
            if not self._take(cut_text(line, MAX_LINE)):
                self._pass_on(f"{line}\n")
        finally:
            self._is_taking = False

    def _pass_on(self, text: str) -> None:
        # An operator may have closed the stream; then only its output is lost.
        with contextlib.suppress(OSError, ValueError):
            if self.beneath is not None:
                self.beneath.write(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            if self.beneath is not None:
                self.beneath.flush()

    def close(self) -> None:
        """Stay open: an operator that closes its output must not close that of others."""

    def end(self) -> None:
        """Take the last line if it has no end; later writes go to the original stream."""
        self._is_over = True
        rest, self._rest = self._rest, ""
        if rest:
            self._line(rest)

    def fileno(self) -> int:
        if self.beneath is None:
            raise io.UnsupportedOperation("fileno")
        return self.beneath.fileno()

    def isatty(self) -> bool:
        return self.beneath is not None and self.beneath.isatty()

    def writable(self) -> bool:
        return True

    @property
    def encoding(self) -> str:  # type: ignore[override]  # the base class has a variable
        return getattr(self.beneath, "encoding", None) or "utf-8"


@contextlib.contextmanager
def captured(*names: str, take: Callable[[str], bool], thread: int | None = None) -> Iterator[None]:
    """Pass what is printed within the block to a function."""
    streams: dict[str, CapturedStream] = {}
    with _LAYERS:
        for name in names:
            streams[name] = CapturedStream(getattr(sys, name), take, thread)
            setattr(sys, name, streams[name])
    try:
        yield
    finally:
        with _LAYERS:
            for name, stream in streams.items():
                setattr(sys, name, _without(stream, getattr(sys, name)))
        for stream in streams.values():
            stream.end()


class _NamedRecords:
    """Makes log records, and puts the operator in front of those of one thread."""

    def __init__(self, beneath: Any, name: Callable[[], str]) -> None:
        self.beneath = beneath
        self._name = name
        self._thread = threading.get_ident()

    def __call__(self, *arguments: Any, **options: Any) -> logging.LogRecord:
        record: logging.LogRecord = self.beneath(*arguments, **options)
        is_own = record.name.partition(".")[0] in ("dagflow", "operators")
        if not is_own and threading.get_ident() == self._thread and (operator := self._name()):
            record.msg, record.args = f"{operator}: {record.getMessage()}", None
        return record


@contextlib.contextmanager
def named_records(name: Callable[[], str]) -> Iterator[None]:
    """Put the operator in front of what this thread logs within the block, except in dagflow's own records."""
    with _LAYERS:
        made = _NamedRecords(logging.getLogRecordFactory(), name)
        logging.setLogRecordFactory(made)
    try:
        yield
    finally:
        with _LAYERS:
            logging.setLogRecordFactory(_without(made, logging.getLogRecordFactory()))


def _without(layer: Any, top: Any) -> Any:
    """The top layer after one layer is removed, which may be below others: runs of several threads end in any order."""
    if top is layer:
        return layer.beneath
    above = top
    while isinstance(above, type(layer)):
        if above.beneath is layer:
            above.beneath = layer.beneath
            break
        above = above.beneath
    return top


BURST = 16 << 10
"""Characters of one operator that are logged at once."""

PER_SECOND = 2 << 10
"""Characters of one operator that are logged per second, in the long run."""


class OperatorOutput:
    """Logs what operators print, each up to a limit; several threads may call it.

    Args:
        rest: Where all output is, as the end of a sentence: "in a file", or "left out".
    """

    def __init__(self, rest: str, now: Callable[[], float] = time.monotonic) -> None:
        self._rest = rest
        self._now = now
        self._lock = threading.Lock()
        self._left: dict[str, float] = {}
        self._seen_s: dict[str, float] = {}
        self._full: set[str] = set()
        self._logger = logging.getLogger(OPERATOR_LOGGER)

    def line(self, operator: str, place: str, text: str) -> None:
        with self._lock:
            now = self._now()
            passed_s = now - self._seen_s.get(operator, now)
            left = min(self._left.get(operator, BURST) + passed_s * PER_SECOND, BURST)
            self._seen_s[operator] = now
            if operator in self._full and left < BURST / 2:
                self._left[operator] = left
                return
            self._full.discard(operator)
            self._left[operator] = left - len(text)
            is_full = left < len(text)
            if is_full:
                self._full.add(operator)
        if is_full:
            self.leave_out(operator)
        else:
            self._logger.info("%s: %s", place, text)

    def leave_out(self, operator: str) -> None:
        self._logger.info("further output of %s is %s", operator, self._rest)
