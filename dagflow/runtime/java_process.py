"""How the Java process of a run is started: signals that reach the whole process group leave it alone."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

OUT_OF_MEMORY_CODE = 3
"""The exit code of a Java that ends by -XX:+ExitOnOutOfMemoryError."""

OUT_OF_MEMORY_END = "it ran out of memory"
"""What how_it_ended says of such an end."""

END_S = 5.0
"""How long an ending Java is waited for; its connections close before it is gone."""

IGNORED_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
"""PySpark lets Java ignore SIGINT. A terminal or a service manager sends these to every process of a run as well, and
the driver could not end the run cleanly without Java. Java ends when its standard input does, which is the driver's
end of a pipe: also after a SIGKILL of the driver."""


class JavaProcessOptions(dict[str, Any]):
    """Options of subprocess.Popen for PySpark, which adds a preexec_fn and the environment: both are made to fit.

    Args:
        pid_file: Where the process writes its id when it begins.
    """

    def __init__(self, pid_file: Path) -> None:
        super().__init__()
        self._pid_file = pid_file

    def __setitem__(self, name: str, value: Any) -> None:
        if name == "preexec_fn":
            value = _prepared(value, self._pid_file)
        elif name == "env":
            value = with_utf8(value)
        super().__setitem__(name, value)


def with_utf8(environ: Mapping[str, str]) -> dict[str, str]:
    """An environment in which Java takes file names for UTF-8, as Python does, also in the locale C.

    In that locale Java finds no directory whose name has other letters than those of ASCII, and ends without a word.
    """
    locale = next((environ[name] for name in ("LC_ALL", "LC_CTYPE", "LANG") if environ.get(name)), "C")
    return {**environ, "LC_ALL": "C.UTF-8"} if locale in ("C", "POSIX") else dict(environ)


def _prepared(before: Callable[[], None], pid_file: Path) -> Callable[[], None]:
    def prepare() -> None:
        before()
        pid_file.write_text(str(os.getpid()))
        for number in IGNORED_SIGNALS:
            signal.signal(number, signal.SIG_IGN)

    return prepare


def how_it_ended(process: subprocess.Popen[bytes] | None) -> str:
    """How a Java process has ended; "" where this process does not know, or it goes on."""
    if process is None:
        return ""
    try:
        code = process.wait(END_S)
    except subprocess.TimeoutExpired:
        return ""
    if code == OUT_OF_MEMORY_CODE:
        return OUT_OF_MEMORY_END
    if code < 0:
        return f"it was killed by {signal.Signals(-code).name}"
    return f"its exit code is {code}"
