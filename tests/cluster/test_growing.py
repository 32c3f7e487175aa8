"""A cluster that grows during a run."""

from __future__ import annotations

import os

import pytest

from dagflow.engine.scaling import IN_PARALLEL
from dagflow.report.status import status
from dagflow.storage.context import StorageContext
from tests.cluster.hosts import WORKERS
from tests.cluster.runs import ClusterRun

pytestmark = [pytest.mark.spark, pytest.mark.e2e]


def test_a_stage_without_a_partitioner_grows_with_the_executors(cluster_run: ClusterRun) -> None:
    """It starts without knowing the cluster, and has a partition for each core in the end."""
    cluster_run.write("exchanged", files=60, delay_s=0.1)
    cluster_run.start("--conf=spark.executor.cores=1", "--conf=spark.dynamicAllocation.maxExecutors=4")
    hosts = [cluster_run.cluster.hosts[name] for name in WORKERS]
    cluster_run.wait_for(lambda: sum(len(host.executors()) for host in hosts) == 4, "four executors are there")
    assert cluster_run.end() == 0
    cluster_run.require_whole()
    known = status(str(cluster_run.folder / "journal"), StorageContext.default())
    start, *changes = (decision for decision in known.decisions if decision.stage == "writer")
    cores = os.cpu_count() or 1
    assert (start.window, start.before, start.after) == (1, 0, cores)
    counts = [start.after, *(change.after for change in changes)]
    assert counts == sorted(counts)
    assert known.partitions["writer"].last == max(cores, 4)
    assert {change.reason for change in changes} <= {IN_PARALLEL}
