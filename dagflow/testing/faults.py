"""Simulated crashes at a chosen moment, for tests of the recovery.

CrashPoint counts the calls that change something durable, and simulates at the k-th of them that the process is killed:
from then on its storage does nothing. A test runs its work with k = 1, 2, 3, …, each time starts again without faults,
and compares what is published, until a run completes without reaching its fault.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")


class InjectedCrash(KeyboardInterrupt):  # no failure of an operator, so that no handler of errors catches it
    """The simulated process is dead: its storage does nothing any more."""


class CrashPoint:
    """A crash before the k-th durable call, after which every call fails.

    Args:
        at: The index of the call, counted from 1; 0 for none.
    """

    def __init__(self, at: int = 0) -> None:
        self.at = at
        self.calls = 0
        self.is_dead = False

    @property
    def has_struck(self) -> bool:
        """Whether the fault has occurred."""
        return 0 < self.at <= self.calls

    def call(self, act: Callable[[], T]) -> T:
        """Call a function that changes something durable, with the fault if this is the k-th call.

        Raises:
            InjectedCrash: The crash is at this call, or was at an earlier one.
        """
        self.require_alive()
        self.calls += 1
        self.is_dead = self.calls == self.at
        self.require_alive()
        return act()

    def require_alive(self) -> None:
        """Raise InjectedCrash if the crash has occurred."""
        if self.is_dead:
            raise InjectedCrash


_CHANGES = {"os.link", "os.rename", "os.remove", "os.mkdir", "os.rmdir"}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


@functools.cache
def _watched() -> list[tuple[str, CrashPoint]]:
    """The watched directories; an audit hook cannot be removed, and does nothing while there are none."""
    watched: list[tuple[str, CrashPoint]] = []

    def look(event: str, args: tuple[Any, ...]) -> None:
        if not watched:
            return
        if event in _CHANGES:
            path = args[1] if event in ("os.link", "os.rename") else args[0]
        elif event == "open" and isinstance(args[2], int) and args[2] & _WRITING:
            path = args[0]
        else:
            return
        if isinstance(path, (str, bytes)):
            for root, faults in list(watched):
                if os.fsdecode(path).startswith(root):
                    faults.call(lambda: None)

    sys.addaudithook(look)
    return watched


@contextlib.contextmanager
def watched_disk(root: str, faults: CrashPoint) -> Iterator[None]:
    """Count every call that changes a name below a local directory, and trigger the fault before one of them.

    This works below dagflow: it sees each link, rename, unlink, mkdir, rmdir and open for writing of this process, also
    those inside one publish().

    Args:
        root: An absolute path.
    """
    watched, entry = _watched(), (root, faults)
    watched.append(entry)
    try:
        yield
    finally:
        watched.remove(entry)


@contextlib.contextmanager
def crashing_disk(root: str, at: int = 0) -> Iterator[CrashPoint]:
    """Count every call that changes a name below a local directory, and crash before one; see watched_disk."""
    faults = CrashPoint(at)
    with watched_disk(root, faults):
        yield faults
