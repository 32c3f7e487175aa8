"""All signals that a run sends to other systems while it works, and the server of its metrics."""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from dagflow.errors import DagflowError, RunStoppedError
from dagflow.frozen import frozen
from dagflow.journal.state import JournalState
from dagflow.journal.windows import Window
from dagflow.plan.logical import LogicalPlan
from dagflow.report.endpoints import ENDPOINTS, Answer
from dagflow.report.reading import LiveSource, Source, recent_rejects
from dagflow.report.snapshot import RunSnapshot
from dagflow.storage.context import StorageContext
from dagflow.storage.location import redacted
from dagflow.telemetry.alert_monitor import AlertMonitor
from dagflow.telemetry.event_queue import CLOSE_S

if TYPE_CHECKING:
    from dagflow.telemetry.lineage import DatasetLocations, LineageReporter
    from dagflow.telemetry.traces import TraceReporter

MOST_CONNECTIONS = 32
"""Each takes a thread and a descriptor of the run; further ones are closed at once."""

REQUEST_S = 10.0
"""Seconds for a whole request: one that comes byte by byte would keep its connection from others."""


class MetricsServer:
    """Answers at `/metrics`, `/healthz` and `/readyz`."""

    def __init__(self, source: Source, host: str, port: int, request_s: float = REQUEST_S) -> None:
        family = _Server if ":" not in host else _Server6
        try:
            self._server = family(source, (host, port), request_s)
        except OSError as error:
            raise DagflowError(
                f"cannot listen at {host}:{port}: {error.strerror or error}",
                hint="another program has the port: name another one with --metrics, or 0 for any",
            ) from error
        self.host, self.port = host, self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", args=(0.1,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}/metrics"

    def __enter__(self) -> MetricsServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, source: Source, address: tuple[str, int], request_s: float) -> None:
        self.source, self.request_s = source, request_s
        self._connections = threading.BoundedSemaphore(MOST_CONNECTIONS)
        super().__init__(address, _Handler)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        return self._connections.acquire(blocking=False)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        limit = threading.Timer(self.request_s, _hang_up, [request])
        limit.daemon = True
        limit.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            limit.cancel()
            self._connections.release()


def _hang_up(request: socket.socket) -> None:
    with contextlib.suppress(OSError):  # the other side was quicker
        request.shutdown(socket.SHUT_RDWR)


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version = "dagflow"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer one request that no page of a browser has made: none of them is this server's own."""
        if "Origin" in self.headers or self.headers.get("Sec-Fetch-Site", "none") != "none":
            return self._send(Answer(403, "text/plain; charset=utf-8", "other sites get no answer\n"))
        answer = Answer(404, "text/plain; charset=utf-8", "there are /metrics, /healthz and /readyz\n")
        if (endpoint := ENDPOINTS.get(self.path.partition("?")[0])) is not None:
            answer = endpoint([self.server.source()])
        return self._send(answer)

    do_HEAD = do_GET

    def _send(self, answer: Answer) -> None:
        body = answer.body.encode()
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: stderr belongs to the run's display."""


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
        run_id, version = str(uuid.uuid4()), _version()
        self._source = LiveSource(checkpoint, storage)
        self._notice = notice
        self._server = None if address is None else MetricsServer(self._source, address.host, address.port)
        self._alerts: AlertMonitor | None = None
        if settings.alerts is not None:
            earlier = partial(recent_rejects, checkpoint, storage, state.run_start, state.last_committed)
            store = storage.objects(checkpoint)
            live = self._source.from_memory
            self._alerts = AlertMonitor(app.name, settings.alerts, live, store, earlier, redact)
        self._traces: TraceReporter | None = None
        if settings.traces is not None:
            with _extra("traces"):
                # Its packages are optional, and take most of a second.
                from dagflow.telemetry.traces import TraceReporter
            self._traces = TraceReporter(settings.traces, app.name, redacted(checkpoint), run_id, version)
        self._lineage: LineageReporter | None = None
        if settings.lineage is not None:
            with _extra("lineage"):
                # Its package is optional, and takes most of a second.
                from dagflow.telemetry.lineage import LineageReporter
            self._lineage = LineageReporter(
                settings.lineage, app, locations(), run_id, version, follows=follows, redact=redact
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
