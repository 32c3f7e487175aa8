"""A run notifies other systems of what it does, and does not depend on any of them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dagflow.engine.limited_run import limited_run
from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions, RuntimeFactory
from dagflow.errors import DagflowError
from dagflow.plan.load import load_app
from dagflow.runtime.local import InlineRuntime
from dagflow.testing.apps import run_app
from tests.engine.test_driver import crashing
from tests.telemetry.app import orders
from tests.telemetry.http_receiver import closed_address, receiving, silent_address


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def signals_to(url: str) -> str:
    """Attributes that send everything to one address."""
    lines = f"lineage: {{url: '{url}'}}", f"traces: {{url: '{url}'}}", f"alerts: {{on: webhook, url: '{url}'}}"
    return "\n  ".join(lines)


def test_a_run_does_not_wait_for_receivers_that_are_gone(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Each is reported once, without what is secret in its URL; the output is that of a run without them."""
    done = run(orders(folder, signals_to(f"{closed_address()}?token=sesame")), runtime=InlineRuntime)
    assert done.state == "completed"
    assert "sesame" not in caplog.text
    assert sum("cannot deliver" in record.getMessage() for record in caplog.records) == 2


def test_a_run_does_not_wait_for_receivers_that_are_silent(folder: Path) -> None:
    """What they get at the end is waited for no longer than a second."""
    with silent_address() as url:
        plan = orders(folder, signals_to(url))
        began = time.monotonic()
        assert run(plan, runtime=InlineRuntime).state == "completed"
    # Ten windows would wait for ten answers, of five seconds each.
    assert time.monotonic() - began < 25


def test_a_failed_run_notifies_its_webhook(folder: Path) -> None:
    """Before it ends; the next run that works sends that it is over."""
    with receiving() as server:
        attributes = f"alerts: {{on: webhook, url: '{server.url}'}}"
        with pytest.raises(DagflowError, match="the lights went out"):
            run(orders(folder, attributes), runtime=crashing(2))
        run(orders(folder, attributes), runtime=InlineRuntime)
    assert [(body["cause"], body["state"], body["text"]) for body in server.bodies] == [
        ("failure", "raised", "orders: the run failed: the lights went out"),
        ("failure", "over", "orders: the run works again"),
    ]


@pytest.mark.parametrize(
    ("reason", "runtime"), [("no such file or directory", InlineRuntime), ("the lights went out", crashing(1))]
)
def test_a_run_that_fails_at_once_notifies_its_webhook(folder: Path, reason: str, runtime: RuntimeFactory) -> None:
    """Before it has figures: as its input is missing, or in its first window. A streak of them is sent once."""
    with receiving() as server:
        attributes = f"alerts: {{on: webhook, url: '{server.url}', backlog: 1GiB}}"
        plan = orders(folder, attributes)
        if runtime is InlineRuntime:
            shutil.rmtree("in")
        for _ in range(2):
            with pytest.raises(DagflowError, match=reason):
                run(plan, runtime=runtime)
        assert [(body["app"], body["cause"], body["state"]) for body in server.bodies] == [
            ("orders", "failure", "raised")
        ]
        assert reason in server.bodies[0]["text"]
        run(orders(folder, attributes), runtime=InlineRuntime)
        run(orders(folder, attributes), runtime=InlineRuntime)
    assert [(body["cause"], body["state"]) for body in server.bodies] == [("failure", "raised"), ("failure", "over")]


def test_tests_and_tries_of_an_app_send_nothing(folder: Path) -> None:
    """No other system may take them for runs."""
    with receiving() as server:
        plan = orders(folder, signals_to(server.url))
        with limited_run(plan, RunOptions(workers=1), 3) as (part, options):
            run(part, options, runtime=InlineRuntime)
        run_app(Path("app.yaml"), {"in/a.jsonl": b'{"n": 1, "s": "x"}\n'})
        assert server.bodies == []
        run(load_app("app.yaml"), runtime=InlineRuntime)
    assert server.bodies


def test_packages_of_a_signal_are_imported_for_it_alone(folder: Path) -> None:
    """A run without signals does not load them; where they are missing, a run with a signal names the extra."""
    # The tests are in no place that another process knows of, unless dagflow is in theirs.
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", _WITHOUT_PACKAGES]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    for attribute in ("lineage", "traces"):
        assert f"'{attribute}' of the app needs a package that is missing" in done.stdout
        assert f"pip install 'dagflow[{attribute}]'" in done.stdout
    assert "published" not in done.stdout


_WITHOUT_PACKAGES = """
import sys
from pathlib import Path
from dagflow.engine.run import run
from dagflow.errors import DagflowError
from dagflow.runtime.local import InlineRuntime
from tests.telemetry.app import orders

if __name__ == "__main__":
    assert run(orders(Path.cwd()), runtime=InlineRuntime).state == "completed"
    assert not {"openlineage", "opentelemetry", "requests"} & sys.modules.keys()
    sys.modules.update(openlineage=None, opentelemetry=None)
    for attribute in ("lineage", "traces"):
        try:
            run(orders(Path.cwd(), f"{attribute}: {{url: 'http://localhost:1'}}"), runtime=InlineRuntime)
            print("published")
        except DagflowError as error:
            print(error, error.hint)
"""
