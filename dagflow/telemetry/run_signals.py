"""All signals that a run sends to other systems while it works."""

from __future__ import annotations

import contextlib
import functools
import time
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from dagflow.errors import DagflowError, RunStoppedError
from dagflow.frozen import frozen
from dagflow.journal.state import JournalState
from dagflow.journal.windows import Window
from dagflow.plan.logical import LogicalPlan
from dagflow.report.reading import LiveSource, recent_rejects
from dagflow.report.snapshot import RunSnapshot
from dagflow.storage.context import StorageContext
from dagflow.storage.location import redacted

if TYPE_CHECKING:
    from dagflow.telemetry.alert_monitor import AlertMonitor
    from dagflow.telemetry.lineage import DatasetLocations, LineageReporter
    from dagflow.telemetry.metrics_server import MetricsServer
    from dagflow.telemetry.traces import TraceReporter

CLOSE_S = 1.0
"""Seconds that the end of a run waits for its last events, for all queues together: an answer takes milliseconds."""


@frozen
class MetricsAddress:
    """Where a run serves its metrics; port 0 is any that is free."""

    host: str
    port: int


class RunSignals:
    """Metrics, alerts, lineage and traces of one run; a context manager that begins and ends them.

    Guarantee: the driver waits for signals only at the end of the run, and then for a few seconds at most. A failure is
    logged once.

    Args:
        address: Where metrics are served; None for nowhere.
        locations: Gives what each operator reads and publishes; asked only where lineage is reported.

    Raises:
        DagflowError: The packages for lineage or traces are missing.
    """

    def __init__(
        self,
        app: LogicalPlan,
        checkpoint: str,
        storage: StorageContext,
        state: JournalState,
        *,
        follows: bool,
        address: MetricsAddress | None,
        locations: Callable[[], DatasetLocations],
        notice: Callable[[str], None],
    ) -> None:
        settings = app.attributes
        redact = app.spec.redact if app.spec is not None else str
        run_id = str(uuid.uuid4())
        self._source = LiveSource(checkpoint, storage)
        self._notice = notice
        self._server: MetricsServer | None = None
        if address is not None:
            # Python's HTTP takes a tenth of a short run to import.
            from dagflow.telemetry.metrics_server import MetricsServer

            self._server = MetricsServer(self._source, address.host, address.port)
        self._alerts: AlertMonitor | None = None
        if settings.alerts is not None:
            # Alerts are sent with it as well.
            from dagflow.telemetry.alert_monitor import AlertMonitor

            earlier = partial(recent_rejects, checkpoint, storage, state.run_start, state.last_committed)
            store = storage.objects(checkpoint)
            live = self._source.from_memory
            self._alerts = AlertMonitor(app.name, settings.alerts, live, store, earlier, redact)
        self._traces: TraceReporter | None = None
        if settings.traces is not None:
            with _extra("traces"):
                # Its packages are optional, and take most of a second.
                from dagflow.telemetry.traces import TraceReporter
            self._traces = TraceReporter(settings.traces, app.name, redacted(checkpoint), run_id, _version())
        self._lineage: LineageReporter | None = None
        if settings.lineage is not None:
            with _extra("lineage"):
                # Its package is optional, and takes most of a second.
                from dagflow.telemetry.lineage import LineageReporter
            self._lineage = LineageReporter(
                settings.lineage, app, locations(), run_id, _version(), follows=follows, redact=redact
            )
        self._last: RunSnapshot | None = None

    def __enter__(self) -> RunSignals:
        if self._server is not None:
            self._server.__enter__()
            self._notice(f"metrics are at {self._server.url}")
        if self._alerts is not None:
            self._alerts.start()
        if self._lineage is not None:
            self._lineage.started()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        state, by_s = _state_of(self._last, error), time.monotonic() + CLOSE_S
        with contextlib.ExitStack() as ending:
            if self._server is not None:
                ending.callback(self._server.__exit__, None, None, None)
            if self._alerts is not None:
                is_failure = error is not None and state == "failed"
                ending.callback(self._alerts.close, (str(error) or type(error).__name__) if is_failure else None)
            if self._traces is not None:
                ending.callback(self._traces.close, by_s)
            if self._lineage is not None:
                ending.callback(self._lineage.ended, self._last, state, str(error or ""), by_s)

    def progress(self, snapshot: RunSnapshot) -> None:
        """Take in the run's figures; called from the driver's thread a few times a second."""
        self._last = snapshot
        self._source.progress(snapshot)
        if self._lineage is not None:
            self._lineage.progress(snapshot)

    def committed(self, window: Window) -> None:
        """Take in a window that is published; called from the driver's thread."""
        if self._alerts is not None and window.intent is not None:
            self._alerts.committed(window.intent.counters, window.plan)
        if self._traces is not None:
            self._traces.committed(window)


@functools.cache
def _version() -> str:
    # Heavy, and only lineage and traces say it.
    import importlib.metadata

    try:
        return importlib.metadata.version("dagflow")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


@contextlib.contextmanager
def _extra(attribute: str) -> Iterator[None]:
    """What an attribute of the app needs is imported only for it, from an extra of the same name."""
    try:
        yield
    except ImportError as error:
        hint = f"install it with: pip install 'dagflow[{attribute}]'"
        raise DagflowError(f"'{attribute}' of the app needs a package that is missing: {error}", hint=hint) from error


def _state_of(last: RunSnapshot | None, error: BaseException | None) -> str:
    if error is None:
        return "completed" if last is None else last.state
    return "stopped" if isinstance(error, RunStoppedError | KeyboardInterrupt) else "failed"
