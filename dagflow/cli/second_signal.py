"""Ends the process after the second stop signal, also where Python cannot answer it.

Python's own handlers run between two steps of the main thread. A call in C that keeps the interpreter's lock, or one
that the main thread waits for, would hold them off for ever.
"""

from __future__ import annotations

import os
import select
import signal
import time

# `timeout` and launchers that forward what the terminal has already sent to the whole group deliver one
# request twice, a few milliseconds apart; a person's second Ctrl-C comes later than this.
DUPLICATE_S = 0.1

_GRACE_S = 1.0
"""The process may end by itself, with its own exit code, within this time."""

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, the stop request of a service manager, and the end of the terminal."""


def end_by_second_signal() -> None:
    """Let a process of its own kill this one if it is still there a second after its second stop signal.

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
