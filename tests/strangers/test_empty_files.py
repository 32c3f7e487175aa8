"""Files without any byte, and files without a record."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagflow.cli.render import summary
from dagflow.engine.preview import preview
from dagflow.engine.run import run
from dagflow.plan.load import load_app
from dagflow.report.open_rejects import open_rejects
from dagflow.runtime.local import InlineRuntime
from dagflow.storage.context import StorageContext

APP = """
name: empty
attributes: {{checkpoint: "{root}/journal"}}
rejects: "{root}/refused"
steps:
  - files: "{root}/in"
  - read: {format}
  - write: "{root}/out"
"""


def app_of(folder: Path, format: str, content: bytes) -> Path:
    """An app that reads one file."""
    (folder / "in").mkdir()
    (folder / "in" / "a").write_bytes(content)
    (folder / "app.yaml").write_text(APP.format(root=folder, format=format))
    return folder / "app.yaml"


@pytest.mark.parametrize("format", ["parquet", "arrow", "orc", "avro", "excel"])
def test_a_file_of_rows_without_any_byte_is_refused(tmp_path: Path, format: str) -> None:
    """In a preview, and in a run, whose refused file is found again with its reason."""
    app = load_app(app_of(tmp_path, format, b""))
    assert [reject.reason for reject in preview(app).rejects]
    assert run(app, runtime=InlineRuntime).rejected == 1
    (window,) = open_rejects(str(tmp_path / "journal"), StorageContext.default())
    assert [block.url for block in window.blocks.values()] == [str(tmp_path / "in" / "a")]


@pytest.mark.parametrize("content", [b"", b"id,name\n"])
def test_a_run_says_that_its_files_have_no_records(tmp_path: Path, content: bytes) -> None:
    """Also where they have bytes, such as a header."""
    app = load_app(app_of(tmp_path, "csv", content))
    assert "records: none" in summary(run(app, runtime=InlineRuntime))
