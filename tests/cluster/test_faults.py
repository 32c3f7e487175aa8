"""A real cluster that loses hosts, disks and its master while windows run."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable

import pytest

from tests.cluster.hosts import Cluster
from tests.cluster.runs import ClusterRun, Shape

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.e2e]

STUCK = """\
import time
from pathlib import Path

from dagflow import InputPort, Operator, OutputPort

FOLDER = Path("{folder}")


class Slow(Operator):
    \"\"\"In the first window, the first partition's first attempt waits for a second one to be through.\"\"\"

    input = InputPort()
    output = OutputPort()

    def setup(self, context):
        self.is_first = context.partition == 0
        self.role = ""

    def begin_window(self, window_id):
        if window_id == 1 and self.is_first:
            try:
                (FOLDER / "stuck").touch(exist_ok=False)
                self.role = "first"
            except FileExistsError:
                self.role = "second"

    @input.batch
    def delay(self, batch):
        while self.role == "first" and not (FOLDER / "second").exists():
            time.sleep(0.05)
        self.output.emit(batch)

    def end_window(self):
        if self.role == "second":
            (FOLDER / "second").touch()
"""


def kill_executor(run: ClusterRun) -> None:
    """An executor's JVM dies."""
    run.wait_for(lambda: run.cluster.kill("CoarseGrainedExecutorBackend") > 0, "there is an executor")


def kill_python(run: ClusterRun) -> None:
    """All Python processes of a host die."""
    run.wait_for(lambda: run.cluster.kill(r"pyspark[./]daemon") > 0, "there is a Python worker")


def kill_worker(run: ClusterRun) -> None:
    """A whole host dies, and comes back later."""
    name = run.cluster.busy_host()
    run.cluster.hosts[name].destroy()
    run.wait_for_more(1)
    run.cluster.start_worker(name)


def restart_master(run: ClusterRun) -> None:
    """The master dies, and another one takes its place a little later."""
    run.cluster.hosts["master"].destroy()
    run.wait_for_more(1)
    run.cluster.start_master()


def cut_host(run: ClusterRun) -> None:
    """A host loses the network while its tasks continue, and comes back."""
    name = run.cluster.busy_host()
    run.cluster.cut(name)
    try:
        run.wait_for_more(4)
    finally:
        run.cluster.heal(name)


def stop_host(run: ClusterRun) -> None:
    """An executor is stopped until Spark gives it up, and then continues."""
    host = run.cluster.hosts[run.cluster.busy_host()]
    pids = list(host.members())
    host.signal(pids, signal.SIGSTOP)
    try:
        run.wait_for_more(4)
    finally:
        host.signal(pids, signal.SIGCONT)


Fault = Callable[[ClusterRun], None]
LOCAL_FAULTS: list[Fault] = [kill_executor, kill_python, kill_worker, restart_master]
NETWORK_FAULTS: list[Fault] = [cut_host, stop_host]


@pytest.mark.nightly
def test_a_run_survives_dying_executors_and_hosts_and_a_new_master(cluster_run: ClusterRun) -> None:
    """With one fault after the other in one run, the output equals that of grep."""
    cluster_run.write("exchanged", files=60)
    cluster_run.start()
    for fault in LOCAL_FAULTS:
        cluster_run.wait_for_more(1)
        fault(cluster_run)
    cluster_run.finish()


@pytest.mark.usefixtures("networked")
@pytest.mark.nightly
def test_a_run_survives_a_host_without_network_and_a_stopped_executor(cluster_run: ClusterRun) -> None:
    """Tasks of a host without network continue to write; their files are never published."""
    cluster_run.write("fused", files=60)
    cluster_run.start()
    for fault in NETWORK_FAULTS:
        cluster_run.wait_for_more(1)
        fault(cluster_run)
    cluster_run.finish()


@pytest.mark.nightly
def test_a_run_survives_a_full_shuffle_disk_of_a_host(networked: Cluster, cluster_run: ClusterRun) -> None:
    """Other hosts do its work, or the next run does."""
    local = networked.hosts["two"].folder / "local"
    cluster_run.write("exchanged", files=140)
    with networked.hosts["two"].own_disk(local, "size=16m"):
        cluster_run.start()
        cluster_run.wait_for(lambda: bool(networked.hosts["two"].executors()), "the host with the small disk has work")
        cluster_run.wait_for_more(4)
        filler = networked.hosts["two"].seen(local) / "filler"
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as disk:
            while True:
                disk.write(bytes(1 << 12))
        cluster_run.finish()
    assert "No space left on device" in cluster_run.spark_log


@pytest.mark.nightly
def test_a_host_that_is_ten_times_slower_changes_no_output(
    networked: Cluster, cluster_run: ClusterRun, shape: Shape
) -> None:
    """Spark may run its tasks a second time elsewhere; the output equals that of grep."""
    cluster_run.write(shape, files=140)
    cluster_run.start()
    cluster_run.wait_for_more(1)
    with networked.hosts["one"].slowed(10):
        assert cluster_run.finish() == 0


@pytest.mark.nightly
def test_a_hanging_task_runs_a_second_time_and_is_published_once(cluster_run: ClusterRun) -> None:
    """The first attempt waits until the second one has written, and then writes too."""
    cluster_run.write("fused", files=12, blocks=16)
    (cluster_run.folder / "slow_ops.py").write_text(STUCK.format(folder=str(cluster_run.folder)))
    cluster_run.start()
    assert cluster_run.finish() == 0
    assert (cluster_run.folder / "stuck").exists()
    assert (cluster_run.folder / "second").exists()


@pytest.mark.nightly
@pytest.mark.usefixtures("networked")
@pytest.mark.parametrize("fault", LOCAL_FAULTS + NETWORK_FAULTS)
def test_a_run_completes_after_a_fault_of_each_kind_again_and_again(
    cluster_run: ClusterRun, shape: Shape, fault: Fault
) -> None:
    """The same fault strikes three times in one run."""
    cluster_run.write(shape, files=160)
    cluster_run.start()
    for _ in range(3):
        cluster_run.wait_for_more(1)
        fault(cluster_run)
    cluster_run.finish()
