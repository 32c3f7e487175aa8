"""What is reported about files that changed after they were taken."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from dagflow.api.operator import OPERATOR_LOGGER
from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.errors import SourceChangedError
from dagflow.runtime.local import InlineRuntime
from tests.operators.splitter.changes.renames.restartable_splitter import RestartableSplitter
from tests.operators.splitter.changes.renames.rotations import compress_at_once
from tests.operators.splitter.changes.test_detection_rules import app_over
from tests.operators.splitter.splitter_driver import write
from tests.properties.test_growing_files import append


def test_what_is_added_before_a_compression_has_no_size(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The place in the content says nothing of the size of the compressed file, which is smaller."""
    log = write(tmp_path / "in" / "app.log", b"first\n" * 1000)
    splitter = RestartableSplitter(tmp_path)
    splitter.scan()
    append(log, b"last\n")
    compress_at_once(log)
    with caplog.at_level(logging.INFO, OPERATOR_LOGGER):
        assert splitter.scan(2) == [b"last"]
    splitter.close()
    assert [text for text in caplog.messages if text.startswith("app.log.1.gz")] == ["app.log.1.gz grown"]


def test_an_error_compares_no_size_of_content_with_a_compressed_one(tmp_path: Path) -> None:
    """More content may be fewer bytes."""
    app = app_over(tmp_path, "skip", "0", ", on_change: {appended: fail}")
    log = write(tmp_path / "in" / "a", b"first\n" * 1000)
    run(app, RunOptions(), runtime=InlineRuntime)
    append(log, b"last\n")
    compress_at_once(log)
    with pytest.raises(SourceChangedError, match="it was appended after it was read: 6000 bytes then, compressed now"):
        run(app, RunOptions(), runtime=InlineRuntime)
