"""A cluster that grows during a run."""

from __future__ import annotations

import os

import pytest

from dagflow.engine.scaling import IN_PARALLEL
from dagflow.report.reading import status
from dagflow.report.snapshot import RunSnapshot
from dagflow.storage.context import StorageContext
from tests.cluster.hosts import WORKERS
from tests.cluster.runs import ClusterRun

pytestmark = [pytest.mark.spark, pytest.mark.e2e, pytest.mark.nightly]


def test_a_stage_without_a_partitioner_grows_with_the_executors(cluster_run: ClusterRun) -> None:
    """It starts without knowing the cluster, and has a partition for each core in the end."""
    cores = os.cpu_count() or 1
    most = max(cores, 4)

    def known() -> RunSnapshot:
        return status(str(cluster_run.folder / "journal"), StorageContext.default())

    def has_grown() -> bool:
        partitions = known().partitions.get("writer")
        return partitions is not None and partitions.last == most

    # So slow that executors start sooner than it ends; it hurries as soon as it has grown.
    cluster_run.write("exchanged", files=40, delay_s=0.4)
    cluster_run.start("--conf=spark.executor.cores=1", "--conf=spark.dynamicAllocation.maxExecutors=4")
    hosts = [cluster_run.cluster.hosts[name] for name in WORKERS]
    cluster_run.wait_for(lambda: sum(len(host.executors()) for host in hosts) == 4, "four executors are there")
    cluster_run.wait_for(has_grown, "there is a partition for each core")
    assert cluster_run.finish() == 0
    start, *changes = (decision for decision in known().decisions if decision.stage == "writer")
    assert (start.window, start.before, start.after) == (1, 0, cores)
    counts = [start.after, *(change.after for change in changes)]
    assert counts == sorted(counts)
    assert has_grown()
    assert {change.reason for change in changes} <= {IN_PARALLEL}
