"""Corrects one file of a table, as dagflow does and as people do today, and kills each of them at it.

    python -m benchmarks.corrections [--files 200] [--rows 5000] [--kills 20] [--dlt-python PATH]
    python -m benchmarks.corrections --large 10GB --folder DIR       one file of a thousand, in such a table

| contender | how it corrects |
|---|---|
| dagflow | `on_change: {replaced: supersede}`: one transaction |
| delta-rs, delete and append | the rows with the file's name in a column, then the new ones: two transactions |
| delta-rs, merge | MERGE by id and file, which also deletes the rows of the file that the new version lacks |
| dlt, delta | `merge` with the strategy `upsert` by id; it deletes no rows |
| dlt, duckdb | `merge` with the file as `merge_key`: deletes and inserts |

Each corrects the same loaded table in a process of its own. CPU is that of the process and all that it started. Bytes
read are those of all files by read(), less those of a process that has nothing to do; bytes written are those of new
files below the table. A contender is killed with SIGKILL at `--kills` moments of its work; the table is then looked at,
and after a second try once more. One that needs two transactions is also killed between them. dlt needs an environment
with `dlt[deltalake,duckdb]`.

`--large` needs about twice its size of disk, and removes what it has made.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

CORRECTED = "f00042.csv"
KILLED_BETWEEN = "KILLED_BETWEEN"
APP = """\
name: orders
attributes: {checkpoint: journal}
steps:
  - {files: in, on_change: {replaced: supersede, truncated: supersede}}
  - read: READ
  - table: delta:table
"""
CSV = "{type: csv, header: true, columns: {id: int64, amount: int64, note: string}}"
RECORD_BYTES = 10_000
LARGE_FILES = 1_000


def lines_of(number: int, rows: int, version: int) -> str:
    """Return the content of a file; its later version has other amounts, and another id instead of the first one."""
    first = number * 10 * rows
    ids = range(first + version - 1, first + version - 1 + rows)
    body = (
        f"{each},{each % 97 + version},note {each * 2654435761 % 2**64:016x}{each * 40503 % 2**32:08x}" for each in ids
    )
    return "\n".join(["id,amount,note", *body, ""])


def put(folder: Path, name: str, content: str | bytes) -> None:
    """Put a file in place, as another one."""
    (folder / "in").mkdir(exist_ok=True)
    data = content.encode() if isinstance(content, str) else content
    (folder / "new").write_bytes(data)
    (folder / "new").rename(folder / "in" / name)


# What contenders do, in processes of their own, in the folder of a contender.


def dagflow(act: str) -> None:
    """Run the app: it finds itself what there is to do. In one process, as processes of tasks are not all counted."""
    begun()
    command = ["run", "app.yaml", "--local", "-q", *(["--workers", "1"] if act != "load" else [])]
    subprocess.run([sys.executable, "-m", "dagflow", *command], check=True)


def rows_of(paths: list[Path]) -> Any:
    """Return the rows of CSV files, with the name of each as a column."""
    import pyarrow as pa
    from pyarrow import csv

    tables = []
    for path in paths:
        found = csv.read_csv(path)
        tables.append(found.append_column("file", pa.array([path.name] * len(found))))
    return pa.concat_tables(tables)


def delta_rs(act: str, correct: Callable[[Any, Any], None]) -> None:
    """Load all files, or correct one."""
    from deltalake import DeltaTable, write_deltalake

    if act == "load":
        files = sorted(Path("in").iterdir())
        write_deltalake("table", rows_of(files), mode="append", target_file_size=16 << 20)
    elif act == "correct":
        begun()
        correct(DeltaTable("table"), rows_of([Path("in", CORRECTED)]))
    else:
        DeltaTable("table")


def delete_and_append(table: Any, rows: Any) -> None:
    """Correct by two transactions; killed between them where that is asked for."""
    from deltalake import write_deltalake

    table.delete(f"file = '{CORRECTED}'")
    if KILLED_BETWEEN in os.environ:
        os.kill(os.getpid(), signal.SIGKILL)
    write_deltalake("table", rows, mode="append")


def merge(table: Any, rows: Any) -> None:
    """Correct by one transaction."""
    merged = table.merge(rows, "t.id = s.id AND t.file = s.file", source_alias="s", target_alias="t")
    merged = merged.when_matched_update_all().when_not_matched_insert_all()
    merged.when_not_matched_by_source_delete(f"t.file = '{CORRECTED}'").execute()


def dlt(act: str, destination: str) -> None:
    """Load all files, or correct one."""
    import dlt as library

    os.environ["DLT_DATA_DIR"] = str(Path("dlt").absolute())
    os.environ["RUNTIME__DLTHUB_TELEMETRY"] = "false"
    os.environ["RUNTIME__LOG_LEVEL"] = "ERROR"
    folder = Path("table").absolute()
    folder.mkdir(exist_ok=True)
    if destination == "duckdb":
        to = library.destinations.duckdb(str(folder / "orders.duckdb"))
        how: dict[str, Any] = {"write_disposition": "merge", "merge_key": "file"}
    else:
        to = library.destinations.filesystem(folder.as_uri())
        disposition = {"disposition": "merge", "strategy": "upsert"}
        how = {"write_disposition": disposition, "primary_key": "id", "table_format": "delta"}
    pipeline = library.pipeline("orders", pipelines_dir="dlt", destination=to, dataset_name="shop")
    if act == "idle":
        return
    files = sorted(Path("in").iterdir()) if act == "load" else [Path("in", CORRECTED)]
    begun()
    pipeline.run(library.resource(rows_of(files), name="orders", **how))


ACTS: dict[str, Callable[[str], None]] = {
    "dagflow": dagflow,
    "delta-rs, delete and append": lambda act: delta_rs(act, delete_and_append),
    "delta-rs, merge": lambda act: delta_rs(act, merge),
    "dlt, delta": lambda act: dlt(act, "delta"),
    "dlt, duckdb": lambda act: dlt(act, "duckdb"),
}


def begun() -> None:
    """Say that the work begins: what comes before is Python's start."""
    Path("begun").touch()


