"""The stream `dagflow` in Spark: each record once in Spark's file sink, whatever dies."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.strangers.fuzzing import seeds

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

QUERY = """
import json, sys
from pyspark.sql import SparkSession
root, options = sys.argv[1], json.loads(sys.argv[2])
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
import dagflow.spark
dagflow.spark.register(spark)
source = spark.readStream.format("dagflow").options(record="lines", checkpoint=root + "/checkpoint", **options)
frame = source.schema("record string, _file string").load(root + "/in")
writer = frame.writeStream.format("parquet").option("checkpointLocation", root + "/checkpoint")
writer.trigger(availableNow=True).start(root + "/out").awaitTermination()
print(json.dumps(sorted(row[0] for row in spark.read.parquet(root + "/out").collect())))
"""


def started(root: Path, **options: str) -> subprocess.Popen[str]:
    """A process that runs the query until it has read what is there."""
    command = [sys.executable, "-c", QUERY, str(root), json.dumps(options)]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment, start_new_session=True
    )


def finished(root: Path, **options: str) -> list[str]:
    """The records in the sink after a run to its end."""
    process = started(root, **options)
    records: list[str] = json.loads(process.communicate(timeout=600)[0].splitlines()[-1])
    assert process.returncode == 0
    return records


def test_what_sparks_own_source_does_not_see_is_read_once(tmp_path: Path) -> None:
    """A file with an old time, a recreated one, an overwritten one, and what was appended; nothing twice."""
    (tmp_path / "in").mkdir()
    for name in ("appended", "overwritten", "recreated"):
        (tmp_path / "in" / name).write_bytes(b"%s 1\n" % name.encode())
    first = ["appended 1", "overwritten 1", "recreated 1"]
    assert finished(tmp_path) == first
    with (tmp_path / "in" / "appended").open("ab") as file:
        file.write(b"appended 2\n")
    (tmp_path / "in" / "overwritten").write_bytes(b"overwritten 2\n")
    (tmp_path / "in" / "recreated").unlink()
    (tmp_path / "in" / "recreated").write_bytes(b"recreated 2\n")
    (tmp_path / "in" / "old").write_bytes(b"old\n")
    os.utime(tmp_path / "in" / "old", (1, 1))
    assert finished(tmp_path) == sorted([*first, "appended 2", "overwritten 2", "recreated 2", "old"])


@pytest.mark.crash
def test_kills_of_driver_and_workers_lose_and_double_nothing(tmp_path: Path) -> None:
    """Each kill ends all processes of the query at some moment; the last run reads the rest."""
    for seed in seeds(1):
        choice, root = random.Random(seed), tmp_path / str(seed)
        (root / "in").mkdir(parents=True)
        expected = []
        for number in range(8):
            lines = [f"{number} {line}" for line in range(100)]
            (root / "in" / f"{number}.log").write_text("".join(f"{line}\n" for line in lines))
            expected += lines
        for _ in range(6):
            process = started(root, maxFilesPerTrigger="1")
            try:
                process.communicate(timeout=choice.uniform(8, 45))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
        assert finished(root) == sorted(expected)
