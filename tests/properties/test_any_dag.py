"""Any DAG publishes the expected records, wherever it runs and whenever it dies."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagflow.engine.run import run
from dagflow.errors import DagflowError
from dagflow.runtime.local import InlineRuntime
from dagflow.spec.app_spec import KeyedPartition
from tests.engine.dags import RandomDag
from tests.engine.test_driver import crashing
from tests.nightly import examples
from tests.strategies import running_dags


def published_inline(dag: RandomDag, root: Path) -> dict[str, dict[str, bytes]]:
    """Run in this process; return what was published."""
    run(dag.build(root), runtime=InlineRuntime)
    return dag.published(root)


def lines_of(files: dict[str, bytes]) -> list[bytes]:
    """Return the lines of all files, sorted."""
    return sorted(line for content in files.values() for line in content.splitlines())


@settings(max_examples=examples(80))
@given(running_dags())
def test_every_writer_publishes_the_expected_records(dag: RandomDag) -> None:
    """Unions, fan-out and exchanges neither lose nor repeat records; a key has one partition."""
    with tempfile.TemporaryDirectory() as folder:
        published = published_inline(dag, Path(folder))
    assert {name: lines_of(files) for name, files in published.items()} == dag.expected()
    for index, step in enumerate(dag.steps):
        if step.kind != "write" or not isinstance(step.partition, KeyedPartition) or step.broadcast:
            continue
        homes: dict[bytes, set[str]] = {}
        for name, content in published[f"step{index}"].items():
            for line in content.splitlines():
                homes.setdefault(line[:1], set()).add(name.split("-")[2])
        assert all(len(partitions) == 1 for partitions in homes.values())


@settings(max_examples=examples(30))
@given(running_dags(), st.integers(1, 4))
def test_a_run_that_died_publishes_the_very_same_files(dag: RandomDag, window: int) -> None:
    """Names and bytes do not depend on whether, and in which window, the driver died."""
    with tempfile.TemporaryDirectory() as folder:
        whole = published_inline(dag, Path(folder) / "whole")
        torn = Path(folder) / "torn"
        try:
            run(dag.build(torn), runtime=crashing(window))
        except DagflowError as error:
            assert "the lights went out" in str(error)
        assert published_inline(dag, torn) == whole


@pytest.mark.nightly
@pytest.mark.spark
@settings(max_examples=examples(8))
@given(running_dags())
def test_spark_publishes_the_very_same_files(spark_context: Any, dag: RandomDag) -> None:
    """Names and bytes do not depend on whether windows run in this process or on Spark."""
    from dagflow.runtime.spark import SparkRuntime

    with tempfile.TemporaryDirectory() as folder:
        inline = published_inline(dag, Path(folder) / "inline")
        root = Path(folder) / "spark"
        run(dag.build(root), runtime=lambda program: SparkRuntime(program, spark_context))
        assert dag.published(root) == inline
