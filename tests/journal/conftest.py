"""The stores that the laws of storage hold on."""

import uuid
from pathlib import Path

import pytest


@pytest.fixture(params=["local", "memory", "s3"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty place."""
    if request.param == "s3":
        return f"{request.getfixturevalue('s3_root')}/some/where"
    return str(tmp_path / "root") if request.param == "local" else f"memory://{uuid.uuid4().hex}"
