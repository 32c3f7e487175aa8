"""Settings that suit dagflow, for a local Spark and for a cluster."""

from __future__ import annotations

from collections.abc import Mapping

from dagflow.spec.spark_master import SparkMaster

SETTINGS = {
    # The loopback TCP path between the JVM and its Python workers costs 20 ms a task, the unix socket 1 to 2.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.network.timeout": "30s",
    "spark.network.timeoutInterval": "5s",
    "spark.executor.heartbeatInterval": "2s",
    # A lost executor counts as a failure of each of its tasks; the limit is there for defects, not for machines.
    "spark.task.maxFailures": "16",
    "spark.log.level": "WARN",
}

LOCAL_SETTINGS = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}

LOCAL_JAVA = (
    # As Java was on clients: the first compiler only, and no collector beside the program. Java moves bytes between
    # Python processes and deals out tasks: on two cores the others take more from the tasks than they give back.
    # Unlike a collector's own name, this gives way to a person who names another one.
    "-XX:+NeverActAsServerClassMachine",
    # By itself it begins with a 64th of the machine's memory, and keeps two thirds more than it holds.
    "-Xms64m",
    "-XX:MinHeapFreeRatio=10",
)
"""Options of the Java process where it shares a machine with the tasks."""

JAVA_OPTIONS = "spark.driver.defaultJavaOptions"

_PER_NODE = "spark.excludeOnFailure.task.maxTaskAttemptsPerNode"

CLUSTER_SETTINGS = {
    # Pending names are unique to an attempt, so a second one is safe; below two seconds it is not worth its start.
    "spark.speculation": "true",
    "spark.speculation.minTaskRuntime": "2s",
    "spark.speculation.multiplier": "2",
    "spark.speculation.quantile": "0.5",
    # A host with a full disk fails its tasks at once and takes the next ones, until it is left out for a while.
    "spark.excludeOnFailure.enabled": "true",
    "spark.excludeOnFailure.task.maxTaskAttemptsPerExecutor": "2",
    _PER_NODE: "4",
    "spark.excludeOnFailure.stage.maxFailedTasksPerExecutor": "4",
    "spark.excludeOnFailure.application.maxFailedTasksPerExecutor": "4",
    "spark.excludeOnFailure.timeout": "2m",
    # Executors follow the tasks that wait, and go back to the cluster when there are none.
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.schedulerBacklogTimeout": "1s",
    "spark.dynamicAllocation.executorIdleTimeout": "30s",
}
"""What suits many hosts, and would only be in the way on one."""


def settings_for(master: str, conf: Mapping[str, str]) -> dict[str, str]:
    """Spark's settings for a master: those that suit dagflow, unless conf says otherwise."""
    settings = {**SETTINGS, **(LOCAL_SETTINGS if SparkMaster.parse(master).local_tasks else CLUSTER_SETTINGS), **conf}
    if int(settings["spark.task.maxFailures"]) <= int(settings.get(_PER_NODE, "0")) and _PER_NODE not in conf:
        # Spark does not start a job in which one host may use up all attempts of a task.
        settings["spark.excludeOnFailure.enabled"] = conf.get("spark.excludeOnFailure.enabled", "false")
    return settings
