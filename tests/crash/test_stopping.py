"""Runs on Spark that are stopped by a signal, or by another driver."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from dagflow.engine.run import run
from dagflow.plan.load import load_app
from dagflow.runtime.local import InlineRuntime
from tests.cli.processes import ENTRY, environment
from tests.crash.killing import (
    RunProcess,
    also_on_spark,
    hurry,
    make_folder,
    published_records,
    require_whole,
    visible_files,
    watched,
)
from tests.nightly import IS_NIGHTLY, by_day

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.e2e]


Signaling = Callable[[RunProcess], None]


def to_the_group(number: signal.Signals) -> Signaling:
    """Signal the process group of the driver, as a terminal does."""
    return lambda run: os.killpg(run.process.pid, number)


def to_every_process(run: RunProcess) -> None:
    """Send SIGTERM to each process of the run, Python workers too, as a service manager does."""
    for pid in run.members():
        with contextlib.suppress(ProcessLookupError):  # the end of one ends others
            os.kill(pid, signal.SIGTERM)


def stop_in_the_middle(folder: Path, send: Signaling, *options: str, again: bool = False) -> int:
    """Start the run, signal it once or twice when it publishes, and return its exit code."""
    run = RunProcess(folder, "-q", *options)
    try:
        before = visible_files(folder)
        assert run.wait_for(lambda: visible_files(folder) >= before + 4)
        send(run)
        if again:
            # Two within a tenth of a second count as one, as from a terminal and a launcher.
            assert not run.wait_for(lambda: False, most_s=0.15)
            send(run)
        return run.end()
    finally:
        run.destroy()


@also_on_spark
def test_signals_end_a_run_and_the_next_one_goes_on(tmp_path: Path, options: Sequence[str]) -> None:
    """Signals that reach Java and the workers too: exit code 130, no process left, and finally every record once."""
    make_folder(tmp_path, files=40 if IS_NIGHTLY else 24, delay_s=0.1)
    with watched(tmp_path):
        for send in by_day(1, (to_every_process, to_the_group(signal.SIGINT))):
            before = len(published_records(tmp_path))
            assert stop_in_the_middle(tmp_path, send, *options) == 130
            assert [path for path in (tmp_path / "out").rglob("*") if path.name[0] == "."] == []
            assert len(published_records(tmp_path)) > before
        ended = stop_in_the_middle(tmp_path, to_the_group(signal.SIGHUP), *options, again=True)
        # Python hears no signal while it ends, so that the second one may end it by itself.
        assert ended in (130, -signal.SIGHUP)
        hurry(tmp_path)
        last = RunProcess(tmp_path, "-q", "--local")
        try:
            assert last.end() == 0
        finally:
            last.destroy()
    require_whole(tmp_path)
    assert "Traceback" not in (tmp_path / "run.log").read_text()


@pytest.mark.nightly
@also_on_spark
def test_a_signal_ends_a_replay_and_nothing_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: Sequence[str]
) -> None:
    """The exit code is 130 long before all windows ran again, no process is left, and every file is unchanged."""
    make_folder(tmp_path, files=20)
    monkeypatch.chdir(tmp_path)
    assert run(load_app("app.yaml"), runtime=InlineRuntime).windows >= 15
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    windows = [part for window in range(1, 16) for part in ("--window", str(window))]
    replay = RunProcess(tmp_path, *windows, *options, command=("replay", "journal"))
    try:
        assert replay.wait_for(lambda: any(path.name[0] == "." for path in (tmp_path / "out").iterdir()))
        os.kill(replay.process.pid, signal.SIGTERM)
        assert replay.end() == 130
    finally:
        replay.destroy()
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()} == before
    log = (tmp_path / "run.log").read_text()
    assert "the replay was asked to stop; nothing was replaced" in log, log
    assert "Traceback" not in log, log
    require_whole(tmp_path)


@pytest.mark.nightly
def test_a_signal_ends_a_run_that_waits_for_its_master(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark would try for a minute: the exit code is 130, no process is left, and what was planned is read later."""
    make_folder(tmp_path, files=2)
    log = tmp_path / ".dagflow" / "killed-app.spark.log"
    waiting = RunProcess(tmp_path, "-q", "--master", "spark://127.0.0.1:9")
    try:
        assert waiting.wait_for(lambda: log.exists() and "Failed to connect to master" in log.read_text())
        os.kill(waiting.process.pid, signal.SIGTERM)
        assert waiting.end() == 130
    finally:
        waiting.destroy()
    assert "stopped while Spark started\n    continue with: dagflow run" in (tmp_path / "run.log").read_text()
    monkeypatch.chdir(tmp_path)
    assert run(load_app("app.yaml"), runtime=InlineRuntime).state == "completed"
    require_whole(tmp_path)


def ask(folder: Path, command: str) -> tuple[int, str, str]:
    """Return what a command ends with, and what it prints."""
    done = subprocess.run([*ENTRY, *command.split()], cwd=folder, env=environment(), capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.nightly
@also_on_spark
def test_of_two_drivers_one_goes_on_and_the_other_says_who(tmp_path: Path, options: Sequence[str]) -> None:
    """A second run is refused; with --take-over the first ends with 1 and names the second's process."""
    make_folder(tmp_path, files=24, delay_s=0.1)
    with watched(tmp_path):
        first = RunProcess(tmp_path, "-q", *options)
        second = None
        try:
            assert first.wait_for(lambda: visible_files(tmp_path) >= 10)
            # Paused, so that it lives as long as the others need to look.
            os.kill(first.process.pid, signal.SIGSTOP)
            for command in ("run app.yaml", "replay app.yaml --window 1"):
                code, _, err = ask(tmp_path, command)
                assert code == 1
                assert f"another run is at work on this checkpoint: process {first.process.pid} of " in err
                assert f"it is paused: resume it (kill -CONT {first.process.pid})" in err
            said = json.loads(ask(tmp_path, "status app.yaml --json")[1])
            assert (said["state"], said["driver"]["pid"]) == ("stalled", first.process.pid)
            second = RunProcess(tmp_path, "-q", "--local", "--take-over")
            assert second.wait_for(lambda: len(os.listdir(tmp_path / "journal" / "epoch")) == 2)
            os.kill(first.process.pid, signal.SIGCONT)
            hurry(tmp_path)
            assert first.end() == 1
            assert second.end() == 0
        finally:
            first.destroy()
            if second is not None:
                second.destroy()
    require_whole(tmp_path)
    log = (tmp_path / "run.log").read_text()
    assert f"another driver has taken over: process {second.process.pid} on " in log, log
    assert "Traceback" not in log, log
