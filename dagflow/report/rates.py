"""How fast the figures of a run grow, over the last few seconds."""

from __future__ import annotations

from collections import deque

RATE_WINDOW_S = 5.0
"""Long enough that a single window does not make the figure jump, short enough to follow."""


class Rate:
    """Growth of one figure per second, over the last few seconds."""

    def __init__(self) -> None:
        self._points: deque[tuple[float, float]] = deque()

    def update(self, seconds: float, value: float) -> None:
        """Take in the figure as it stands.

        Args:
            seconds: Any clock that does not go back.
            value: The figure.
        """
        self._points.append((seconds, value))
        while len(self._points) > 2 and self._points[1][0] <= seconds - RATE_WINDOW_S:
            self._points.popleft()

    @property
    def per_second(self) -> float:
        """Growth per second; 0 before two moments are known."""
        if len(self._points) < 2:
            return 0.0
        (start, first), (end, last) = self._points[0], self._points[-1]
        return max(0.0, last - first) / (end - start) if end > start else 0.0
