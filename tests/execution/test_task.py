"""Tasks: what a stage's operators go through, and what becomes of their failures."""

from __future__ import annotations

import logging
import pickle
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dagflow.api.context import Counts, Skipped
from dagflow.engine.run import run
from dagflow.errors import OperatorError
from dagflow.runtime.local import InlineRuntime
from tests.engine.sample_app import app_of, published
from tests.execution.sample_operators import CallsFunctions

ONE: Any = np.int64(1)
HALF: Any = np.float64(0.5)
TORN_DOWN: list[int] = []
"""Partitions; the app has two."""


def fail(operator: CallsFunctions) -> None:
    """The first failure."""
    raise ValueError("the first failure")


def fail_again(operator: CallsFunctions) -> None:
    """Another one."""
    raise ValueError("another failure")


def emit(operator: CallsFunctions) -> None:
    """Say a last word."""
    operator.output.emit(b"last")


def note(operator: CallsFunctions) -> None:
    """Remember the call."""
    TORN_DOWN.append(operator.context.partition)


def folder_in(tmp_path: Path, operator: CallsFunctions) -> str:
    """Where to write."""
    return str(tmp_path / "side")


def count_in_numpy(operator: CallsFunctions) -> None:
    """Count, leave out and write with the numbers of NumPy."""
    context = operator.context
    assert context.outputs is not None
    context.counters["items"] += 3 * ONE
    context.skipped.append(Skipped("s0", ONE, 2 * ONE, "why not"))
    file = context.outputs.open(f"{operator.tasks['folder'](operator)}/{context.partition}")
    file.close(records=5 * ONE)


def count(value: Any, operator: CallsFunctions) -> None:
    """Count something."""
    operator.context.counters["items"] += value


def update(value: Any, operator: CallsFunctions) -> None:
    """Count something in another way."""
    operator.context.counters.update({"items": value})


def begin(value: Any, operator: CallsFunctions) -> None:
    """Begin to count at something."""
    operator.context.counters.setdefault("items", value)


def test_what_is_counted_in_numpy_is_journaled(tmp_path: Path) -> None:
    """NumPy's whole numbers are as good as Python's."""
    middle = CallsFunctions(end_window=count_in_numpy, folder=partial(folder_in, tmp_path))
    summary = run(app_of(tmp_path, [b"a"], middle=middle), runtime=InlineRuntime)
    assert (summary.state, summary.counts["middle:items"]) == ("completed", 6)


@pytest.mark.parametrize("how", [count, update, begin])
@pytest.mark.parametrize(("value", "shown"), [(0.5, "0.5 (float)"), (HALF, "0.5) (float64)"), (2.0, "2.0 (float)")])
def test_a_count_that_is_no_whole_number_is_refused_where_it_is_counted(
    tmp_path: Path, how: Callable[[Any, CallsFunctions], None], value: Any, shown: str
) -> None:
    """With the counter, its operator, and the method that counted."""
    message = rf"'middle' .*end_window\(\) raised TypeError\(the counter 'items' takes .*{re.escape(shown)}"
    with pytest.raises(OperatorError, match=message) as caught:
        run(app_of(tmp_path, [b"a"], middle=CallsFunctions(end_window=partial(how, value))), runtime=InlineRuntime)
    assert f"in {how.__name__}" in caught.value.trace


@pytest.mark.parametrize("value", [None, "2", 0.5])
def test_a_counter_is_set_to_whole_numbers_only(value: Any) -> None:
    """What stands there before it is added to, too; truth values are as good as 0 and 1."""
    counts = Counts({"flags": True})
    with pytest.raises(TypeError, match="the counter 'items' takes whole numbers, and was given"):
        counts["items"] = value
    assert repr(pickle.loads(pickle.dumps(counts))) == "Counts({'flags': 1})"


def book(name: Any, operator: CallsFunctions) -> None:
    """Book something as taken over."""
    operator.context.accounting[name] += 1


