"""The data of a report: the server's answers at one moment, for a page that has no server."""

from __future__ import annotations

import base64
import json
import posixpath
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

from dagflow.errors import DagflowError
from dagflow.web.api import Api, as_json, body_of
from dagflow.web.checkpoints import Checkpoint, named

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


STATIC = Path(str(files("dagflow.web") / "static"))

_IMPORT = re.compile(r"""(\bfrom\s*|\bimport\s*\(\s*|\bimport\s+)(["'])(\.[^"']+)\2""")
"""A module that another one names by a relative path, statically or when it is needed."""

_STYLE_SHEET = re.compile(r'<link rel="stylesheet" href="([^"]+)" />')
"""A style sheet that the served page loads."""

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
