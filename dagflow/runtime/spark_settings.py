"""dagflow's settings for Spark, local and on a cluster."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Mapping

from dagflow.errors import DagflowError
from dagflow.runtime.java import archive_options, use_java
from dagflow.runtime.start_checks import require_version
from dagflow.spec.spark_master import MASTER_SETTING, SparkMaster

SETTINGS = {
    # The loopback TCP path between the JVM and its Python workers costs 20 ms a task, the unix socket 1 to 2.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.network.timeout": "30s",
    "spark.network.timeoutInterval": "5s",
    "spark.executor.heartbeatInterval": "2s",
    # A lost executor counts as a failure of each of its tasks; the limit is meant for defects, not for lost machines.
    "spark.task.maxFailures": "16",
    "spark.log.level": "WARN",
    # A Python worker that dies by a segmentation fault leaves its stack, which becomes a part of the error.
    "spark.python.worker.faulthandler.enabled": "true",
}

AUTHENTICATE = "spark.authenticate"
"""Whether processes must know a secret to talk to each other. A standalone cluster has to be given it."""

LOCAL_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Every user of this machine can connect to its ports. With a local master Spark makes up a secret for each run.
    AUTHENTICATE: "true",
}

OUT_OF_MEMORY = ("-XX:+ExitOnOutOfMemoryError", "-XX:-HeapDumpOnOutOfMemoryError")
"""With a full heap Java may run for minutes without an answer: it ends at once, so that the run can report it."""

LOCAL_JAVA = (
    *OUT_OF_MEMORY,
    # The first compiler only, and the serial garbage collector: Java only moves bytes between Python processes and
    # starts tasks, and on two cores the other compilers and collectors cost the tasks more than they gain. Unlike the
    # name of a collector, this option lets a user choose another one.
    "-XX:+NeverActAsServerClassMachine",
    # By default Java starts with a 64th of the machine's memory, and keeps two thirds more than it uses.
    "-Xms64m",
    "-XX:MinHeapFreeRatio=10",
)
"""Options of the Java process that shares a machine with the tasks."""

JAVA_OPTIONS = "spark.driver.defaultJavaOptions"

_PER_NODE = "spark.excludeOnFailure.task.maxTaskAttemptsPerNode"

CLUSTER_SETTINGS = {
    # Pending names are unique to an attempt, so a second attempt is safe; below two seconds it is not worth its cost.
    "spark.speculation": "true",
    "spark.speculation.minTaskRuntime": "2s",
    "spark.speculation.multiplier": "2",
    "spark.speculation.quantile": "0.5",
    # A host with a full disk fails its tasks at once and takes the next ones, until it is excluded for a while.
    "spark.excludeOnFailure.enabled": "true",
    "spark.excludeOnFailure.task.maxTaskAttemptsPerExecutor": "2",
    _PER_NODE: "4",
    "spark.excludeOnFailure.stage.maxFailedTasksPerExecutor": "4",
    "spark.excludeOnFailure.application.maxFailedTasksPerExecutor": "4",
    "spark.excludeOnFailure.timeout": "2m",
    # The number of executors follows the waiting tasks; idle executors go back to the cluster.
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.schedulerBacklogTimeout": "1s",
    "spark.dynamicAllocation.executorIdleTimeout": "30s",
    JAVA_OPTIONS: " ".join(OUT_OF_MEMORY),
    "spark.executor.defaultJavaOptions": " ".join(OUT_OF_MEMORY),
}
"""Settings for many hosts; on a single host they would only be in the way."""


def is_protected(setting: Callable[[str], str | None]) -> bool:
    """Whether only processes that know a secret can talk to Spark's."""
    return setting(AUTHENTICATE) == "true"


def protection(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings that encrypt the traffic between Spark's processes, where they share a secret."""
    encryption = "spark.network.crypto.enabled"
    return {encryption: settings.get(encryption, "true")} if is_protected(settings.get) else {}


_SECRETS = ("spark.authenticate.secret", "spark.authenticate.secret.file", "spark.authenticate.secret.driver.file")


def require_secret(master: str, settings: Mapping[str, str]) -> None:
    """Refuse to connect without its secret to a standalone cluster that requires authentication.

    Other clusters make up a secret for each app.
    """
    if not (master.startswith("spark://") and is_protected(settings.get)):
        return
    if not any(settings.get(name) for name in _SECRETS) and "_SPARK_AUTH_SECRET" not in os.environ:
        raise DagflowError(
            f"{AUTHENTICATE} is set for {master}, and {_SECRETS[0]} is not",
            hint=f"give the secret of the cluster's master and workers: spark: {{{_SECRETS[0]}: ...}} in the app, or "
            "in Spark's conf/spark-defaults.conf",
        )


def settings_for(master: str, conf: Mapping[str, str]) -> dict[str, str]:
    """Spark settings for a master: dagflow's own, and conf, which takes precedence."""
    settings = {**SETTINGS, **(LOCAL_SETTINGS if SparkMaster.parse(master).local_tasks else CLUSTER_SETTINGS), **conf}
    if int(settings["spark.task.maxFailures"]) <= int(settings.get(_PER_NODE, "0")) and _PER_NODE not in conf:
        # Spark starts no job in which one host may use up all attempts of a task.
        settings["spark.excludeOnFailure.enabled"] = conf.get("spark.excludeOnFailure.enabled", "false")
    return settings


def process_settings(app: str, master: str, conf: Mapping[str, str]) -> dict[str, str]:
    """The settings of a Java process for an app; conf takes precedence over dagflow's, except over the master."""
    require_version()
    cores = SparkMaster.parse(master).local_tasks
    settings = settings_for(master, conf)
    if cores:
        # In this form, local mode runs a failed task again, as a cluster does.
        master = f"local[{cores},4]"
    java_home = use_java()
    if cores:
        settings.setdefault(JAVA_OPTIONS, shlex.join([*LOCAL_JAVA, *archive_options(java_home)]))
        if _python(settings) == sys.executable:  # another Python may have no dagflow
            settings.setdefault("spark.python.daemon.module", "dagflow.runtime.daemon")
    settings.setdefault("spark.app.name", f"dagflow {app}")
    return settings | {MASTER_SETTING: master}


def process_variables(settings: Mapping[str, str]) -> dict[str, str]:
    """The environment variables that Spark reads beside its settings.

    They are not set in this process for good: a later run in it may be on a cluster, or use another Python.
    """
    variables = {"PYSPARK_PYTHON": _python(settings)}
    if SparkMaster.parse(settings[MASTER_SETTING]).local_tasks:
        variables["SPARK_LOCAL_IP"] = os.environ.get("SPARK_LOCAL_IP", "127.0.0.1")
    return variables


def _python(settings: Mapping[str, str]) -> str:
    # PySpark reads the setting in spark-submit only. Without it, workers would run whatever python3 is first on PATH.
    return settings.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON", sys.executable)
