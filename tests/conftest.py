"""Shared fixtures: one Spark context and one S3 server per session, because clients cache one server; small disks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.s3_server import s3_root, s3_server
from tests.small_disk import disk

__all__ = ["disk", "s3_root", "s3_server", "spark_context"]

# The time of an example depends on what else the machine does.
settings.register_profile("dagflow", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("dagflow")


@pytest.fixture(scope="session", autouse=True)
def key_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Sign with a key of the tests' own, also in the processes that they start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DAGFLOW_KEY_FILE", str(tmp_path_factory.mktemp("key") / "key"))
        yield


@pytest.fixture(scope="session")
def spark_context(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A Spark context with two cores and dagflow's settings."""
    from dagflow.runtime.spark_context import start_context, stop_context

    log = tmp_path_factory.mktemp("spark") / "spark.log"
    context = start_context("tests", "local[2]", {}, log)
    yield context
    stop_context(context)
