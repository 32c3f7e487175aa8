"""Real processes of runs without Spark that are killed at random moments."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.crash.killing import (
    LOCALLY,
    STATEFUL_APP,
    KillCounts,
    RunProcess,
    Target,
    kill_until_done,
    make_folder,
    oracle,
    published_records,
    require_whole,
    visible_files,
    watched,
)
from tests.crash.kinds import COUNTS_APP, KINDS
from tests.nightly import IS_NIGHTLY

pytestmark = [pytest.mark.crash, pytest.mark.e2e]

ROUND: list[Target] = ["worker", "driver", "worker", "daemon", "driver"]


def test_killed_local_runs_publish_every_record_once(tmp_path: Path) -> None:
    """The driver and the processes of tasks die at any moment; the output equals that of grep."""
    make_folder(tmp_path, files=60 if IS_NIGHTLY else 36)
    targets = ROUND * 2 if IS_NIGHTLY else ROUND[1:4]
    counts = KillCounts()
    with watched(tmp_path):
        kill_until_done(tmp_path, 3, targets, counts, options=lambda _: LOCALLY)
    require_whole(tmp_path)
    log = (tmp_path / "run.log").read_text()
    assert "Traceback" not in log, log
    assert counts.total >= len(targets) - 2, counts
    assert counts.middle >= len(targets) // 2 - 1, counts


@pytest.mark.nightly
def test_counts_over_times_survive_kills(tmp_path: Path) -> None:
    """What windows hold back dies with nothing: results over 0.7 s, and one over the run, count each line once."""
    (kind,) = (kind for kind in KINDS if kind.name == "counts")
    make_folder(tmp_path, files=160, app=COUNTS_APP)
    counts = KillCounts()
    with watched(tmp_path):
        kill_until_done(tmp_path, 4, ["driver", "worker", "daemon", "driver"], counts, options=lambda _: LOCALLY)
    kind.require_whole(tmp_path)
    assert counts.total >= 3, counts


@pytest.mark.nightly
def test_state_survives_kills_and_other_numbers_of_partitions(tmp_path: Path) -> None:
    """With another number of partitions at each start, unique lines equal sort -u, and counts equal uniq."""
    make_folder(tmp_path, files=16)

    def repartition(starts: int) -> None:
        (tmp_path / "app.yaml").write_text(STATEFUL_APP.replace("PARTITIONS", str(1 + starts % 3)))

    counts = KillCounts()
    with watched(tmp_path):
        kill_until_done(tmp_path, 2, ["worker", "driver", "daemon", "driver"], counts, repartition, lambda _: LOCALLY)
    lines = Counter(oracle(tmp_path))
    assert published_records(tmp_path) == sorted(lines)
    emitted = [record for path in (tmp_path / "counts").glob("[!.]*") for record in path.read_bytes().split(b"\n")[:-1]]
    assert len(emitted) == len(set(emitted)), "a count was emitted twice"
    newest: Counter[bytes] = Counter()
    for record in emitted:
        key, _, count = record.rpartition(b"\t")
        newest[key] = max(newest[key], int(count))
    assert newest == lines
    (totals,) = (tmp_path / "totals").glob("[!.]*")
    rows = [json.loads(row) for row in totals.read_bytes().splitlines()]
    assert {row["record"].encode(): row["count"] for row in rows} == lines
    assert counts.starts >= 3, counts
    assert not re.search("Traceback", (tmp_path / "run.log").read_text())


@pytest.mark.nightly
@pytest.mark.spark
def test_local_runs_and_spark_continue_each_other(tmp_path: Path) -> None:
    """A run of either kind that is killed in the middle is continued by one of the other kind."""
    make_folder(tmp_path, files=40)
    for options in (["--local"], [], ["--local"]):
        before = visible_files(tmp_path)
        run = RunProcess(tmp_path, "-q", *options)
        try:
            if run.wait_for(lambda: visible_files(tmp_path) > before + 4):  # noqa: B023  # called within the loop
                run.kill("driver", random.Random(1))
            run.end()
        finally:
            run.destroy()
    last = RunProcess(tmp_path, "--local")
    assert last.end() == 0
    require_whole(tmp_path)
