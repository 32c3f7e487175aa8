"""Checks of a cluster before the first window runs."""

from __future__ import annotations

import contextlib
import shutil
import sys
from pathlib import Path

import pytest

from tests.cluster.hosts import WORKERS, Cluster, bare_python, pretend_version
from tests.cluster.runs import ClusterRun

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.e2e]


def refusal(run: ClusterRun, **env: str) -> str:
    """Return the error of a run that is refused."""
    run.start(**env)
    assert run.end() == 1
    assert not (run.folder / "out").exists() or run.visible == 0
    assert run.summary()["windows"] == 0
    return run.log


@pytest.mark.nightly
def test_executors_without_a_package_are_refused(cluster_run: ClusterRun, tmp_path: Path) -> None:
    """The error names the missing package and what to do."""
    cluster_run.write("fused", files=4)
    log = refusal(cluster_run, PYSPARK_PYTHON=bare_python(tmp_path / "barer", without=["pyarrow"]))
    assert "cannot import pyarrow" in log
    assert "spark.archives" in log


@pytest.mark.nightly
def test_executors_without_python_are_refused(cluster_run: ClusterRun) -> None:
    """Once Python is there, the same checkpoint completes."""
    cluster_run.write("fused", files=4)
    log = refusal(cluster_run, PYSPARK_PYTHON="/no/such/python")
    assert "the executors have no Python at /no/such/python" in log
    cluster_run.start()
    assert cluster_run.end() == 0
    cluster_run.require_whole()


@pytest.mark.usefixtures("networked")
@pytest.mark.nightly
def test_output_that_hosts_do_not_share_is_refused(cluster: Cluster, cluster_run: ClusterRun) -> None:
    """A directory with the same name on each host is not taken for a shared one."""
    cluster_run.write("fused", files=4)
    out = cluster_run.folder / "out"
    out.mkdir()
    with cluster.hosts["two"].own_disk(out, "size=8m"):
        log = refusal(cluster_run)
    assert f"a file that it writes to {out} is not seen on the driver's host" in log
    assert list(out.iterdir()) == []


@pytest.mark.nightly
def test_executors_of_another_python_are_refused(cluster_run: ClusterRun, tmp_path: Path) -> None:
    """The error names both versions."""
    cluster_run.write("fused", files=4)
    python = bare_python(tmp_path / "other")
    pretend_version(tmp_path / "other", minor=4)
    log = refusal(cluster_run, PYSPARK_PYTHON=python)
    assert f"the executors run Python 3.4, the driver runs Python 3.{sys.version_info.minor}" in log


@pytest.mark.nightly
@pytest.mark.usefixtures("networked")
def test_input_that_hosts_do_not_share_is_refused(cluster: Cluster, cluster_run: ClusterRun) -> None:
    """A directory of the same name without the files is not taken for the input."""
    cluster_run.write("fused", files=4)
    with cluster.hosts["two"].own_disk(cluster_run.folder / "in", "size=8m"):
        log = refusal(cluster_run)
    assert "is not there, though it is on the driver's host" in log


@pytest.mark.nightly
@pytest.mark.usefixtures("networked")
def test_input_with_other_inode_numbers_is_refused(cluster: Cluster, cluster_run: ClusterRun) -> None:
    """Hosts with copies of the input, of the same sizes and times, would leave out all of it; nothing is published."""
    cluster_run.write("fused", files=4)
    folder = cluster_run.folder / "in"
    with contextlib.ExitStack() as disks:
        for name in WORKERS:
            disks.enter_context(cluster.hosts[name].own_disk(folder, "size=8m"))
            for path in folder.iterdir():
                shutil.copy2(path, cluster.hosts[name].seen(path))
        log = refusal(cluster_run)
    assert "a task could not find this version" in log
    assert "and, on a shared file system, with the same inode numbers" in log
    cluster_run.start()
    assert cluster_run.finish() == 0


@pytest.mark.nightly
def test_a_run_that_waits_for_executors_ends_when_it_is_asked_to(cluster: Cluster, cluster_run: ClusterRun) -> None:
    """No worker has as much memory as it wants; started again with less, it publishes everything."""
    cluster_run.write("fused", files=4)
    cluster_run.start("--conf=spark.executor.memory=4000g", "--conf=spark.starvation.timeout=1s")
    cluster_run.wait_for(lambda: "has not accepted any resources" in cluster_run.spark_log, "Spark waits for executors")
    cluster_run.ask_to_stop()
    assert cluster_run.end(within_s=20) == 130
    assert cluster_run.summary()["state"] == "stopped"
    assert "Traceback" not in cluster_run.log
    cluster_run.start()
    assert cluster_run.finish() == 0


SECRETS: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "it asks for a secret, and this run has none": ({"secret": "right"}, {}),
    "it has another secret than this run": ({"secret": "right"}, {"secret": "wrong"}),
    "this run asks for a secret, and it has none": ({}, {"secret": "right"}),
}
"""What a master and a run have, by what the run is told."""


def secret_settings(known: dict[str, str]) -> dict[str, str]:
    """Return Spark's settings for a secret."""
    return {f"spark.authenticate.{name}": value for name, value in known.items()} | (
        {"spark.authenticate": "true"} if known else {}
    )


@pytest.mark.nightly
@pytest.mark.parametrize("why", SECRETS)
def test_a_secret_that_is_not_that_of_the_master_is_named(cluster: Cluster, cluster_run: ClusterRun, why: str) -> None:
    """Spark gives up after a minute; the run says why, and with the master's secret it goes on."""
    cluster_run.write("fused", files=4)
    masters, runs = (secret_settings(known) for known in SECRETS[why])
    url = cluster.start_other_master(**masters)
    cluster_run.start(f"--master={url}", *(f"--conf={name}={value}" for name, value in runs.items()))
    assert cluster_run.end() == 1
    assert f"Spark got no connection to the master {url}: {why}\n    give " in cluster_run.log
    assert "Traceback" not in cluster_run.log
    cluster_run.start()
    assert cluster_run.finish() == 0
