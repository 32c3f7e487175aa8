"""Tuples on their way from a task to another process."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any

from dagflow.errors import text_of
from dagflow.execution.failures import BrokenContractError


@dataclass(frozen=True, slots=True)
class PickledTuples:
    """Tuples, pickled while their operator emits them, so that a failure counts as the operator's."""

    data: bytes

    @classmethod
    def of(cls, tuples: list[Any]) -> PickledTuples:
        """Pickle tuples."""
        try:
            return cls(pickle.dumps(tuples, protocol=5))
        except Exception as error:  # anything that an author's class raises
            raise BrokenContractError(
                f"emitted a tuple that cannot be pickled, as one must be that goes to another process: {text_of(error)}"
            ) from error

    def tuples(self) -> list[Any]:
        """The tuples."""
        tuples: list[Any] = pickle.loads(self.data)
        return tuples
