"""Which process it is, and whether it still exists."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from dagflow.journal.heartbeat import ProcessIdentity


@pytest.fixture
def other() -> ProcessIdentity:
    """This process under another machine's name: a name identifies no machine."""
    return replace(ProcessIdentity.of_this_process(), host="elsewhere")


def test_a_process_exists_until_it_is_killed() -> None:
    """There, paused, there again, and gone at once, also before its exit code is taken."""
    process = subprocess.Popen([sys.executable, "-c", "import signal; print(flush=True); signal.pause()"], stdout=-1)
    assert process.stdout is not None
    try:
        process.stdout.readline()
        known = identity_of(process.pid)
        assert known.existence() == "there"
        for number, existence in ((signal.SIGSTOP, "paused"), (signal.SIGCONT, "there"), (signal.SIGKILL, "gone")):
            process.send_signal(number)
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WCONTINUED | os.WEXITED | os.WNOWAIT)
            assert known.existence() == existence
            if number == signal.SIGSTOP:
                os.waitid(os.P_PID, process.pid, os.WSTOPPED)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    assert known.existence() == "gone"


def identity_of(pid: int) -> ProcessIdentity:
    """Return what a process of this machine would say of itself."""
    with open(f"/proc/{pid}/stat") as file:
        start = int(file.read().rpartition(") ")[2].split()[19])
    return replace(ProcessIdentity.of_this_process(), pid=pid, start_ticks=start)


def test_a_process_id_that_is_used_again_is_another_process(other: ProcessIdentity) -> None:
    """As with a container whose only process always has the number 1."""
    assert other.existence() == "there"
    assert replace(other, start_ticks=other.start_ticks - 1).existence() == "gone"


@pytest.mark.parametrize("field", ["boot", "pid_space"])
@pytest.mark.parametrize("value", ["", "of another"])
def test_a_process_out_of_sight_is_neither_there_nor_gone(other: ProcessIdentity, field: str, value: str) -> None:
    """Another machine, another boot of this one, another container, or a system that does not report it."""
    assert replace(other, **{field: value}).existence() == "unknown"  # type: ignore[arg-type]  # text, each of them


def test_clocks_are_shared_within_a_boot(other: ProcessIdentity) -> None:
    """Whatever namespace and name."""
    assert replace(other, pid_space="of another").is_of_this_kernel()
    assert not replace(other, boot="of another").is_of_this_kernel()
    assert not replace(other, boot="").is_of_this_kernel()


def test_a_process_is_named_with_its_user_and_machine(other: ProcessIdentity) -> None:
    """As messages name it."""
    assert str(replace(other, user="ann", pid=7)) == "process 7 of ann on elsewhere"
