"""Starts processes that a run needs before the rest of dagflow is imported: Spark's Java, or the server of tasks.

Importing this module takes little time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from dagflow.errors import DagflowError
from dagflow.runtime.spark_process import SparkProcess
from dagflow.runtime.spark_settings import process_settings
from dagflow.runtime.task_server import TaskServer
from dagflow.spec.head_reader import read_head
from dagflow.spec.spark_master import is_master


@dataclass(frozen=True, slots=True)
class PrestartedProcesses:
    """The processes that were started for a run.

    Attributes:
        server: The process that forks those of tasks, for a run without Spark.
    """

    server: TaskServer | None = None
    java: SparkProcess | None = None


@contextlib.contextmanager
def prestarted(
    app: str,
    workers: int | None,
    master: str | None,
    conf: Mapping[str, str],
    checkpoint: str | None,
    *,
    is_fresh: bool,
) -> Iterator[PrestartedProcesses]:
    """Start what a run needs if it is likely to find work; the run reports the error of what did not start."""
    with contextlib.ExitStack() as stack:
        started = PrestartedProcesses()
        head = read_head(app) if workers is None or workers > 1 else None
        # Where the app was run before, there may be nothing new.
        if head is not None and (is_fresh or not Path(checkpoint or head.checkpoint).exists()):
            with contextlib.suppress(OSError, DagflowError):
                if workers is not None:
                    started = PrestartedProcesses(server=stack.enter_context(contextlib.closing(TaskServer())))
                elif is_master(master or head.master):
                    settings = process_settings(head.name, master or head.master, {**head.spark, **conf})
                    java = SparkProcess(settings, has_log=True)
                    stack.callback(java.end)
                    started = PrestartedProcesses(java=java)
        yield started
