"""The head of an app, read without its operators."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dagflow.spec.head_reader import AppHead, read_head


def test_a_head_is_read_without_a_look_at_operators(tmp_path: Path) -> None:
    """Also where the operators cannot be found; what does not fit has its default."""
    app = tmp_path / "app.yaml"
    app.write_text("name: sample\noperators: {a: {class: not.there.At_all}}\n")
    assert read_head(str(app)) == AppHead("sample", ".dagflow/sample", "local[*]", {})
    app.write_text("name: sample\nattributes: {checkpoint: s3://bucket/here, master: 'local[3]', spark: {a.b: true}}\n")
    assert read_head(str(app)) == AppHead("sample", "s3://bucket/here", "local[3]", {"a.b": "true"})
    app.write_text("name: S\nattributes: {master: 'local[x]'}\n")
    assert read_head(str(app)) == AppHead("app", ".dagflow/app", "local[*]", {})


@pytest.mark.parametrize("text", ["[", "- a", "just text", ""])
def test_a_file_that_is_no_app_has_no_head(tmp_path: Path, text: str) -> None:
    """Nor has a file that is not there."""
    app = tmp_path / "app.yaml"
    app.write_text(text)
    assert read_head(str(app)) is None
    assert read_head(str(tmp_path / "none.yaml")) is None


def test_java_can_be_started_before_anything_heavy_is_imported() -> None:
    """What `dagflow run` imports before it starts Java has neither Arrow nor PySpark nor an operator."""
    code = (
        "import sys; import dagflow.cli.commands.run; "
        "print({each.partition('.')[0] for each in sys.modules} & {'pyarrow', 'numpy', 'pyspark', 'rich', 'operators'})"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"
