"""The app: its YAML with its mistakes in place, and how it differs from the app of the newest run."""

from __future__ import annotations

import difflib
from typing import Any

from dagflow.web.app_files import AppFile
from dagflow.web.checkpoints import Checkpoint
from dagflow.web.resources.fleet_resource import row_of

_KINDS = {"+": "added", "-": "removed", " ": "same"}


def app(checkpoint: Checkpoint, file: AppFile) -> dict[str, Any]:
    """The app file as it is now, and as the newest run had it, with the row that the fleet has of the checkpoint."""
    found = file.look()
    ran, now = checkpoint.journal()[1].text, file.text()
    return {
        **row_of(checkpoint),
        "file": file.path,
        "yaml": now,
        "yaml_of_run": ran or None,
        "difference": [] if now is None or not ran else _difference(ran, now),
        "problems": found.get("problems", []),
        "changes": found.get("changes", []),
        "note": file.why_not_loaded() or found.get("error", ""),
    }


def _difference(before: str, after: str) -> list[dict[str, str]]:
    """The lines that differ between two texts, with some around them; none for equal ones."""
    lines = list(difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=3))[2:]
    return [{"kind": _KINDS.get(line[:1], "place"), "text": line} for line in lines]
