"""Loads CSV into one table of PostgreSQL, beside psql, in turn on the same machine.

    python -m benchmarks.databases --size 1GB --rounds 3

Both read the same four files of ten typed columns, and make one table: psql with its command copy, one file after the
other, and dagflow as a run of the command line, with start, journal and staging. Checks that both have made the same
rows. Starts a server of its own; needs PostgreSQL and the extra `postgres`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import measuring
from benchmarks.measuring import Promise
from benchmarks.table_inputs import make_input
from dagflow.api.properties import parse_size
from tests.cli.processes import ENTRY
from tests.operators.sink.tables.postgres_server import running_server

APP = """
name: databases
attributes: {checkpoint: journal}
steps:
  - files: input
  - read:
      type: csv
      columns: {id: int64, placed: timestamp, qty: int32, price: "decimal(9, 2)", paid: bool, day: date}
  - table: postgres:public.dagflow
    connection: ADDRESS
    staging: staging
"""

TABLE = (
    "CREATE TABLE psql (id bigint, placed timestamp, shop text, customer text, note text, product text, qty int, "
    "price numeric(9, 2), paid bool, day date)"
)


def main() -> int:
    """Run the benchmark; return 1 if the promise does not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="1GB", help="bytes of input, such as 1GB")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with running_server() as server, tempfile.TemporaryDirectory() as name:
        work = Path(name)
        make_input(work / "input", "orders", parse_size(options.size))
        (work / "app.yaml").write_text(APP.replace("ADDRESS", server.address))
        copies = [f"\\copy psql from {path} csv header" for path in sorted((work / "input").iterdir())]
        psql = ["psql", "-qX", server.address, "-v", "ON_ERROR_STOP=1"]
        commands = {
            "psql": [*psql, *(part for copy in [TABLE, *copies] for part in ("-c", copy))],
            "dagflow": [*ENTRY, "run", "app.yaml", "--local", "-q"],
        }

        def measure(name: str) -> float:
            for left in ("journal", "staging"):
                shutil.rmtree(work / left, ignore_errors=True)
            subprocess.run([*psql, "-c", f"DROP TABLE IF EXISTS {name}"], check=True, stderr=subprocess.DEVNULL)
            os.sync()
            started = time.perf_counter()
            subprocess.run(commands[name], check=True, cwd=work)
            return time.perf_counter() - started

        seconds = measuring.in_turn(commands, measure, options.rounds)
        sums = "SELECT count(*), sum(id), sum(price), sum(length(note)), min(placed) FROM"
        found = {subprocess.check_output([*psql, "-Atc", f"{sums} {name}"]) for name in commands}
    median = measuring.medians(seconds)
    rows = [[name, f"{median[name]:.1f}", measuring.range_of(values)] for name, values in seconds.items()]
    print(f"\n{measuring.table(['contender', 'median s', 'range s'], rows)}\n")
    holds = measuring.check(len(found) == 1, "both have made the same rows")
    return 0 if measuring.check_promises([Promise("dagflow", 0.7, "psql")], median) and holds else 1


if __name__ == "__main__":
    sys.exit(main())
