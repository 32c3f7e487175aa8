"""The URL of a Spark master means the same to every part of dagflow."""

from __future__ import annotations

import os

import pytest

from dagflow.spec.spark_master import SparkMaster, is_master

CORES = os.cpu_count() or 1


@pytest.mark.parametrize(
    ("url", "local_tasks", "parallelism"),
    [
        ("local", 1, 1),
        ("local[*]", CORES, CORES),
        ("local[ * ]", None, None),
        ("local[3]", 3, 3),
        ("local[3, 4]", 3, 3),
        ("local[*,4]", CORES, CORES),
        ("local[0]", None, None),
        *(
            (url, None, None)
            for url in ("local[x]", "local[*", "local[4", "local4", "local[²]", "local[-1]", "local[1000000]")
        ),
        ("local-cluster[2,3,512]", None, 6),
        ("local-cluster[2,3]", None, None),
        ("spark://host:7077", None, CORES),
        ("yarn", None, CORES),
    ],
)
def test_a_master_says_how_many_tasks_run_at_once(url: str, local_tasks: int | None, parallelism: int | None) -> None:
    """As Spark reads it; what looks local and is not known to Spark is refused."""
    assert is_master(url) is (parallelism is not None)
    if parallelism is None:
        with pytest.raises(ValueError, match="expected a Spark master, such as"):
            SparkMaster.parse(url)
        return
    master = SparkMaster.parse(url)
    assert (master.local_tasks, master.parallelism) == (local_tasks, parallelism)
