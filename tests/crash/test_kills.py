"""Real processes that are killed at random moments, and what is published all the same."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.crash.killing import (
    STATEFUL_APP,
    Tale,
    Target,
    kill_until_done,
    make_folder,
    oracle,
    published_records,
    require_whole,
    watched,
)

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.e2e]

# Each death of a driver or a JVM costs a start of Spark; those of Python workers cost next to nothing.
ROUND: list[Target] = ["worker", "driver", "worker", "worker", "daemon", "worker", "jvm", "worker"]


def test_killed_again_and_again_a_run_publishes_every_record_once(tmp_path: Path) -> None:
    """Driver, JVM and Python workers die at any moment; grep agrees with the output, and nothing is left behind."""
    make_folder(tmp_path, files=120)
    tale = Tale()
    with watched(tmp_path):
        kill_until_done(tmp_path, 1, ROUND * 3, tale)
    require_whole(tmp_path)
    log = (tmp_path / "run.log").read_text()
    assert "Traceback" not in log, log
    assert tale.total >= 18, tale
    assert tale.middle >= 12, tale


def test_state_survives_kills_and_other_numbers_of_partitions(tmp_path: Path) -> None:
    """Each start has another number of partitions; the unique lines are those of sort -u, the counts those of uniq."""
    make_folder(tmp_path, files=16)

    def repartition(starts: int) -> None:
        (tmp_path / "app.yaml").write_text(STATEFUL_APP.replace("PARTITIONS", str(1 + starts % 3)))

    tale = Tale()
    with watched(tmp_path):
        kill_until_done(tmp_path, 2, ["worker", "driver", "worker", "jvm", "daemon", "driver"], tale, repartition)
    lines = Counter(oracle(tmp_path))
    assert published_records(tmp_path) == sorted(lines)
    told = [record for path in (tmp_path / "counts").glob("[!.]*") for record in path.read_bytes().split(b"\n")[:-1]]
    assert len(told) == len(set(told)), "a count was told twice"
    newest: Counter[bytes] = Counter()
    for record in told:
        key, _, count = record.rpartition(b"\t")
        newest[key] = max(newest[key], int(count))
    assert newest == lines
    assert tale.starts >= 3, tale
    assert not re.search("Traceback", (tmp_path / "run.log").read_text())
