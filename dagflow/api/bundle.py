"""Bundles: one tuple that stands for many of its kind, so that millions of small ones cost little each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt


class Bundle(ABC):
    """Many metadata tuples, held in columns.

    An operator emits a bundle where its port carries the tuples. An input port that is declared with
    `bundles=True` takes bundles as they are; everywhere else, and outside of an app, the receiver sees
    the tuples.

    Guarantee: dealt out to partitions, a divisible bundle may be sliced; every member goes to one of them.
    """

    __slots__ = ()

    kind: ClassVar[type]
    """The class of the tuples."""

    @property
    def is_divisible(self) -> bool:
        """Whether it may be sliced; otherwise all members go to one partition."""
        return True

    @property
    @abstractmethod
    def weights(self) -> npt.NDArray[np.int64]:
        """For each member its size, by which members are dealt out to partitions."""

    @abstractmethod
    def slice(self, start: int, end: int) -> Self:
        """The members [start, end)."""

    @abstractmethod
    def __iter__(self) -> Iterator[Any]:
        """The tuples; a member may stand for none."""

    def __len__(self) -> int:
        """How many members there are, for budgets and backlogs."""
        return len(self.weights)

    @property
    def size_bytes(self) -> int:
        """Sum of the weights."""
        return int(self.weights.sum())


def unbundled(items: Iterable[Any]) -> Iterator[Any]:
    """The tuples, those of bundles one by one."""
    for item in items:
        if isinstance(item, Bundle):
            yield from item
        else:
            yield item


def count_of(items: Iterable[Any]) -> int:
    """How many tuples there are, members of bundles counted one by one."""
    return sum(len(item) if isinstance(item, Bundle) else 1 for item in items)
