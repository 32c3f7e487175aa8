"""A runtime that is started when it is first needed, by whoever needs it first."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from dagflow.runtime.base import Runtime


class LazyRuntime:
    """Holds the runtime of a run.

    Args:
        start: Starts it; called once at most.
    """

    def __init__(self, start: Callable[[], Runtime]) -> None:
        self._start = start
        self._runtime: Runtime | None = None
        # The driver and the threads of control operators may need it at the same moment.
        self._lock = threading.Lock()

    def get(self) -> Runtime:
        """The runtime, which runs now.

        Raises:
            DagflowError: It could not be started.
        """
        with self._lock:
            if self._runtime is None:
                self._runtime = self._start()
            return self._runtime

    def in_tasks(self, function: Callable[[Any], Any], items: list[Any]) -> list[Any]:
        """See ControlServices.in_tasks."""
        return self.get().map(function, items)

    def close(self) -> None:
        """Give back what the runtime holds, where it was started; a second time does nothing."""
        with self._lock:
            if self._runtime is not None:
                self._runtime.close()
