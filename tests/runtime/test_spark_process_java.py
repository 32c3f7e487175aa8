"""How the Java process of a run is started."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys

import pytest

from dagflow.runtime.spark_process import bound_to_driver, with_utf8
from tests.cli.processes import PATIENCE_S

DRIVER = """
import os, signal, subprocess, sys
from dagflow.runtime.spark_process import bound_to_driver
java = subprocess.Popen(bound_to_driver(["sleep", "600"], grace_s=0.4), stdin=subprocess.PIPE)
while not open(f"/proc/{java.pid}/cmdline").read().startswith("sleep"):
    pass
print(java.pid, open(f"/proc/{java.pid}/task/{java.pid}/children").read(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(
    ("given", "is_changed"),
    [
        ({}, True),
        ({"LANG": "C"}, True),
        ({"LC_ALL": "POSIX", "LANG": "de_DE.UTF-8"}, True),
        ({"LC_ALL": "", "LANG": "de_DE.UTF-8"}, False),
        ({"LC_CTYPE": "en_US.ISO-8859-1", "LANG": "C"}, False),
    ],
)
def test_java_takes_file_names_for_utf8_where_python_does(given: dict[str, str], is_changed: bool) -> None:
    """Python does so in the locale C; any other locale is a person's choice."""
    assert with_utf8(given) == ({**given, "LC_ALL": "C.UTF-8"} if is_changed else given)


def test_a_java_that_hangs_is_killed_behind_its_driver() -> None:
    """It does not look at its standard input; nothing of it stays, and its guard ends with it."""
    driver = subprocess.run([sys.executable, "-c", DRIVER], stdout=subprocess.PIPE, text=True)
    processes = [int(each) for each in driver.stdout.split()]
    assert driver.returncode == -signal.SIGKILL and len(processes) == 2
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            ended = os.pidfd_open(process)
            # Not select(), which takes no descriptor from 1024 on.
            waiting = select.poll()
            waiting.register(ended, select.POLLIN)
            assert waiting.poll(1000 * PATIENCE_S) == [(ended, select.POLLIN)]
            os.close(ended)


@pytest.mark.parametrize(("end", "code"), [("exit 3", 3), ("kill -9 $$", -9), ("trap '' TERM; read _; exit 5", 5)])
def test_java_has_its_own_exit_code_and_standard_input(end: str, code: int) -> None:
    """The guard changes nothing of a Java that ends by itself, and kills nothing else when the pipe closes."""
    with subprocess.Popen(bound_to_driver(["/bin/sh", "-c", end]), stdin=subprocess.PIPE) as java:
        assert java.stdin is not None
        java.stdin.close()
        assert java.wait(PATIENCE_S) == code
