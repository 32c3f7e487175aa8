"""The answers below `/api/v1/`: JSON of each resource, for the pages, for programs, and for a page without a server."""

from __future__ import annotations

import base64
import dataclasses
import json
import posixpath
import re
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dagflow.errors import DagflowError, MissingError
from dagflow.report.reading import CheckpointReading
from dagflow.web.checkpoints import AppFile, Checkpoint, Query, RequestError, app_file_of, is_number, named
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


LISTS = {"windows": 1000, "files": 1000, "rejects": 1000, "scaling": 500, "log": 1000}
"""How many rows of each list are in a report at most."""

_ALONE = ("graph", "tables", "app", "status")
DETAILS = 200
"""Number of the newest windows, and of their files, that a report holds in full detail."""


def report_data(place: Checkpoint) -> dict[str, Any]:
    """The answers by path below `/api/v1/`; a resource that cannot be read is left out."""
    api = Api(named([place]))
    (name,) = api.checkpoints
    api.answer(f"apps/{name}/status", {})
    resources: dict[str, Any] = {"apps": api.answer("apps", {})}

    def keep(path: str, **values: str) -> Any:
        try:
            found = api.answer(f"apps/{name}/{path}", values)
        except DagflowError as error:
            return body_of(error)
        # A report has no second page.
        cut = {**found, "next": None} if "next" in found else found
        query = "" if path != "files/one" else f"?url={values['url']}"
        resources[f"apps/{name}/{path}{query}"] = json.loads(json.dumps(cut, default=as_json))
        return found

    for path in _ALONE:
        keep(path)
    lists = {path: keep(path, limit=str(rows)) for path, rows in LISTS.items()}
    for row in lists["windows"].get("windows", ())[:DETAILS]:
        keep(f"windows/{row['window']}")
    for url in dict.fromkeys(row["url"] for row in lists["files"].get("files", ())[:DETAILS]):
        keep("files/one", url=url)
    resources[f"apps/{name}"] = resources[f"apps/{name}/status"]
    return resources


STATIC = Path(__file__).with_name("static")
_WITH_CHARTS = "uplot"
"""The module that is loaded with the first chart."""


def served_page() -> str:
    """The page of a server: it asks at once for all modules, each of which it would find in another one otherwise."""
    modules = (path.relative_to(STATIC).as_posix() for path in STATIC.rglob("*.js") if path.stem != _WITH_CHARTS)
    links = "".join(f'    <link rel="modulepreload" href="{each}" />\n' for each in sorted(modules))
    return (STATIC / "index.html").read_text(encoding="utf-8").replace("  </head>", f"{links}  </head>")


_IMPORT = re.compile(r"""(\bfrom\s*|\bimport\s*\(\s*|\bimport\s+)(["'])(\.[^"']+)\2""")
"""A module that another one names by a relative path, statically or when it is needed."""

_STYLE_SHEET = re.compile(r'<link rel="stylesheet" href="([^"]+)" />')
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'unsafe-inline' data:; \
style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="dark light">
<title>dagflow</title>
<style>{style}</style>
<script type="importmap">{imports}</script>
</head>
<body>
<div id="app"></div>
<script type="application/json" id="dagflow-data">{data}</script>
<script type="module">import "{main}";</script>
</body>
</html>
"""


def single_page(resources: dict[str, Any]) -> str:
    """One HTML page that holds all modules, the styles and the data.

    Args:
        resources: The server's answers, by path below `/api/v1/`, such as "apps/ID/graph".

    Returns:
        The page. Modules are named by their path below `static`, and an import map gives their text as data URLs, so
        that the same sources work with and without a server.
    """
    imports = {}
    for module in sorted(STATIC.rglob("*.js")):
        path = module.relative_to(STATIC).as_posix()
        text = _absolute(posixpath.dirname(path), module.read_text(encoding="utf-8"))
        imports[f"dagflow/{path}"] = f"data:text/javascript;base64,{base64.b64encode(text.encode()).decode('ascii')}"
    # The served page alone says which style sheets there are, and in what order they override each other.
    style_sheets = _STYLE_SHEET.findall((STATIC / "index.html").read_text(encoding="utf-8"))
    styles = [(STATIC / name).read_text(encoding="utf-8") for name in style_sheets]
    return _PAGE.format(
        style="\n".join(styles),
        imports=_embedded({"imports": imports}),
        data=_embedded({"resources": resources}),
        main="dagflow/app.js",
    )


def _absolute(folder: str, text: str) -> str:
    """The text of a module in which relative imports name modules of the import map."""

    def named(match: re.Match[str]) -> str:
        return f'{match[1]}"dagflow/{posixpath.normpath(posixpath.join(folder, match[3]))}"'

    return _IMPORT.sub(named, text)


def _embedded(value: Any) -> str:
    """JSON that can stand in an element `script`: no file name or record can end it."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
