"""The data of a report: the server's answers at one moment, for a page that has no server."""

from __future__ import annotations

import json
from typing import Any

from dagflow.errors import DagflowError
from dagflow.web.api import Api, as_json, body_of
from dagflow.web.checkpoints import CheckpointLocation, named

LISTS = {"windows": 1000, "files": 1000, "rejects": 1000, "scaling": 500, "log": 1000}
"""How many rows of each list are in a report at most."""

_ALONE = ("graph", "tables", "app", "status")
DETAILS = 200
"""Number of the newest windows, and of their files, that a report holds in full detail."""


def report_data(place: CheckpointLocation) -> dict[str, Any]:
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
