"""One cluster for all tests that need one, because its start takes seconds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.hosts import Cluster
from tests.cluster.runs import ClusterRun, Shape


@pytest.fixture(scope="session")
def running_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A master and two workers, for this session."""
    cluster = Cluster(tmp_path_factory.mktemp("cluster") / "hosts")
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.destroy()


@pytest.fixture
def cluster(running_cluster: Cluster) -> Iterator[Cluster]:
    """The cluster, whole again after each test."""
    yield running_cluster
    running_cluster.mend()


@pytest.fixture
def networked(cluster: Cluster) -> Cluster:
    """The cluster, where its hosts have a network and mounts of their own."""
    if not cluster.has_network:
        pytest.skip("only root with iproute2 may make hosts with a network of their own")
    return cluster


@pytest.fixture
def cluster_run(cluster: Cluster, tmp_path: Path) -> Iterator[ClusterRun]:
    """An app on the cluster, whose processes are gone after the test."""
    run = ClusterRun(cluster, tmp_path / "app")
    try:
        yield run
    finally:
        run.destroy()


@pytest.fixture(params=["fused", "exchanged"])
def shape(request: pytest.FixtureRequest) -> Shape:
    """Whether records pass through Spark's shuffle."""
    shape: Shape = request.param
    return shape
