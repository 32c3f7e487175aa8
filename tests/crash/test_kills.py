"""Real processes that are killed at random moments."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.crash.killing import (
    STATEFUL_APP,
    KillCounts,
    Target,
    kill_until_done,
    make_folder,
    oracle,
    published_records,
    require_whole,
    watched,
)
from tests.crash.kinds import COUNTS_APP, KINDS

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.e2e]

# Each death of a driver or a JVM costs a start of Spark; that of a Python worker costs almost nothing.
ROUND: list[Target] = ["worker", "driver", "worker", "worker", "daemon", "worker", "jvm", "worker"]


def test_killed_again_and_again_a_run_publishes_every_record_once(tmp_path: Path) -> None:
    """Driver, JVM and Python workers die at any moment; the output equals that of grep, nothing pending is left.

    Hundreds of further kills, of this and other apps: tests/crash/long.py.
    """
    make_folder(tmp_path, files=40)
    counts = KillCounts()
    with watched(tmp_path):
        kill_until_done(tmp_path, 1, ROUND, counts)
    require_whole(tmp_path)
    log = (tmp_path / "run.log").read_text()
    assert "Traceback" not in log, log
    assert counts.total >= 6, counts
    assert counts.middle >= 4, counts


def test_counts_over_times_survive_kills(tmp_path: Path) -> None:
    """What windows hold back dies with nothing: results over 0.7 s, and one over the run, count each line once."""
    (kind,) = (kind for kind in KINDS if kind.name == "counts")
    make_folder(tmp_path, files=160, app=COUNTS_APP)
    counts = KillCounts()
    with watched(tmp_path):
        kill_until_done(tmp_path, 4, ["driver", "worker", "jvm", "driver"], counts)
    kind.require_whole(tmp_path)
    assert counts.total >= 3, counts


def test_state_survives_kills_and_other_numbers_of_partitions(tmp_path: Path) -> None:
    """With another number of partitions at each start, unique lines equal sort -u, and counts equal uniq."""
    make_folder(tmp_path, files=16)

    def repartition(starts: int) -> None:
        (tmp_path / "app.yaml").write_text(STATEFUL_APP.replace("PARTITIONS", str(1 + starts % 3)))

    counts = KillCounts()
    with watched(tmp_path):
        kill_until_done(tmp_path, 2, ["worker", "driver", "daemon", "jvm"], counts, repartition)
    lines = Counter(oracle(tmp_path))
    assert published_records(tmp_path) == sorted(lines)
    told = [record for path in (tmp_path / "counts").glob("[!.]*") for record in path.read_bytes().split(b"\n")[:-1]]
    assert len(told) == len(set(told)), "a count was told twice"
    newest: Counter[bytes] = Counter()
    for record in told:
        key, _, count = record.rpartition(b"\t")
        newest[key] = max(newest[key], int(count))
    assert newest == lines
    (totals,) = (tmp_path / "totals").glob("[!.]*")
    rows = [json.loads(row) for row in totals.read_bytes().splitlines()]
    assert {row["record"].encode(): row["count"] for row in rows} == lines
    assert counts.starts >= 3, counts
    assert not re.search("Traceback", (tmp_path / "run.log").read_text())
