"""The runtime of several processes."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dagflow.errors import OperatorError, StorageError
from dagflow.execution.messages import Program
from dagflow.execution.stalls import StallLimits
from dagflow.runtime.local import LocalRuntime
from tests.cli.processes import PATIENCE_S
from tests.nightly import by_day
from tests.runtime.bad_operators import DYING, HARMLESS, INTERRUPTING, Misbehaving
from tests.runtime.runtime_contract import (
    TEXTS,
    ProcessesContract,
    Start,
    exchanging_plan,
    operators_of,
    require_failure_is_reported,
    window,
)
from tests.small_disk import disk

__all__ = ["disk"]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Starts runtimes, and closes them at the end."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    started: list[LocalRuntime] = []

    def begin(program: Program) -> LocalRuntime:
        started.append(LocalRuntime(program, 2, tmp_path / ".dagflow" / "app.local.log"))
        return started[-1]

    yield begin
    for runtime in started:
        runtime.close()


class TestLocalRuntime(ProcessesContract):
    """Processes of this machine keep the contract."""

    @pytest.mark.parametrize("how", INTERRUPTING)
    def test_an_interruption_that_is_an_operators_own_is_its_failure(
        self, start: Start, tmp_path: Path, how: str
    ) -> None:
        """No signal interrupts the process of a task."""
        require_failure_is_reported(start, tmp_path, how, INTERRUPTING[how][1])


@pytest.mark.parametrize("how", by_day(2, DYING))
def test_an_operator_that_ends_its_process_is_named(start: Start, tmp_path: Path, how: str) -> None:
    """A process that dies each time ends the run with operator and file."""
    program = Program.of("app", exchanging_plan(), {**operators_of(tmp_path), "lines": Misbehaving(how=how)})
    with pytest.raises(OperatorError, match=re.escape(DYING[how][1]) + r".*, in read\(\) of s") as caught:
        start(program).submit(window(TEXTS)).result(PATIENCE_S)
    assert caught.value.operator == "lines"


def test_the_signal_is_named_where_two_processes_die_at_once(start: Start, tmp_path: Path) -> None:
    """Both write to one log, whose lines mingle."""
    program = Program.of(
        "app", exchanging_plan(), {**operators_of(tmp_path), "lines": Misbehaving(how="beside another")}
    )
    with pytest.raises(OperatorError, match="died 4 times: Bus error, in "):
        start(program).submit(window(TEXTS)).result(PATIENCE_S)


@pytest.mark.parametrize("how", by_day(2, HARMLESS))
def test_odd_but_harmless_operators_do_their_work(start: Start, tmp_path: Path, how: str) -> None:
    """Forks, threads and closed streams of an operator do not touch the runtime."""
    program = Program.of("app", exchanging_plan(), {**operators_of(tmp_path), "lines": Misbehaving(how=how)})
    results = start(program).submit(window([b"a b"])).result()
    assert [result.error for result in results] == [None] * 6


def test_native_code_that_holds_the_first_task_is_reported(
    start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It keeps the watch beside the task from saying anything, so the task has said before what it begins with."""
    operators = {**operators_of(tmp_path), "lines": Misbehaving(how="native")}
    program = Program.of("app", exchanging_plan(), operators, stall_limits=StallLimits(warning_s=1.0))
    assert [result.error for result in start(program).submit(window([b"a b"])).result()] == [None] * 6
    text = " ".join(caplog.messages)
    assert re.search(r"window 7, operator 'lines' .*: its process has not answered for \d s, last in read\(\)", text)


def test_a_place_for_temporary_files_that_is_gone_is_named(start: Start, tmp_path: Path) -> None:
    """A system that tidies up may remove it while a run is at work."""
    runtime = start(Program.of("app", exchanging_plan(), operators_of(tmp_path)))
    (place,) = Path(os.environ["TMPDIR"]).glob("dagflow-*")
    shutil.rmtree(place)
    with pytest.raises(StorageError, match=f"{place}.*cannot make a directory for records that go to another stage"):
        runtime.submit(window([b"a b"])).result()


def test_a_full_place_for_temporary_files_gives_way_to_another(
    start: Start, tmp_path: Path, disk: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names it, and TMPDIR names the other one."""
    program = Program.of("app", exchanging_plan(), operators_of(tmp_path))
    full = disk("size=64k")
    with monkeypatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(full))
        runtime = start(program)
    texts = [b"a b " * 50_000]
    with pytest.raises(StorageError, match=f"{full}/.* No space left on device\n(.*\n)*.*let TMPDIR name a directory"):
        runtime.submit(window(texts)).result()
    assert [result.error for result in start(program).submit(window(texts)).result()] == [None] * 6


def test_all_processes_and_files_go_with_the_runtime(start: Start, tmp_path: Path) -> None:
    """Cancelling ends a window at once, and closing leaves neither a process nor a temporary file."""
    runtime = start(Program.of("app", exchanging_plan(), operators_of(tmp_path)))
    assert len(runtime.map(_pid_of, [0] * 20)) == 20
    (pid, *_) = runtime.map(_pid_of, [0])
    assert pid != os.getpid()
    runtime.close()
    while _is_alive(pid):
        threading.Event().wait(0.01)


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


def _pid_of(_: int) -> int:
    return os.getpid()
