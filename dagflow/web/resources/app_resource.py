"""The app: its YAML with its mistakes in place, and how it differs from the app of the newest run."""

from __future__ import annotations

from typing import Any

from dagflow.web.app_files import AppFile
from dagflow.web.checkpoints import Checkpoint
from dagflow.web.resources.fleet_resource import row_of


def app(checkpoint: Checkpoint, file: AppFile) -> dict[str, Any]:
    """The app file as it is now, with the row that the fleet has of the checkpoint."""
    found = file.look()
    return {
        **row_of(checkpoint),
        "file": file.path,
        "yaml": file.text(),
        "problems": found.get("problems", []),
        "changes": found.get("changes", []),
        "note": file.why_not_loaded() or found.get("error", ""),
    }