# What measures them.

NONE, ONCE = frozenset({0}), frozenset({1})
STATES = {(ONCE, NONE): "old", (NONE, ONCE): "new", (ONCE, ONCE): "both", (NONE, NONE): "neither"}
"""What a table has of a file, by how often it has the rows of the earlier and of the later version."""


class Cost(NamedTuple):
    """What an act took."""

    wall_s: float
    cpu_s: float
    read_bytes: int
    work_s: float


class Contender(NamedTuple):
    """A contender in its folder."""

    name: str
    folder: Path
    python: str

    def start(self, act: str, **environment: str) -> subprocess.Popen[str]:
        """Start an act, in a group of processes that can be killed."""
        (self.folder / "begun").unlink(missing_ok=True)
        command = [self.python, str(Path(__file__).absolute()), "--act", act, "--only", self.name]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), **environment}
        return subprocess.Popen(
            command, cwd=self.folder, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
        )

    def run(self, act: str) -> Cost:
        """Do an act to its end."""
        at = time.monotonic()
        process = self.start(act)
        answer, _ = process.communicate()
        wall_s = time.monotonic() - at
        if process.returncode:
            raise SystemExit(f"{self.name} failed at {act}")
        mark = self.folder / "begun"
        work_s = time.time() - mark.stat().st_mtime if mark.exists() else wall_s
        found = json.loads(answer.splitlines()[-1])
        return Cost(wall_s, found["cpu_s"], found["read_bytes"], work_s)

    def versions(self) -> str:
        """Which version of the corrected file the table has: "old", "new", "both", "neither" or "mixed"."""
        if self.name == "dlt, duckdb":
            import duckdb

            with duckdb.connect(str(self.folder / "table" / "orders.duckdb"), read_only=True) as connection:
                rows = connection.execute("SELECT id, amount FROM shop.orders").fetchall()
        else:
            from deltalake import DeltaTable

            place = self.folder / "table" / ("shop/orders" if self.name == "dlt, delta" else "")
            table = DeltaTable(str(place)).to_pyarrow_table(columns=["id", "amount"])
            rows = list(zip(table["id"].to_pylist(), table["amount"].to_pylist(), strict=True))
        there = Counter(rows)
        old, new = self.folder.parent / "old.csv", self.folder / "in" / CORRECTED
        counts = [frozenset(there[pair] for pair in pairs_of(path)) for path in (old, new)]
        return STATES.get((counts[0], counts[1]), "mixed")


def pairs_of(path: Path) -> list[tuple[int, int]]:
    """Return the ids and amounts of a file."""
    lines = path.read_text().split("\n")[1:-1]
    return [(int(line.split(",")[0]), int(line.split(",")[1])) for line in lines]


def files_below(folder: Path) -> dict[str, tuple[int, int]]:
    """Return the sizes and times of files."""
    found = (path for path in folder.rglob("*") if path.is_file())
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in found}


def written_since(before: dict[str, tuple[int, int]], folder: Path) -> int:
    """Return the bytes of files that are new or have changed."""
    return sum(size for path, (size, at) in files_below(folder).items() if before.get(path) != (size, at))


def loaded(contender: Contender, files: int, rows: int) -> None:
    """Load the earlier versions, and put the later version of one file in place."""
    contender.folder.mkdir()
    (contender.folder / "app.yaml").write_text(APP.replace("READ", CSV))
    for number in range(files):
        put(contender.folder, f"f{number:05}.csv", lines_of(number, rows, 1))
    contender.run("load")
    (contender.folder.parent / "old.csv").write_text(lines_of(int(CORRECTED[1:6]), rows, 1))
    contender.run("idle")  # also warms the caches


def copied(source: str, to: str) -> None:
    """Copy a file; input is linked, as other inodes would be other versions."""
    (os.link if Path(source).parent.name == "in" else shutil.copy2)(source, to)


