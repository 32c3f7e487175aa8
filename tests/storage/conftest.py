"""The stores that the laws of storage hold on."""

import uuid
from pathlib import Path

import pytest

from tests.hdfs_cluster import JARS, hdfs, hdfs_root

__all__ = ["hdfs", "hdfs_root"]


STORES = ["local", "memory", "s3"]
if JARS:
    STORES.append("hdfs")


@pytest.fixture(params=STORES)
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty place."""
    if request.param == "hdfs":
        return f"{request.getfixturevalue('hdfs_root')}/some/where"
    if request.param == "s3":
        return f"{request.getfixturevalue('s3_root')}/some/where"
    return str(tmp_path / "root") if request.param == "local" else f"memory://{uuid.uuid4().hex}"
