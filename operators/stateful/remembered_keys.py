"""The base of operators that remember keys over windows: which keys they forget, and when."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import Annotated

from pydantic import Field

from dagflow.api.context import OperatorContext
from dagflow.api.keyed_state import KeyedOperator
from dagflow.api.partitioning import Key
from dagflow.api.properties import Count
from dagflow.metrics.names import FORGOTTEN_KEYS


class RememberedKeys(KeyedOperator):
    """An operator that remembers keys, and the window in which each came first.

    Guarantee: a key is remembered as long as it is among the newest max_keys of its partition, and so as long as it is
    among the newest max_keys of all. Keys that are forgotten are counted.
    """

    max_keys: Annotated[
        Count,
        Field(
            ge=1,
            description="maximum keys that each partition remembers; each takes about 120 bytes and its own length",
        ),
    ] = 1_000_000

    value_type = int

    _context: OperatorContext

    def setup(self, context: OperatorContext) -> None:
        super().setup(context)
        self._context = context

    def begin_window(self, window_id: int) -> None:
        self._window_id = window_id

    def end_window(self) -> None:
        # Not a share of max_keys: keys are never spread evenly, and the fullest partition would forget some too early.
        surplus = len(self.state) - self.max_keys
        if surplus > 0:
            self.forget(heapq.nsmallest(surplus, self.state, key=self.state.__getitem__))

    def remember(self, keys: Iterable[Key]) -> Iterator[int | None]:
        """Remember keys that are new.

        Returns:
            For each key the window in which it first came; None for one that comes now for the first time.
        """
        for key in keys:
            first: int | None = self.state.get(key, None)
            if first is None:
                self.state[key] = self._window_id
            yield first

    def forget(self, keys: list[Key]) -> None:
        """Forget keys, and count them."""
        for key in keys:
            del self.state[key]
        self._context.counters[FORGOTTEN_KEYS] += len(keys)
