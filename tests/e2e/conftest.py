"""What tests of whole apps share."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A working directory with copies of the apps and their input, and no output."""
    shutil.copytree(ROOT / "apps", tmp_path / "apps")
    shutil.copytree(ROOT / "data", tmp_path / "data")
    return tmp_path
