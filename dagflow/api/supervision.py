"""An operator's say in whether a run goes on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable


@runtime_checkable
class Supervising(Protocol):
    """A partitioned operator that looks at its counts over all partitions and windows."""

    def supervise(self, totals: Mapping[str, int]) -> None:
        """Called in the driver before a window is committed.

        Args:
            totals: The operator's counts, this window's and those of all windows before it, also of earlier
                runs: what it counted by itself, and the records that left each port, by the port's name.

        Raises:
            DagflowError: Why the run must stop; the window is not committed.
        """
        ...
