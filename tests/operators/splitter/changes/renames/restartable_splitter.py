"""A splitter that follows real files, and may be restarted between scans."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.operators.splitter.splitter_driver import EmittedWindow, FollowingDriver, InProcessServices
from tests.properties.test_growing_files import read


class RestartableSplitter:
    """A splitter that follows a directory, and may be restarted before each scan.

    Args:
        directory: The directory.
        is_restarted: Whether each scan is made by a new splitter, which takes the state of the one before.
        properties: Of the splitter.

    Attributes:
        services: What it may ask of the engine.
        state: Its state after the last scan.
    """

    def __init__(self, directory: Path, *, is_restarted: bool = False, **properties: Any) -> None:
        self._is_restarted = is_restarted
        self._properties = {"files": str(directory / "in"), **properties}
        self.services = InProcessServices(state_url=str(directory / "state"), follow=True)
        self._follower: FollowingDriver | None = None
        self.state: Any = None
        self._now_millis = 4_000_000_000_000
        self.counts: dict[str, int] = {}

    def scan(self, scans: int = 1) -> list[bytes]:
        """Scan a number of times, and return the records that are read."""
        found: list[bytes] = []
        for _ in range(scans):
            if self._follower is None:
                self._now_millis += 1000
                self._follower = FollowingDriver(self.services, self.state, self._now_millis, **self._properties)
                window = self._follower.scanned()
            else:
                window = self._follower.next_scan()
            found += self._read(window)
            if self._is_restarted:
                self.close()
        return found

    def _read(self, window: EmittedWindow) -> list[bytes]:
        assert self._follower is not None
        events: list[Any] = []
        found = read(window, events=events)
        for more in self._follower.windows():
            found += read(more, events=events)
        self._follower.commit(events)
        self.state = self._follower.window().state
        self.counts = dict(self._follower.counters)
        return found

    def close(self) -> None:
        """End the splitter, as before a restart."""
        if self._follower is not None:
            self._follower.following.teardown()
        self._follower = None