def row_of(contender: Contender, files: int, rows: int, kills: int) -> list[str]:
    """Return a row of the table: cost of a correction, and what kills leave."""
    loaded(contender, files, rows)
    idle = contender.run("idle")
    put(contender.folder, CORRECTED, lines_of(int(CORRECTED[1:6]), rows, 2))
    saved = contender.folder.with_name(f"{contender.name} saved")
    shutil.copytree(contender.folder, saved, copy_function=copied)
    before = files_below(contender.folder / "table")
    cost = contender.run("correct")
    written, end = written_since(before, contender.folder / "table"), contender.versions()
    left, after = Counter[str](), Counter[str]()
    for number in range(kills):
        shutil.rmtree(contender.folder)
        shutil.copytree(saved, contender.folder, copy_function=copied)
        process = contender.start("correct")
        while not (contender.folder / "begun").exists() and process.poll() is None:
            time.sleep(0.005)
        time.sleep(cost.work_s * (number + 0.5) / kills)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        left[contender.versions()] += 1
        contender.run("correct")
        after[contender.versions()] += 1
    between = "one transaction"
    if contender.name == "delta-rs, delete and append":
        shutil.rmtree(contender.folder)
        shutil.copytree(saved, contender.folder, copy_function=copied)
        contender.start("correct", **{KILLED_BETWEEN: "1"}).communicate()
        between = contender.versions()
    shutil.rmtree(saved)
    shutil.rmtree(contender.folder)
    return [
        contender.name,
        f"{cost.wall_s:.1f} s",
        f"{cost.cpu_s - idle.cpu_s:.2f} s",
        f"{max(cost.read_bytes - idle.read_bytes, 0) / 1e6:.1f} MB",
        f"{written / 1e6:.1f} MB",
        end,
        ", ".join(f"{n} {what}" for what, n in left.most_common()),
        ", ".join(f"{n} {what}" for what, n in after.most_common()),
        between,
    ]


HEADS = [
    *("contender", "wall", "CPU", "read", "written", "has then"),
    *("after a kill", "after the next try", "between transactions"),
]


def large(folder: Path, size_bytes: int) -> None:
    """Correct one file of a thousand in a table of random bytes, and print how much of it was read and written."""
    import numpy as np

    from benchmarks.measuring import check

    records = size_bytes // LARGE_FILES // RECORD_BYTES
    contender = Contender("dagflow", folder / "large", sys.executable)
    contender.folder.mkdir(parents=True)
    (contender.folder / "app.yaml").write_text(APP.replace("READ", f"{{type: fixed, length: {RECORD_BYTES}}}"))
    random = np.random.default_rng(1)
    for number in range(LARGE_FILES):
        put(contender.folder, f"f{number:05}.csv", random.bytes(records * RECORD_BYTES))
    table = contender.folder / "table"
    first = contender.run("load")
    whole = sum(size for size, _ in files_below(table).values())
    print(f"loaded {whole / 1e9:.2f} GB in {len(list(table.glob('*.parquet')))} data files: {first.cpu_s:.0f} s of CPU")
    idle = contender.run("idle")
    before = files_below(table)
    put(contender.folder, CORRECTED, random.bytes((records - 1) * RECORD_BYTES))
    cost = contender.run("correct")
    read, written = max(cost.read_bytes - idle.read_bytes, 0), written_since(before, table)
    print(f"corrected one file: {cost.wall_s:.1f} s, {cost.cpu_s:.1f} s of CPU ({idle.cpu_s:.1f} s without work)")
    check(read < whole * 0.02, f"read {read / 1e6:.0f} MB, {read / whole:.2%} of the table")
    check(written < whole * 0.02, f"wrote {written / 1e6:.0f} MB, {written / whole:.2%} of the table")


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=200)
    parser.add_argument("--rows", type=int, default=5000, help="rows of a file")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--only", nargs="*", default=[*ACTS])
    parser.add_argument("--dlt-python", default="", help="a Python that has dlt; it is left out without one")
    parser.add_argument("--large", help="size of a table of which one file of a thousand is corrected")
    parser.add_argument("--folder", help="where to work, instead of a temporary directory")
    parser.add_argument("--act", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.act:
        ACTS[asked.only[0]](asked.act)
        times = os.times()
        counted = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
        print(json.dumps({"cpu_s": sum(times[:4]), "read_bytes": int(counted["rchar"])}))
        return
    from benchmarks.measuring import table
    from dagflow.api.properties import parse_size

    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        if asked.large:
            large(Path(folder), parse_size(asked.large))
            return
        rows = []
        for name in asked.only:
            python = asked.dlt_python if name.startswith("dlt") else sys.executable
            if python:
                rows.append(row_of(Contender(name, Path(folder, name), python), asked.files, asked.rows, asked.kills))
                print(f"{name}: done", file=sys.stderr, flush=True)
        print(table(HEADS, rows))


if __name__ == "__main__":
    main()
