"""Why an input operator takes a file or leaves it, by the rules that decide."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from dagflow.api.operator import Capability
from dagflow.storage.context import StorageContext


class InputExplainer(Capability):
    """Declares a control operator that can say for any location whether a scan now would take it."""

    @abstractmethod
    def explain_input(self, url: str, storage: StorageContext) -> tuple[bool, str]:
        """Called on an operator that is not set up, outside of a run.

        Args:
            url: An absolute location.
            storage: Reaches the stores of the app.

        Returns:
            Whether a scan now would take the file, apart from what earlier runs have taken; and a sentence that says
            why, with the property that decides.

        Raises:
            StorageError: The store failed.
        """

    @abstractmethod
    def when_taken(self, url: str, storage: StorageContext, state: Any, state_url: str) -> int:
        """Called on an operator that is not set up, outside of a run, which may be at work.

        Args:
            url: An absolute location.
            storage: Reaches the stores of the app.
            state: The result of snapshot() for the newest planned window.
            state_url: The operator's own directory in the checkpoint; read-only.

        Returns:
            When the newest version of the file was taken, in milliseconds since 1970; 0 where none is known.

        Raises:
            DagflowError: The state cannot be read.
        """
