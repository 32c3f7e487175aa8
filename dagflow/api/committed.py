"""What may only be done when a window's output is there for everybody to see."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class CommitListener(Protocol):
    """A control operator that acts on the world outside after a window has been committed.

    Guarantee: called for each window after all its files are published; when a run begins also for the last window
    before it, which may have been told of before.
    """

    def committed(self, window_id: int) -> None:
        """Called in the driver: this window, and all before it, are committed and published.

        What is done here must do no harm when it is done twice.

        Raises:
            DagflowError: It failed; the run ends, and the next one calls again.
        """
        ...
