"""Which process drives a run, and whether it still exists."""

from __future__ import annotations

import contextlib
import getpass
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Existence = Literal["there", "paused", "gone", "unknown"]
"""Whether a process exists; "paused" is stopped by a signal (SIGSTOP, Ctrl-Z), "unknown" cannot be seen from here."""

_GONE = "ZXx"
_PAUSED = "Tt"


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """One process of one machine, distinct from later ones with the same id.

    Attributes:
        host: Its machine's name, for display: containers and machines share names.
        user: Who started it.
        pid: Its process id.
        boot: The id of the boot of its machine's kernel, or "" where the system has none.
        pid_space: The namespace of its process id, or "".
        start_ticks: When it started, in clock ticks since the boot; unlike a process id, this is not used again.
    """

    host: str
    user: str
    pid: int
    boot: str = ""
    pid_space: str = ""
    start_ticks: int = 0

    @classmethod
    def of_this_process(cls) -> ProcessIdentity:
        """The process that calls."""
        pid = os.getpid()
        found = _look_up(pid)
        return cls(socket.gethostname(), _user(), pid, *_kernel(), start_ticks=found[1] if found else 0)

    def is_of_this_kernel(self) -> bool:
        """Whether this process and the calling one have the same kernel since the same boot, and so the same clocks."""
        return self.boot != "" and self.boot == _kernel()[0]

    def existence(self) -> Existence:
        """Whether the process exists now.

        A restarted container has another process namespace, and a restarted machine another boot: from there the
        process cannot be seen, and the result is "unknown".
        """
        if not self.boot or (self.boot, self.pid_space) != _kernel():
            return "unknown"
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return "gone"
        except PermissionError:
            pass  # it belongs to another user, and exists
        found = _look_up(self.pid)
        if found is None:
            return "unknown"  # hidden from this user, or gone this very moment
        state, start_ticks = found
        if start_ticks != self.start_ticks or state in _GONE:
            return "gone"
        return "paused" if state in _PAUSED else "there"

    def __str__(self) -> str:
        return f"process {self.pid} of {self.user} on {self.host}"


def _kernel() -> tuple[str, str]:
    boot = space = ""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        space = os.readlink("/proc/self/ns/pid")
    return boot, space


def _look_up(pid: int) -> tuple[str, int] | None:
    try:
        # The command's name in front of them may itself contain parentheses and blanks.
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2].split()
        return fields[0].decode(), int(fields[19])
    except (OSError, IndexError, ValueError):
        return None


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # a container's user may have no name
        return f"uid {os.getuid()}"
