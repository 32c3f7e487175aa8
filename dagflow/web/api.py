"""The answers below `/api/v1/`: JSON of each resource, for the pages and for programs."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Mapping
from typing import Any

from dagflow.errors import DagflowError, MissingError
from dagflow.report.reading import CheckpointReading
from dagflow.web.app_files import AppFile, app_file_of
from dagflow.web.checkpoints import Checkpoint
from dagflow.web.query import Query, RequestError, is_number
from dagflow.web.resources.file_history import FileHistory
from dagflow.web.resources.files_resource import file, files
from dagflow.web.resources.fleet_resource import app, fleet
from dagflow.web.resources.graph_resource import graph
from dagflow.web.resources.log_resource import log
from dagflow.web.resources.rejects_resource import rejects
from dagflow.web.resources.tables_resource import tables
from dagflow.web.resources.windows_resource import scaling, window, windows

Json = dict[str, Any]


class Api:
    """Answers requests for resources."""

    def __init__(self, checkpoints: Mapping[str, Checkpoint]) -> None:
        self.checkpoints = checkpoints
        self._apps: dict[str, AppFile] = {}
        self._lock = threading.Lock()
        self._resources: dict[str, Callable[[Checkpoint, Query], Json]] = {
            "app": lambda checkpoint, query: app(checkpoint, self._app_of(checkpoint)),
            "status": _status,
            "graph": lambda checkpoint, query: graph(checkpoint, self._app_of(checkpoint)),
            "windows": windows,
            "files": files,
            "files/one": lambda checkpoint, query: file(checkpoint, query, self._app_of(checkpoint)),
            "why": self._why,
            "sample": self._sample,
            "rejects": rejects,
            "tables": lambda checkpoint, query: tables(checkpoint, self._app_of(checkpoint)),
            "scaling": scaling,
            "log": log,
        }

    def answer(self, path: str, values: Mapping[str, str]) -> Json:
        """The JSON of a resource.

        Args:
            path: Below `/api/v1/`, such as "apps/orders/windows"; without `apps/ID/`, the parameter `checkpoint` names
                the checkpoint, and may be left out where there is one.

        Raises:
            RequestError: The resource does not exist, or takes other parameters.
            DagflowError: The checkpoint cannot be read.
        """
        query = Query(values)
        if path in ("apps", "fleet"):
            return fleet(self.checkpoints.values())
        first, _, rest = path.partition("/")
        if first == "apps":
            name, _, resource = rest.partition("/")
            checkpoint = self._checkpoint(name)
        else:
            checkpoint, resource = self._chosen(query.text("checkpoint")), path
        return self._resource(checkpoint, resource or "status", query)

    def looks(self, name: str) -> int:
        """How many looks at the app of a checkpoint have ended."""
        app = self._apps.get(name)
        return 0 if app is None else app.looks

    def readings(self) -> list[CheckpointReading]:
        """The state of each checkpoint now, for metrics and health checks."""
        return [each.read() for each in self.checkpoints.values()]

    def _resource(self, checkpoint: Checkpoint, resource: str, query: Query) -> Json:
        if resource in self._resources:
            return self._resources[resource](checkpoint, query)
        name, _, number = resource.partition("/")
        if name == "windows" and is_number(number):
            return window(checkpoint, int(number))
        known = ", ".join(sorted(self._resources))
        raise RequestError(f"there is no resource {resource[:80]!r}", f"there are: {known}, windows/N", 404)

    def _checkpoint(self, name: str) -> Checkpoint:
        if name in self.checkpoints:
            return self.checkpoints[name]
        known = ", ".join(self.checkpoints)
        raise RequestError(f"there is no checkpoint {name[:80]!r} here", f"there are: {known}", 404)

    def _chosen(self, name: str) -> Checkpoint:
        if name:
            return self._checkpoint(name)
        if len(self.checkpoints) == 1:
            return next(iter(self.checkpoints.values()))
        raise RequestError("several checkpoints are shown here", f"name one: ?checkpoint={'|'.join(self.checkpoints)}")

    def _app_of(self, checkpoint: Checkpoint) -> AppFile:
        fresh = app_file_of(checkpoint)
        with self._lock:
            known = self._apps.get(checkpoint.id)
            if known is None or known.path != fresh.path:
                known = self._apps[checkpoint.id] = fresh
            known.newest_run = fresh.newest_run
            return known

    def _why(self, checkpoint: Checkpoint, query: Query) -> Json:
        """Why a file was not taken, as the journal says, or else the splitter that decides."""
        url = query.text("url")
        if not url:
            raise RequestError("url is missing: name a file")
        history, answer = FileHistory(*checkpoint.journal(), url), {}
        since = 0 if history.is_whole else history.looked_at
        if not history.versions:
            answer = self._app_of(checkpoint).why(url)
            if since and answer.get("taken_ms"):
                history.look_at(answer["taken_ms"])
        if history.versions:
            newest = history.versions[0].to_json()
            state, windows = newest["state"], ", ".join(map(str, newest["windows"]))
            windows = f"{'window' if len(newest['windows']) == 1 else 'windows'} {windows}"
            sentence = {
                "read": f"It was taken: {windows} read it.",
                "planned": f"It was taken: {windows} will read it.",
            }.get(state, f"It was taken by {windows}, and {state}.")
            return {"taken": True, "sentence": sentence, "state": state, "windows": newest["windows"]}
        if "sentence" not in answer:
            raise RequestError(f"the splitter was asked, and failed: {answer.get('error', 'no answer')}", status=502)
        is_known = answer.pop("taken_ms") is not None
        if since and is_known:
            answer["sentence"] += " The index of what was taken does not have it."
        elif since:
            answer["sentence"] += f" No window from {since} on has read it; older ones were not looked at."
        return answer

    def _sample(self, checkpoint: Checkpoint, query: Query) -> Json:
        port = query.text("port")
        if not port:
            raise RequestError("port is missing: name one as operator.port")
        answer = self._app_of(checkpoint).sample(port)
        if "unknown" in answer:
            raise RequestError(answer["unknown"], answer.get("hint", ""), 404)
        error = answer.get("error", "no answer")
        # Records that came before an error are shown beside it.
        if error and not answer.get("rows"):
            raise RequestError(error, answer.get("hint", ""), 502)
        return answer


def _status(checkpoint: Checkpoint, query: Query) -> Json:
    reading = checkpoint.read()
    if reading.snapshot is None:
        checkpoint.journal()  # without a journal, the answer is that of all resources
        raise RequestError(reading.error, status=503)
    return reading.snapshot.status_json()


def status_of(error: DagflowError) -> int:
    if isinstance(error, RequestError):
        return error.status
    return 404 if isinstance(error, MissingError) else 503


def body_of(error: DagflowError) -> Json:
    return {"error": {"message": error.message, "hint": error.hint}}


def as_json(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    raise TypeError(type(value).__name__)
