"""Output directories that are moved away while a run publishes into them."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagflow.engine.output_directories import OutputDirectories
from dagflow.storage.context import StorageContext


def test_an_output_directory_that_is_moved_away_is_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Published files are the user's to move; what is published later is in another place, and the log says so."""
    output = tmp_path / "out"
    directories = OutputDirectories([str(output), "memory://elsewhere"], StorageContext.default())
    directories.published(3)  # this window published nothing
    for window_id in (4, 5):
        output.mkdir(exist_ok=True)
        directories.published(window_id)
    output.rename(tmp_path / "moved")
    directories.published(6)
    assert caplog.messages == []
    output.mkdir()
    for window_id in (7, 8):
        directories.published(window_id)
    assert caplog.messages == [
        f"the output directory {output} was moved or removed during the run: the output of windows 4 to 5 of this "
        "run is not in it; the run continues in a new directory of that name"
    ]
