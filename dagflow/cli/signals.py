"""Handles SIGINT, SIGTERM and SIGHUP while an app runs."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from types import FrameType
from typing import TypeVar

from dagflow.cli import output
from dagflow.cli.second_signal import DUPLICATE_S, STOP_SIGNALS
from dagflow.engine.stop_request import StopRequest
from dagflow.errors import RunStoppedError

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
