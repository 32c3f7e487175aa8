"""What a plan says of an operator beside its name and its streams."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from dagflow.api.operator import Capability


class Explained(Capability):
    """Declares an operator of which `dagflow plan` says more."""

    @abstractmethod
    def explanation(self) -> Sequence[str]:
        """Called when a plan is drawn: short clauses, none where there is nothing to say."""
