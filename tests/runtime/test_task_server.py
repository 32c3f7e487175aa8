"""The process that forks those of tasks, started before its app is known."""

from __future__ import annotations

import os
import select
import subprocess
import sys

from tests.cli.processes import PATIENCE_S, environment

STARTS = """
import sys
from dagflow.runtime.task_server import TaskServer
server = TaskServer()
print(server._process.pid, {"pyarrow", "pydantic", "rich"} & sys.modules.keys())
"""


def is_alive(pid: int) -> bool:
    """Whether a process is there."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_server_that_no_run_takes_ends_with_its_process() -> None:
    """A mistake in the app, or nothing to do; and to start one imports nothing that takes long."""
    done = subprocess.run(
        [sys.executable, "-c", f"{STARTS}\nserver.close()\nserver.close()"],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    pid, imported = done.stdout.split(" ", 1)
    assert imported == "set()\n"
    assert not is_alive(int(pid))
    assert done.stderr == ""


def test_a_server_whose_driver_is_killed_ends_by_itself() -> None:
    """It has no app yet, and never gets one."""
    code = f"{STARTS}\nimport os, signal\nsys.stdout.flush()\nos.kill(os.getpid(), signal.SIGKILL)\n"
    with subprocess.Popen([sys.executable, "-c", code], env=environment(), stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        pid = int(driver.stdout.readline().split()[0])
        driver.wait(PATIENCE_S)
    descriptor = os.pidfd_open(pid) if is_alive(pid) else None
    if descriptor is not None:
        # Not select(), which takes no descriptor from 1024 on.
        waiting = select.poll()
        waiting.register(descriptor, select.POLLIN)
        assert waiting.poll(1000 * PATIENCE_S)
        os.close(descriptor)
