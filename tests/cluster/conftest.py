"""One cluster for all tests, because its start takes seconds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.hosts import Cluster
from tests.cluster.runs import ClusterRun, Shape


@pytest.fixture(scope="session")
def running_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A master and two workers for the session."""
    cluster = Cluster(tmp_path_factory.mktemp("cluster") / "hosts")
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.destroy()


@pytest.fixture
def cluster(running_cluster: Cluster) -> Iterator[Cluster]:
    """The cluster, repaired after each test."""
    yield running_cluster
    running_cluster.mend()


@pytest.fixture
def networked(cluster: Cluster) -> Cluster:
    """The cluster, if its hosts have their own network and mounts."""
    if not cluster.has_network:
        pytest.skip("only root with iproute2 may make hosts with a network of their own")
    return cluster


@pytest.fixture
def cluster_run(cluster: Cluster, tmp_path: Path) -> Iterator[ClusterRun]:
    """An app on the cluster; its processes are ended after the test."""
    run = ClusterRun(cluster, tmp_path / "app")
    try:
        yield run
    finally:
        run.destroy()


@pytest.fixture(params=["fused", "exchanged"])
def shape(request: pytest.FixtureRequest) -> Shape:
    """Return whether records pass through Spark's shuffle."""
    shape: Shape = request.param
    return shape
