"""The stream `dagflow` in Spark: each record once in Spark's file sink, whatever dies."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dagflow.journal.heartbeat import newest_heartbeat
from dagflow.storage.context import StorageContext
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


def started(query: str, *arguments: str) -> subprocess.Popen[str]:
    """A process of its own group that runs a query."""
    command = [sys.executable, "-c", query, *arguments]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment, start_new_session=True
    )


def finished(root: Path, **options: str) -> list[str]:
    """The records in the sink after a run to its end."""
    process = started(QUERY, str(root), json.dumps(options))
    records: list[str] = json.loads(process.communicate(timeout=600)[0].splitlines()[-1])
    assert process.returncode == 0
    _, beat = newest_heartbeat(StorageContext.default().objects(str(root / "checkpoint" / "dagflow")))
    assert beat is not None and beat.standing() == "completed"
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


KILLED_QUERY = """
import os, pathlib, random, signal, sys, threading, time
from pyspark.sql import SparkSession
root, seed, kills = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
choice = random.Random(seed)
spark = SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
import dagflow.spark
dagflow.spark.register(spark)

def workers():
    parents = {}
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            facts = pathlib.Path("/proc", process, "stat").read_text().rpartition(")")[2]
            parents[int(process)] = int(facts.split()[1])
        except OSError:
            pass
    java = spark.sparkContext._gateway.proc.pid
    daemons = {process for process, parent in parents.items() if parent == java}
    return [process for process, parent in parents.items() if parent in daemons]

def query():
    source = spark.readStream.format("dagflow").options(record="lines", checkpoint=f"{root}/checkpoint")
    source = source.options(maxFilesPerTrigger="1", scan_interval_millis="0").schema("record string, _file string")
    writer = source.load(f"{root}/in").writeStream.format("parquet").option("checkpointLocation", f"{root}/checkpoint")
    return writer.trigger(availableNow=True).start(f"{root}/out")

while kills:
    for _ in range(2):
        number = len(list(root.glob("in/*")))
        (root / "next").write_text("".join(f"{number} {line}\\n" for line in range(50)))
        (root / "next").rename(root / "in" / f"{number}.log")
    running = query()
    while running.isActive and kills:
        time.sleep(choice.uniform(0, 0.5))
        if running.isActive and (found := workers()):
            os.kill(choice.choice(found), signal.SIGKILL)
            kills -= 1
            print("kill", flush=True)
    try:
        running.awaitTermination()
    except Exception as error:
        print("ended", type(error).__name__, file=sys.stderr, flush=True)
"""


@pytest.mark.crash
def test_kills_of_driver_and_workers_lose_and_double_nothing(tmp_path: Path) -> None:
    """Python processes of Spark are killed while batches are planned, read and committed, and then all of the query."""
    killed = 0
    for seed in seeds(1):
        choice, root = random.Random(seed), tmp_path / str(seed)
        (root / "in").mkdir(parents=True)
        for _ in range(2):
            process = started(KILLED_QUERY, str(root), str(choice.randrange(1 << 30)), "1000")
            assert process.stdout is not None
            killed += sum(1 for _ in itertools.islice(process.stdout, choice.randint(20, 60)))
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            killed += 1
        expected = [line for path in root.glob("in/*") for line in path.read_text().splitlines()]
        assert finished(root) == sorted(expected)
        print(f"{killed} kills")
