"""Operators that misbehave, for tests of what becomes of their tasks."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator

from tests.execution.sample_operators import SampleWords, TextSample


class UnpicklableError(BaseException):
    """No Exception, and it cannot be pickled."""

    def __init__(self, text: str, lock: object) -> None:
        super().__init__(text)
        self.lock = lock


class ErrorWithoutText(Exception):
    """Has no text."""

    def __str__(self) -> str:
        raise LookupError("no text")


def recurse() -> None:
    """Call itself."""
    recurse()


def fork() -> None:
    """Let a child come back as if it were the task."""
    os.fork()


def leave_a_child_and_die() -> None:
    """Be killed while a forked process lives on."""
    if os.fork() == 0:
        signal.pause()
    os.kill(os.getpid(), signal.SIGKILL)


def raise_odd() -> None:
    """Raise what is no Exception."""
    raise UnpicklableError("odd", threading.Lock())


def raise_mute() -> None:
    """Raise what cannot be shown."""
    raise ErrorWithoutText


def raise_long() -> None:
    """Raise 50 MB."""
    raise ValueError("head " + "x" * 50_000_000 + " tail")


def leave_a_generator() -> None:
    """Raise what Python ends generators with."""
    raise GeneratorExit("left")


def interrupt() -> None:
    """Raise what Python makes of Ctrl-C."""
    raise KeyboardInterrupt("stop")


def lack_memory() -> None:
    """Ask for more memory than there is."""
    bytearray(1 << 60)


def warn() -> None:
    """Warn, where warnings are errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.warn("old", DeprecationWarning, stacklevel=1)


def leave_a_thread() -> None:
    """Leave a thread running."""
    threading.Thread(target=threading.Event().wait, daemon=True).start()


def close_stdout() -> None:
    """Close what it prints to, and print."""
    sys.stdout.close()
    os.close(1)
    print("into nothing")


def talk() -> None:
    """Print, and log."""
    print("hello")
    print("no end", end="")
    print(" yet")
    logging.getLogger("my_ops").warning("take %s", "care")


def chat() -> None:
    """Print for each record."""
    for number in range(2000):
        print(f"record {number}")


FAILING: dict[str, tuple[Callable[[], object], str]] = {
    "exit": (lambda: sys.exit(4), "raised SystemExit(4)"),
    "odd": (raise_odd, "raised UnpicklableError("),
    "mute": (raise_mute, "raised ErrorWithoutText(its text cannot be shown: __str__ raised LookupError)"),
    "long": (raise_long, "xxx … 50 MB left out … xxx"),
    "generator": (leave_a_generator, "raised GeneratorExit(left)"),
    "memory": (lack_memory, "raised MemoryError()"),
    "recursion": (recurse, "raised RecursionError(maximum recursion depth exceeded"),
    "warning": (warn, "raised DeprecationWarning(old)"),
}
"""What fails a task, and what its message says."""

INTERRUPTING = {"interrupt": (interrupt, "raised KeyboardInterrupt(stop)")}
"""The same, of what a user may do to the main thread of a driver."""

DYING: dict[str, tuple[Callable[[], object], str]] = {
    "exit at once": (lambda: os._exit(3), "its Python process was killed 4 times, or called os._exit()"),
    "segmentation fault": (lambda: ctypes.string_at(0), "its Python process died 4 times: Segmentation fault"),
    "kill": (
        lambda: os.kill(os.getpid(), signal.SIGKILL),
        "its Python process was killed 4 times, or called os._exit()",
    ),
    "kill of a parent": (leave_a_child_and_die, "its Python process was killed 4 times, or called os._exit()"),
}
"""What ends the process of a task."""


def hold_python() -> None:
    """Run native code that does not let go of Python's lock."""
    ctypes.PyDLL(None).usleep(2_500_000)


HARMLESS: dict[str, Callable[[], object]] = {
    "fork": fork,
    "thread": leave_a_thread,
    "closed stdout": close_stdout,
    "talk": talk,
    "chat": chat,
}
"""What a task survives."""


def die_beside_another() -> None:
    """Leave what two processes that die by a signal at the same moment may leave."""
    os.write(2, b"Fatal Python error: Fatal Python error: Bus error\n\n")
    os._exit(1)


OTHERS: dict[str, Callable[[], object]] = {"native": hold_python, "beside another": die_beside_another}
"""What only some runtimes are tried with."""


class Misbehaving(SampleWords):
    """Reads, and does one of the above first."""

    how: str

    @SampleWords.samples.each
    def read(self, sample: TextSample) -> Iterator[None]:
        """Misbehave, and go on."""
        failing = {**FAILING, **INTERRUPTING, **DYING}.get(self.how)
        (failing[0] if failing else {**HARMLESS, **OTHERS}[self.how])()
        yield from super().read(sample)
