"""What SIGINT, SIGTERM and SIGHUP do while an app runs."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from dagflow.cli.signals import DUPLICATE_S, STOP_SIGNALS, on_driver_thread, stop_on_signals, stop_requested_by_signals


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_a_signal_is_answered_while_the_driver_works(number: signal.Signals) -> None:
    """The main thread answers at once, whatever the driver's thread is doing."""
    asked = threading.Event()

    def work() -> bool:
        os.kill(os.getpid(), number)
        return asked.wait(10)

    with stop_on_signals(asked.set, lambda: pytest.fail("one signal is one request")):
        assert on_driver_thread(work)


def test_a_signal_that_reached_another_thread_is_answered_as_well() -> None:
    """The system chooses the thread; the main one, asleep, would hear of it when the run is over."""
    asked = threading.Event()

    def work() -> bool:
        assert not asked.wait(0.2)  # by then the main thread waits
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        return asked.wait(10)

    with stop_on_signals(asked.set, lambda: pytest.fail("one signal is one request")):
        assert on_driver_thread(work)


def test_a_second_signal_stops_at_once_and_an_echo_does_not() -> None:
    """Launchers deliver a request twice within milliseconds; a person's second request comes later."""
    answers: list[str] = []
    moments = iter([5.0, 5.0 + DUPLICATE_S / 2, 5.0 + DUPLICATE_S * 2])
    with stop_on_signals(lambda: answers.append("first"), lambda: answers.append("again"), lambda: next(moments)):
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        assert answers == ["first"]
        signal.raise_signal(signal.SIGINT)
    assert answers == ["first", "again"]


def test_the_first_signal_requests_a_stop_and_says_so(capfd: pytest.CaptureFixture[str]) -> None:
    """Without a signal nothing is requested; the text goes past Python's buffers."""
    with stop_requested_by_signals("stopping: soon") as stop:
        before = stop.is_requested
        signal.raise_signal(signal.SIGTERM)
        assert (before, stop.is_requested) == (False, True)
    assert capfd.readouterr().err == "stopping: soon\n"


def test_what_answered_before_answers_again_after_the_run() -> None:
    """The handlers of a host program are put back, also after a failure."""
    before = [signal.getsignal(number) for number in STOP_SIGNALS]
    with pytest.raises(OSError, match="broke"), stop_on_signals(lambda: None, lambda: None):
        assert signal.getsignal(signal.SIGINT) != before[0]
        raise OSError("broke")
    assert [signal.getsignal(number) for number in STOP_SIGNALS] == before


def test_an_ignored_hangup_stays_ignored() -> None:
    """After `nohup` the end of a terminal is no reason to stop."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_on_signals(lambda: pytest.fail("nothing was asked"), lambda: None):
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_run_outside_of_the_main_thread_leaves_signals_alone() -> None:
    """Python would refuse a handler there."""
    before = signal.getsignal(signal.SIGINT)
    seen = []

    def work() -> None:
        with stop_on_signals(lambda: None, lambda: None):
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before]


def test_what_the_driver_raises_is_raised_to_the_caller() -> None:
    """The thread hides no failure."""

    def work() -> None:
        raise LookupError("lost")

    with pytest.raises(LookupError, match="lost"):
        on_driver_thread(work)
