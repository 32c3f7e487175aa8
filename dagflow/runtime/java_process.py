"""How the Java process of a run is started: signals that reach the whole process group leave it alone."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

IGNORED_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
"""PySpark lets Java ignore SIGINT. A terminal or a service manager sends these to every process of a run as well, and
the driver could not end the run cleanly without Java. Java ends when its standard input does, which is the driver's
end of a pipe: also after a SIGKILL of the driver."""


class JavaProcessOptions(dict[str, Any]):
    """Options of subprocess.Popen for PySpark, which adds a preexec_fn of its own: signals stay ignored beside it."""

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, _ignoring_signals(value) if name == "preexec_fn" else value)


def _ignoring_signals(before: Callable[[], None]) -> Callable[[], None]:
    def prepare() -> None:
        before()
        for number in IGNORED_SIGNALS:
            signal.signal(number, signal.SIG_IGN)

    return prepare
