"""Pages of a run while it works."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any
from urllib.error import URLError

import pytest
from click.testing import CliRunner

from dagflow.cli.app_run import live_pages
from dagflow.cli.commands.run import command
from dagflow.cli.shared_options import Settings
from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.plan.load import load_app
from dagflow.report.snapshot import RunSnapshot
from dagflow.runtime.local import InlineRuntime
from tests.web.conftest import ROWS, folder

__all__ = ["folder"]


class _Asking:
    """Requests the pages that a run serves, each time that the run reports something."""

    def __init__(self) -> None:
        self.address = ""
        self.rows: list[dict[str, Any]] = []
        self.windows: list[int] = []

    def notice(self, text: str) -> None:
        """Note where the pages are."""
        if "http://" in text:
            self.address = text.rpartition(" ")[2]

    def progress(self, snapshot: RunSnapshot) -> None:
        """Ask for the row of the run."""
        with urllib.request.urlopen(f"{self.address}api/v1/fleet") as answer:
            (row,) = json.load(answer)["apps"]
        self.rows.append(row)
        self.windows.append(snapshot.last_committed)


def test_pages_show_a_run_while_it_works_and_end_with_it(folder: Path) -> None:
    """A committed window is in the next answer, and no server is left behind."""
    (folder / "in" / "more.csv").write_bytes(ROWS)
    asking, app, options = _Asking(), load_app("app.yaml"), RunOptions()
    with live_pages(0, app, options, asking):
        run(app, options, asking, runtime=InlineRuntime)
    assert {row["state"] for row in asking.rows[:-1]} == {"running"}
    assert [row["windows"] for row in asking.rows] == asking.windows
    assert len({*asking.windows}) > 1
    with pytest.raises(URLError, match="refused"):
        urllib.request.urlopen(f"{asking.address}healthz")


@pytest.mark.parametrize("port", ["app.yaml", "70000", "²"])
def test_what_is_no_port_is_refused_with_what_to_do(folder: Path, port: str) -> None:
    """An app behind --ui would be taken for a port."""
    found = CliRunner().invoke(command, [f"--ui={port}", "app.yaml"], obj=Settings())
    assert found.exit_code == 2
    assert "write --ui behind APP" in found.output
