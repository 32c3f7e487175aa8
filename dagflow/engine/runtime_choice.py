"""Where a run takes place that leaves it open: on this machine without Spark, or on Spark.

With `runtime: auto` an app allows both. A run to completion of an app without exchanges, whose input is small, takes
place on this machine: Spark would take longer to start than the tasks to work. A command that names a master or
settings of Spark has decided, and so has a process that has a Spark session.
"""

from __future__ import annotations

from collections.abc import Iterable

from dagflow.plan.physical import PhysicalPlan
from dagflow.spec.app_spec import Attributes

SMALL_BYTES = 256 << 20
"""The largest input that is small: one that a core reads in about as many seconds as Spark takes to start."""


def allows_here(plan: PhysicalPlan, attributes: Attributes, *decided: object) -> bool:
    """Whether a run of an app may take place on this machine if its input is small.

    Args:
        decided: What a command, or its process, has said of the place of the run, if anything.
    """
    return attributes.runtime == "auto" and not any(decided) and len(plan.levels) == 1


def is_small(input_bytes: Iterable[int]) -> bool:
    """Whether all of an input is small, by the bytes of its parts."""
    return sum(input_bytes) <= SMALL_BYTES
