"""Stalled work, by its marks."""

from __future__ import annotations

import threading
from traceback import FrameSummary
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagflow.api import ports
from dagflow.execution import stalls
from dagflow.execution.stalls import MAX_STACK, Stall, StallDetector, operators_frames, stack_mark, stacks_of


@given(st.lists(st.tuples(st.floats(0.1, 40), st.integers(0, 2))))
def test_each_stall_is_reported_once_and_its_end_once(looks: list[tuple[float, int]]) -> None:
    """Whatever is done and whenever it is looked at: the end follows the beginning, and both have their true length."""
    now, is_reported, since, mark = 0.0, False, 0.0, -1
    detector = StallDetector(60.0, lambda: now)
    for passed_s, seen in looks:
        now += passed_s
        found = detector.look(seen)
        if seen != mark:
            assert found == (Stall(now - since, is_over=True) if is_reported else None)
            mark, since, is_reported = seen, now, False
        elif now - since >= 60 and not is_reported:
            assert found == Stall(now - since, is_over=False)
            is_reported = True
        else:
            assert found is None


def test_a_thread_that_waits_has_one_mark_and_a_stack() -> None:
    """The mark changes when the thread goes on; of a thread that is gone there is neither."""
    begun, halfway, go_on, end = (threading.Event() for _ in range(4))

    def work() -> None:
        begun.set()
        go_on.wait()
        halfway.set()
        end.wait()

    thread = threading.Thread(target=work)
    thread.start()
    assert thread.ident is not None
    assert begun.wait(10)
    while "go_on.wait()" not in stacks_of(thread.ident):
        pass
    first = stack_mark(thread.ident)
    go_on.set()
    assert halfway.wait(10)
    assert stack_mark(thread.ident) != first
    end.set()
    thread.join()
    assert (stack_mark(thread.ident), stacks_of(thread.ident)) == ((), "")


@pytest.mark.parametrize("inside", [(), (ports,), (stalls, ports)])
def test_the_stack_of_an_operator_begins_with_its_own_call(inside: tuple[ModuleType, ...]) -> None:
    """Also where it has called dagflow, which calls what it calls operators by, as emit does."""
    modules = [threading.__file__, stalls.__file__, ports.__file__, "my_ops.py", *(each.__file__ for each in inside)]
    frames = [FrameSummary(str(file), 1, "f", lookup_line=False) for file in modules]
    assert operators_frames(frames) == frames[3:]
    assert operators_frames(frames[:1]) == frames[:1]


def test_the_stacks_of_many_threads_fit_one_message() -> None:
    """They travel in a datagram; the thread that works comes first."""
    end = threading.Event()
    threads = [threading.Thread(target=end.wait, name=f"helper-{number}") for number in range(60)]
    for thread in threads:
        thread.start()
    try:
        text = stacks_of(threading.get_ident(), threads.__contains__)
    finally:
        end.set()
        for thread in threads:
            thread.join()
    assert len(text) < MAX_STACK + 100
    assert "test_the_stacks_of_many_threads" in text.partition("thread helper-0")[0]
    assert "left out" in text
