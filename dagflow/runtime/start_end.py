"""Ends a Java process that is being started for a run that shall stop."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from dagflow.errors import RunStoppedError

LOOK_EVERY_S = 0.1


@contextlib.contextmanager
def ended_with_run(must_stop: Callable[[], bool], pid_file: Path) -> Iterator[None]:
    """Kill a Java process of this one as soon as the run shall stop: what waits for it in the body fails then.

    Neither PySpark's wait for Java nor Spark's for a master, which takes a minute, can be given up otherwise.

    Args:
        must_stop: Whether the run shall stop; called by another thread.
        pid_file: Where the process has written its id, if it has begun.

    Raises:
        RunStoppedError: The body failed, and the run shall stop.
    """
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.wait(LOOK_EVERY_S):
            if must_stop() and _kill_child(pid_file):
                return

    watching = threading.Thread(target=watch, name="start-end", daemon=True)
    watching.start()
    try:
        yield
    except Exception as error:
        if must_stop():
            raise RunStoppedError("stopped while Spark started") from error
        raise
    finally:
        is_over.set()
        watching.join()


def _kill_child(pid_file: Path) -> bool:
    """Kill the process; whether there is one."""
    with contextlib.suppress(OSError, ValueError):
        pid = int(pid_file.read_text())
        # Raises where it has been waited for, and the id may be another's.
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        os.kill(pid, signal.SIGKILL)
        return True
    return False
