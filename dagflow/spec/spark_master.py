"""The URL of a Spark master, read once and the same everywhere."""

from __future__ import annotations

import os
import re
from typing import Self

from dagflow.frozen import frozen

MASTERS = "a Spark master, such as local[4], local[*] or spark://host:7077"

MASTER_SETTING = "spark.master"
"""Spark's own setting of the master. It is refused among Spark's settings, because the master is chosen before them."""

_TASKS = r"(\*|0*[1-9][0-9]{0,4})"
_LOCAL = re.compile(rf"local(?:\[{_TASKS}(?:,\s*[0-9]{{1,9}})?\])?", re.ASCII)
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*([0-9]{1,5})\s*,\s*([0-9]{1,5})\s*,\s*[0-9]{1,9}\s*\]", re.ASCII)


@frozen
class SparkMaster:
    """A Spark master.

    Attributes:
        local_tasks: How many tasks run at the same time in this process's machine; None for a cluster.
        known_tasks: How many tasks run at the same time, as far as the URL shows.
    """

    url: str
    local_tasks: int | None
    known_tasks: int | None

    @classmethod
    def parse(cls, url: str) -> Self:
        """Read a master's URL; Spark decides about those that are not local.

        Raises:
            ValueError: The URL begins like a local master, and Spark knows no such master.
        """
        if local := _LOCAL.fullmatch(url):
            # Spark's `local` runs one task at a time.
            tasks = (os.cpu_count() or 1) if local[1] == "*" else int(local[1] or 1)
            return cls(url, tasks, tasks)
        if cluster := _LOCAL_CLUSTER.fullmatch(url):
            return cls(url, None, int(cluster[1]) * int(cluster[2]))
        if url.startswith("local"):
            raise ValueError(f"expected {MASTERS}, got {url!r}")
        return cls(url, None, None)

    @property
    def parallelism(self) -> int:
        """Tasks at the same time before Spark has started; for a cluster of unknown size this machine's cores."""
        return self.known_tasks or os.cpu_count() or 1


def usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def is_master(url: str) -> bool:
    try:
        SparkMaster.parse(url)
    except ValueError:
        return False
    return True
