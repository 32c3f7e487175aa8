"""Handles SIGINT, SIGTERM and SIGHUP while an app runs."""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, TypeVar

from dagflow.cli import output
from dagflow.errors import RunStoppedError

if TYPE_CHECKING:
    from dagflow.engine.live_run import StopRequest

T = TypeVar("T")

ANSWER_S = 0.1
"""Seconds within which a signal is answered that the system has handed to another thread than the main one."""


@contextmanager
def stop_on_signals(
    first: Callable[[], None], again: Callable[[], None], clock: Callable[[], float] = time.monotonic
) -> Iterator[None]:
    """Handle the stop signals for as long as the block lasts; then restore the former handlers.

    Where SIGHUP is ignored it stays ignored: `nohup` relies on it.

    Args:
        clock: Seconds from any start; distinguishes a second request from an echo of the first.
    """
    if threading.current_thread() is not threading.main_thread():
        # Python delivers signals to the main thread alone: where dagflow is embedded, they are the host's.
        yield
        return
    first_at: float | None = None

    def answer(number: int, frame: FrameType | None) -> None:
        nonlocal first_at
        now = clock()
        if first_at is None:
            first_at = now
            first()
        elif now - first_at > DUPLICATE_S:
            again()

    is_hangup_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    answered = (number for number in STOP_SIGNALS if not (is_hangup_ignored and number is signal.SIGHUP))
    before = {number: signal.signal(number, answer) for number in answered}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def stop_requested_by_signals(text: str) -> Iterator[StopRequest]:
    """Let the first stop signal ask for the end, and the second one end the process, for as long as the block lasts."""
    from dagflow.engine.live_run import StopRequest  # heavy for commands that end at once

    stop = StopRequest()

    def ask() -> None:
        stop.request()
        output.at_once(f"{text}\n")

    with stop_on_signals(ask, lambda: os._exit(RunStoppedError.exit_code)):
        yield stop


def on_driver_thread(work: Callable[[], T]) -> T:
    """Do work on a thread of its own and wait for it here, where signals are answered meanwhile.

    PySpark replaces the handler of SIGINT when its context is made in the main thread, and a call into
    the JVM would keep the main thread from answering.
    """
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="dagflow-driver") as pool:
        working = pool.submit(work)
        # A signal may reach any thread, but only the main one answers it, and only once it is awake.
        while wait([working], timeout=ANSWER_S).not_done:
            pass
        return working.result()


# `timeout` and launchers that forward what the terminal has already sent to the whole group deliver one
# request twice, a few milliseconds apart; a person's second Ctrl-C comes later than this.
DUPLICATE_S = 0.1

_GRACE_S = 1.0
"""The process may end by itself, with its own exit code, within this time."""

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, the stop request of a service manager, and the end of the terminal."""


def end_by_second_signal() -> None:
    """Let a process of its own kill this one if it is still there a second after its second stop signal.

    Python's own handlers run between two steps of the main thread. A call in C that keeps the interpreter's lock, or
    one that the main thread waits for, would hold them off for ever.

    Called by a process that has one thread. The other process ends with this one.
    """
    read_end, write_end = os.pipe()
    watched = os.getpid()
    if os.fork():
        os.close(read_end)
        os.set_blocking(write_end, False)
        # Python's handler in C writes the number of each signal, whatever the interpreter does.
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        return
    try:
        os.close(write_end)
        _watch(read_end, watched)
    finally:
        os._exit(0)


def _watch(read_end: int, watched: int) -> None:
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    silence = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        # Who reads what the watched process prints must see its end.
        os.dup2(silence, stream)
    first_at = None
    while numbers := os.read(read_end, 64):
        if not any(number in STOP_SIGNALS for number in numbers):
            continue
        now = time.monotonic()
        if first_at is None:
            first_at = now
        elif now - first_at > DUPLICATE_S:
            break
    else:
        return
    end_at = time.monotonic() + _GRACE_S
    while (left_s := end_at - time.monotonic()) > 0:
        if select.select([read_end], [], [], left_s)[0] and not os.read(read_end, 64):
            return
    if os.getppid() == watched:
        os.kill(watched, signal.SIGKILL)
