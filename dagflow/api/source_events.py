"""What tasks tell the control operators of what they saw of their tuples.

Source:
    Source events between readers and enumerators, in Flink's FLIP-27.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class SourceEventListener(Protocol):
    """A control operator that takes in what tasks saw of the tuples that it emitted.

    Guarantee: it hears of each window that this run commits once, in order. What heard() gives then is kept with the
    window's commit, and given back to a later run after its snapshot. So what a snapshot has that was taken after
    an event need not be kept here as well.
    """

    @property
    def wants_source_events(self) -> bool:
        """Whether tasks shall tell anything; asked once, before the first window."""
        ...

    def handle_source_events(self, window_id: int, events: Sequence[Any]) -> None:
        """Called in the driver before a window is committed.

        Args:
            window_id: The window.
            events: What its tasks put into OperatorContext.source_events, also of tuples of other operators.
        """
        ...

    def heard(self) -> Any:
        """What must not be lost of the events of this window and of earlier ones; picklable."""
        ...

    def restore_heard(self, state: Any) -> None:
        """Take back what heard gave, after restore."""
        ...
