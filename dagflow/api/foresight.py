"""A look ahead for operators that can begin with what comes later."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Foreseeing(Protocol):
    """An operator that is told what its handler of single tuples will be called with."""

    def foresee(self, tuples: Sequence[Any]) -> None:
        """Called before the first of them is handled; what was foreseen before is over by then.

        Args:
            tuples: What arrived together, in order.
        """
        ...
