"""The pages of a run while it works: `dagflow run --ui`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from dagflow.engine.driver import Observer
from dagflow.engine.live_run import app_url_of
from dagflow.engine.run_setup import RunOptions
from dagflow.plan.logical import LogicalPlan
from dagflow.report.reading import LiveSource
from dagflow.report.snapshot import RunSnapshot
from dagflow.storage.location import absolute
from dagflow.web.checkpoints import CheckpointLocation
from dagflow.web.server import Server


class _Shown:
    """Passes on the progress of a run, and keeps its newest figures for the pages."""

    def __init__(self, observer: Observer, live: LiveSource) -> None:
        self.notice = observer.notice
        self._observer = observer
        self._live = live

    def progress(self, snapshot: RunSnapshot) -> None:
        """Keep the figures, and pass them on."""
        self._live.progress(snapshot)
        self._observer.progress(snapshot)


@contextmanager
def live_pages(port: int | None, app: LogicalPlan, options: RunOptions, observer: Observer) -> Iterator[Observer]:
    """Serve pages about a run within the block, to this machine alone.

    Args:
        port: Where; 0 for any free port, and None for no pages.
        app: The app that is run.
        options: Options of the run.
        observer: Receives the progress of the run.

    Yields:
        The observer for the run.

    Raises:
        DagflowError: The port is taken.
    """
    if port is None:
        yield observer
        return
    checkpoint, storage = absolute(options.checkpoint or app.attributes.checkpoint), app.attributes.storage_context()
    live = LiveSource(checkpoint, storage)
    place = CheckpointLocation(checkpoint, storage, app_url_of(app), live)
    with Server([place], port=port).running() as address:
        observer.notice(f"pages of the run: {address.url}")
        yield _Shown(observer, live)
