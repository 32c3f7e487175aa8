"""Further details of an operator in a plan, beside its name and its streams."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from dagflow.api.operator import Capability


class Explained(Capability):
    """Declares an operator with further details for `dagflow plan`."""

    @abstractmethod
    def explanation(self) -> Sequence[str]:
        """Called when a plan is drawn: short clauses, or none."""
