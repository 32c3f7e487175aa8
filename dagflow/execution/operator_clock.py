"""Measures how long each operator of a chain works."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable


class OperatorClock:
    """Charges time to the operator that works, one operator at a time.

    While an operator emits, the operators downstream work, and their time is not charged to the emitting one. Time that
    an operator waits, for example for its input's bytes, counts as work.

    Args:
        operators: Names of the operators.
        now: A clock, in seconds.

    Attributes:
        busy_s: Seconds that each operator has worked so far, by name.
    """

    __slots__ = ("_active", "_now", "_since", "busy_s")

    def __init__(self, operators: Iterable[str], now: Callable[[], float] = time.perf_counter) -> None:
        self._now = now
        self.busy_s = dict.fromkeys(operators, 0.0)
        self._active: str | None = None
        self._since = 0.0

    def switch(self, operator: str | None) -> str | None:
        """Stop charging the operator that works now, and start to charge another one.

        Args:
            operator: Its name; None where no operator works.

        Returns:
            The operator that was charged until now, to be restored afterwards.
        """
        now = self._now()
        before = self._active
        if before is not None:
            self.busy_s[before] += now - self._since
        self._active, self._since = operator, now
        return before

    def worked_s(self, operator: str) -> float:
        """Seconds that an operator has worked so far; other threads may call this."""
        since, active = self._since, self._active
        return self.busy_s[operator] + (self._now() - since if active == operator else 0.0)

    def take(self) -> dict[str, float]:
        """The seconds that each operator has worked since the last call, by name."""
        taken, self.busy_s = self.busy_s, dict.fromkeys(self.busy_s, 0.0)
        return taken
