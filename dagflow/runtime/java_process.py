"""Starts the Java process of a run so that signals to the whole process group do not reach it."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Mapping, Sequence

OUT_OF_MEMORY_CODE = 3
"""The exit code of a Java that stops because of -XX:+ExitOnOutOfMemoryError."""

OUT_OF_MEMORY_END = "it ran out of memory"
"""The text of how_it_ended() for this exit code."""

END_S = 5.0
"""Seconds to wait for a Java that is ending; its connections close before it is gone."""

_LOOK_EVERY_S = 0.2

_BOUND = """\
trap '' INT TERM HUP
exec 3<&0
begun() {
  kill -0 $$ || exit
  read -r facts < /proc/$$/stat && set -- $facts && shift 21 && echo "$1"
}
(
  first=$(begun)
  read -r _ <&3
  left={looks}
  while [ $left -gt 0 ]; do
    # Another process may have the number by now.
    [ "$(begun)" = "$first" ] && kill -0 $$ || exit
    left=$((left - 1))
    command -p sleep 0.2 || command -p sleep 1 || left=0
  done
  kill -KILL $$
) >/dev/null 2>&1 &
exec "$@" 3<&-
"""


def bound_to_driver(command: Sequence[str], grace_s: float = 10.0) -> list[str]:
    """A command that ends with the driver, and ignores signals that are sent to every process of a run.

    Without Java, which a signal of a terminal or a service manager would end, the driver could not end the run cleanly.
    Java ends when its standard input does. That is a pipe from the driver, so Java ends also after a SIGKILL of the
    driver. A second process at that pipe kills a Java that has not ended after grace_s: Java does not read the pipe
    while it starts, or when it hangs, or after its main thread has failed. The main thread fails where the directory of
    a killed run is removed before Java has written its address there; only the thread that waits for connections
    remains then.
    """
    return ["/bin/sh", "-c", _BOUND.replace("{looks}", str(round(grace_s / _LOOK_EVERY_S))), "sh", *command]


def with_utf8(environ: Mapping[str, str]) -> dict[str, str]:
    """An environment in which Java reads file names as UTF-8, as Python does, also in the locale C.

    In that locale Java finds no directory whose name has letters outside of ASCII, and ends without a message.
    """
    locale = next((environ[name] for name in ("LC_ALL", "LC_CTYPE", "LANG") if environ.get(name)), "C")
    return {**environ, "LC_ALL": "C.UTF-8"} if locale in ("C", "POSIX") else dict(environ)


def how_it_ended(process: subprocess.Popen[bytes] | None) -> str:
    """How a Java process has ended; "" where this process does not know, or Java still runs."""
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
