"""The pages of a run while it works: `dagflow run --ui`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from dagflow.engine.live_run import app_url_of
from dagflow.engine.run_setup import Observer, RunOptions
from dagflow.plan.logical import LogicalPlan
from dagflow.storage.location import absolute
from dagflow.web.checkpoints import CheckpointLocation
from dagflow.web.server import Server


@contextmanager
def live_pages(port: int | None, app: LogicalPlan, options: RunOptions, observer: Observer) -> Iterator[None]:
    """Serve pages about a run within the block, to this machine alone, from a process of their own.

    Args:
        port: Where; 0 for any free port, and None for no pages.
        app: The app that is run.
        options: Options of the run.
        observer: Receives the address.

    Raises:
        DagflowError: The port is taken.
    """
    if port is None:
        yield
        return
    checkpoint, storage = absolute(options.checkpoint or app.attributes.checkpoint), app.attributes.storage_context()
    place = CheckpointLocation(checkpoint, storage, app_url_of(app))
    with Server([place], port=port, is_apart=True).running() as address:
        observer.notice(f"pages of the run: {address.url}")
        yield
