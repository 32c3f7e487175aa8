"""What Spark's Java process shows to other users of the machine, and what it leaves behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from dagflow.runtime.scratch import sweep
from tests.cli.processes import PATIENCE_S, environment

pytestmark = pytest.mark.spark

SECRET = "hunter2-hunter2"
SETTING = r" %s: a=b \t é #!"
NOBODY = 65534

PROGRAM = """
import sys
from pathlib import Path
from dagflow.runtime.spark_context import start_context

secret = sys.stdin.readline().strip()
setting = sys.argv[1] % secret
conf = {"spark.my.secret": setting, **dict.fromkeys(sys.argv[2:], "false")}
context = start_context("shown", "local[1]", conf, Path("log/spark.log"))
read = context._jvm.java.lang.System.getProperty("spark.my.secret")
assert read == setting.strip(), read
value = context.broadcast(secret)
assert context.parallelize([1], 1).map(lambda _: len(value.value)).collect() == [len(secret)]
print(context._gateway.proc.pid, context.getConf().get("spark.python.unix.domain.socket.dir"), flush=True)
sys.stdin.read()
"""


@dataclass(frozen=True)
class BroadcastingProcess:
    """A process with a Spark context that has broadcast a secret.

    Attributes:
        process: The process, the first of a group of its own.
        java: The number of its Java process.
        sockets: The directory of its sockets.
        temporary: The directory that it was given for temporary files.
    """

    process: subprocess.Popen[str]
    java: int
    sockets: Path
    temporary: Path

    def listening(self) -> list[tuple[str, int]]:
        """The addresses, in the kernel's notation, and ports on which the Java process listens."""
        descriptors = (Path("/proc") / str(self.java) / "fd").iterdir()
        links = {os.readlink(each) for each in descriptors if each.is_symlink()}
        found = []
        for table in ("tcp", "tcp6"):
            for line in (Path("/proc/net") / table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == "0A" and f"socket:[{fields[9]}]" in links:
                    address, _, port = fields[1].partition(":")
                    found.append((address, int(port, 16)))
        return found

    def answers_to_a_stranger(self) -> str:
        """What another user of the machine gets from its ports and sockets; the same user where no other may be had."""
        user = NOBODY if os.getuid() == 0 else os.getuid()
        addresses = [str(port) for _, port in self.listening()]
        if user == NOBODY:
            addresses += [str(path) for path in self.sockets.glob(".*.sock")]
            assert len(addresses) > 4, "three ports, and the sockets of the daemon and of the accumulators"
        command = [sys.executable, "-I", str(Path(__file__).with_name("stranger.py")), str(user), *addresses]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_S).stdout


@contextlib.contextmanager
def started(folder: Path, *off: str) -> Iterator[BroadcastingProcess]:
    """Start such a process, with settings that are turned off, and end its whole group afterwards."""
    temporary = folder / ("temporary" + "-" * 60)
    temporary.mkdir(parents=True)
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, SETTING, *off],
        cwd=folder,
        env=environment(TMPDIR=str(temporary)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(SECRET + "\n")
            process.stdin.flush()
            java, _, sockets = process.stdout.readline().strip().partition(" ")
            yield BroadcastingProcess(process, int(java), Path(sockets), temporary)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def test_a_stranger_gets_nothing_and_a_killed_run_is_cleaned_up(tmp_path: Path) -> None:
    """Another user gets nothing from ports, sockets or command lines; the next run removes what was left."""
    with started(tmp_path) as run:
        assert {address for address, _ in run.listening()} <= {"0100007F", "0000000000000000FFFF00000100007F"}
        assert run.answers_to_a_stranger() == ""
        for pid in filter(str.isdecimal, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                if os.getsid(int(pid)) == run.process.pid:
                    assert SECRET.encode() not in (Path("/proc") / pid / "cmdline").read_bytes()
        sweep()
        assert {each.stat().st_mode & 0o777 for each in (run.sockets, *run.temporary.iterdir())} == {0o700}
    assert list(run.temporary.iterdir()) != []
    sweep(run.temporary, run.sockets.parent)
    assert (list(run.temporary.iterdir()), run.sockets.exists()) == ([], False)


@pytest.mark.nightly
def test_the_stranger_would_get_a_secret_that_is_not_protected(tmp_path: Path) -> None:
    """The test above could fail. A process that ends in order leaves nothing behind."""
    with started(tmp_path, "spark.authenticate") as run:
        assert SECRET in run.answers_to_a_stranger()
        assert run.process.stdin is not None
        run.process.stdin.close()
        assert run.process.wait(PATIENCE_S) == 0
        assert (list(run.temporary.iterdir()), run.sockets.exists()) == ([], False)
