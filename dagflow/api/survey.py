"""A first pass over tuples that cannot be processed apart from each other.

Some formats let nobody say, from the middle of a file, whether a byte is inside of quotes. A survey
runs over all blocks in parallel and reports how each would leave what it enters; the driver folds the
reports, in order, into the one fact that each block lacks; then the blocks are processed in parallel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from dagflow.storage.context import StorageContext


@runtime_checkable
class Surveying(Protocol):
    """An operator at the head of a stage that surveys its tuples before their window is planned."""

    def needs_survey(self, item: Any) -> bool:
        """Whether a tuple has to be surveyed; asked in the driver.

        A window without any such tuple costs no first pass.
        """
        ...

    def survey(self, item: Any, storage: StorageContext) -> Any:
        """Examine one tuple, in a task, before setup.

        Args:
            item: The tuple.
            storage: Reaches the stores of the app.

        Returns:
            Something small and picklable.

        Raises:
            DagflowError: The tuple cannot be examined.
        """
        ...

    def resolve(self, items: Sequence[Any], findings: Sequence[Any]) -> list[Any]:
        """Complete a window's tuples, in the driver.

        Args:
            items: All tuples of the window, in the order of emission.
            findings: For each what survey gave, or None where it was not surveyed.

        Returns:
            The tuples to be planned, one for each of items.
        """
        ...

    def survey_state(self) -> Any:
        """What resolve must know of earlier windows, as something small and picklable; None for nothing."""
        ...

    def restore_survey(self, state: Any) -> None:
        """Take back what survey_state gave, before the first window after a restart."""
        ...
