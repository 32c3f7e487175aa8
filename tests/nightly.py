"""What the day's run leaves to the night: with DAGFLOW_NIGHTLY set, all tests run, with more examples and moments."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, TypeVar

import pytest

Case = TypeVar("Case")

IS_NIGHTLY = bool(os.environ.get("DAGFLOW_NIGHTLY"))


def examples(count: int) -> int:
    """The number of examples of a property test: the given one every night, and a sixteenth of it by day."""
    return count if IS_NIGHTLY else max(count // 16, 5)


def cuts(most: int) -> list[int]:
    """The sizes of blocks that a file is cut into: all up to `most` every night; by day, few of the longer ones."""
    return [size for size in range(1, most + 1) if IS_NIGHTLY or size < 6 or size % 9 == most % 9]


def by_day(count: int, cases: Iterable[Case]) -> list[Case]:
    """The cases of a parametrized test: all of them every night, and so many, from the first one on, by day."""
    whole = list(cases)
    return whole if IS_NIGHTLY else whole[:: -(-len(whole) // count)]


def nightly(cases: Iterable[Case], *left: Case) -> list[Any]:
    """The cases of a parametrized test, some of which are left to the night: a test beside it shows them by day."""
    return [pytest.param(case, marks=pytest.mark.nightly) if case in left else case for case in cases]


def every(step: int) -> pytest.MarkDecorator:
    """Mark a crash test with an argument `step`: a run dies at one moment in so many by day, and at each one at night.

    3 does not divide the step, so that where a run dies twice at each third moment, some of those are tried.
    """
    assert step % 3
    return pytest.mark.parametrize("step", [1 if IS_NIGHTLY else step])
