"""Work of the driver that stands still."""

from __future__ import annotations

import threading

import pytest

from dagflow.engine.driver_watch import DriverWatch
from dagflow.execution.stalls import StallLimits


def test_work_that_waits_is_told_with_its_stack_and_its_end(caplog: pytest.LogCaptureFixture) -> None:
    """A store that is gone lets a listing wait for ever, and nothing else would say so."""
    with DriverWatch(StallLimits(0.05)) as watch, watch.doing("operator 'splitter' in a scan"):
        while not caplog.messages:
            threading.Event().wait(0.01)
        assert watch.stalls() == ["operator 'splitter' in a scan: no progress for 0 s"]
    assert watch.stalls() == []
    told, over = caplog.messages
    assert told.startswith("operator 'splitter' in a scan: no progress for 0 s\n")
    assert "threading.Event().wait(0.01)" in told
    assert over == "operator 'splitter' in a scan: went on"


def test_work_that_is_over_is_not_watched(caplog: pytest.LogCaptureFixture) -> None:
    """A driver may wait for ever between two pieces of work."""
    with DriverWatch(StallLimits(0.02)) as watch:
        with watch.doing("emitting"):
            pass
        watched = threading.Event()

        def what() -> str:
            watched.set()
            return "something else"

        with watch.doing(what):
            assert watched.wait(10)
    assert all(not message.startswith("emitting") for message in caplog.messages)
