"""A call of an operator, for other threads and for messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import length_hint
from typing import Any

from dagflow.execution.failures import NO_INPUT, FailedInput


@dataclass(slots=True, eq=False)
class ActiveCall:
    """A call of an operator that has not ended; other threads may read it.

    Attributes:
        payload: The argument of the call; None for a life-cycle method.
        piece: An iterator over records of the payload that are handled one by one, and the position after the last of
            them; None where the method takes all at once.
    """

    operator: str
    method: Callable[..., Any]
    payload: Any = None
    piece: tuple[Iterator[Any], int] | None = None

    @property
    def taken(self) -> int:
        """How many records of the payload the method has taken; 0 where it takes all at once."""
        if self.piece is None:
            return 0
        iterator, end = self.piece
        return end - length_hint(iterator)

    def __str__(self) -> str:
        failed = FailedInput.of(self.payload, self.taken - 1) if self.payload is not None else NO_INPUT
        return f"{getattr(self.method, '__name__', 'it')}(){failed}"
