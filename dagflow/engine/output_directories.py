"""Warns when an output directory was moved or removed while the run published into it."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterable

from dagflow.storage.context import StorageContext
from dagflow.storage.location import redacted

logger = logging.getLogger(__name__)


class OutputDirectories:
    """The output directories of a run, by their identity on the disk.

    Published files belong to the user, who may move them at any time. That is no error, but deserves a warning: the
    run's output is then in two directories.

    Args:
        urls: The output locations; only those on local disks are looked at.
        storage: Says which locations are local.
    """

    def __init__(self, urls: Iterable[str], storage: StorageContext) -> None:
        self._paths = [url for url in urls if storage.backend(url).is_local]
        self._identities: dict[str, tuple[int, int]] = {}
        self._windows: dict[str, tuple[int, int]] = {}

    def published(self, window_id: int) -> None:
        """Check the directories after a window was published; warns of each that is not the same as before."""
        for path in self._paths:
            with contextlib.suppress(OSError):
                stat = os.stat(path)
                identity = stat.st_dev, stat.st_ino
                before = self._identities.setdefault(path, identity)
                first, last = self._windows.get(path, (window_id, window_id))
                if before != identity:
                    logger.warning(
                        "the output directory %s was moved or removed during the run: the output of windows %d to "
                        "%d of this run is not in it; the run continues in a new directory of that name",
                        redacted(path),
                        first,
                        last,
                    )
                    self._identities[path], first = identity, window_id
                self._windows[path] = first, window_id