def count_as(name: Any, operator: CallsFunctions) -> None:
    """Count something under a name."""
    operator.context.counters[name] += 1


@pytest.mark.parametrize("how", [count_as, book])
@pytest.mark.parametrize("name", [None, 5, b"five", ("a", 1)])
def test_a_name_that_is_no_text_is_refused_where_it_is_counted(
    tmp_path: Path, how: Callable[[Any, CallsFunctions], None], name: Any
) -> None:
    """The journal has names of text alone; the window fails before it is published."""
    message = rf"'middle' .*end_window\(\) raised TypeError\(a counter's name is text; got {re.escape(repr(name))} \("
    with pytest.raises(OperatorError, match=message) as caught:
        run(app_of(tmp_path, [b"a"], middle=CallsFunctions(end_window=partial(how, name))), runtime=InlineRuntime)
    assert f"in {how.__name__}" in caught.value.trace
    assert published(tmp_path) == []


def test_any_text_is_a_name_of_a_counter(tmp_path: Path) -> None:
    """Also a line break, which an expectation of Check may have; one of NumPy's is Python's own in the journal."""
    for name in ("a\nb", np.str_("x"), ""):
        folder = tmp_path / str(len(name))
        middle = CallsFunctions(end_window=partial(count_as, name))
        assert run(app_of(folder, [b"a"], middle=middle), runtime=InlineRuntime).counts[f"middle:{name}"] == 2


@pytest.mark.parametrize("place", ["teardown", "snapshot"])
def test_what_is_emitted_after_the_windows_end_is_an_error(tmp_path: Path, place: str) -> None:
    """The operators downstream have ended, and would lose it silently."""
    with pytest.raises(OperatorError, match=rf"'middle' .*{place}\(\) emitted at port output outside of a window"):
        run(app_of(tmp_path, [b"a"], middle=CallsFunctions(**{place: emit})), runtime=InlineRuntime)


@pytest.mark.parametrize("place", ["begin_window", "end_window"])
def test_what_is_emitted_at_the_windows_borders_is_published(tmp_path: Path, place: str) -> None:
    """Downstream begins before upstream, and ends after it."""
    run(app_of(tmp_path, [b"a"], middle=CallsFunctions(**{place: emit})), runtime=InlineRuntime)
    assert published(tmp_path) == [b"a", b"last", b"last"]


@pytest.mark.parametrize("place", ["begin_window", "take", "end_window", "snapshot"])
def test_an_operator_is_torn_down_once_after_a_failure(tmp_path: Path, place: str) -> None:
    """An operator may have connections to close."""
    TORN_DOWN.clear()
    with pytest.raises(OperatorError, match="the first failure"):
        run(app_of(tmp_path, [b"a"], middle=CallsFunctions(**{place: fail}, teardown=note)), runtime=InlineRuntime)
    assert TORN_DOWN == [0, 1]


def test_an_operator_that_was_not_set_up_is_not_torn_down(tmp_path: Path) -> None:
    """What it would close is not there."""
    TORN_DOWN.clear()
    with pytest.raises(OperatorError, match="the first failure"):
        run(app_of(tmp_path, [b"a"], middle=CallsFunctions(setup=fail, teardown=note)), runtime=InlineRuntime)
    assert TORN_DOWN == []


@pytest.mark.parametrize("again", [fail_again, emit])
def test_a_failure_in_teardown_does_not_hide_the_first_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, again: Callable[[CallsFunctions], None]
) -> None:
    """The log has the other."""
    caplog.set_level(logging.WARNING)
    with pytest.raises(OperatorError, match=r"take\(\) raised ValueError\(the first failure\)"):
        run(app_of(tmp_path, [b"a"], middle=CallsFunctions(take=fail, teardown=again)), runtime=InlineRuntime)
    assert "teardown failed as well: window 1, operator 'middle' partition 0: teardown()" in caplog.text
