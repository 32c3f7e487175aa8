"""Measurements of small_files.py that need a process of their own: growth, many names, a slow store."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.measuring import check, in_own_process, peak_mib
from benchmarks.small_file_jobs import JOBS, make_input, make_names, run_dagflow

STORE_RATE = 500
"""Files per second and core that are promised for a store with 50 ms a request."""


def report_store(work: Path, cores: int, objects: int) -> bool:
    """Print the rate of reading objects from a store with 50 ms a request; return whether the promise holds."""
    command = [sys.executable, str(Path(__file__).with_name("slow_store.py")), "--objects", str(objects)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as store:
        assert store.stdout is not None
        settings = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{store.stdout.readline().strip()}",
            "AWS_ACCESS_KEY_ID": "any",
            "AWS_SECRET_ACCESS_KEY": "any",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        try:
            found = alone(work, cores, "s3://bench/in", "merge", {**os.environ, **settings})
        finally:
            store.communicate()
    rate = objects / found["run"] / cores
    later = (objects - found["first files"]) / (found["run"] - found["first"]) / cores
    return check(
        rate >= STORE_RATE,
        f"store with 50 ms a request: {rate:,.0f} files/s a core from the start, "
        f"{later:,.0f} after the first window, promised {STORE_RATE}",
    )


def alone(work: Path, cores: int, folder: str, job: str, environment: dict[str, str]) -> dict[str, float]:
    """Return what measure_alone finds in a process of its own."""
    arguments = ["--cores", str(cores), str(work), folder, job]
    return in_own_process("small_files_alone", *arguments, environment=environment)


def measure_alone(work: Path, cores: int, folder: str, job: str) -> None:
    """Run dagflow twice in this new process, and print time and memory as JSON."""
    from dagflow.runtime.spark_context import start_context

    for left in ("output", "journal"):
        shutil.rmtree(work / left, ignore_errors=True)
    context = start_context("alone", f"local[{cores}]", {}, work / "spark.log")
    app = JOBS[job]
    if "://" not in folder and job == "merge":
        # The time that a disk takes for files outside of the page cache is not compared.
        subprocess.run(f"find {shlex.quote(folder)} -type f -print0 | xargs -0 cat > /dev/null", shell=True, check=True)
    started = time.perf_counter()
    watch = run_dagflow(context, work, app, folder, cores)
    first_run_s = time.perf_counter() - started
    driver_mib = peak_mib()
    gateway: Any = context._gateway
    java_mib = peak_mib(gateway.proc.pid)
    started = time.perf_counter()
    if "://" not in folder:
        subprocess.run(["find", folder, "-type", "f", "-printf", "%p %s %T@\n"], stdout=subprocess.DEVNULL, check=True)
    find_s = time.perf_counter() - started
    started = time.perf_counter()
    run_dagflow(context, work, app, folder, cores)
    rescan_s = time.perf_counter() - started
    first = {"first": watch.first_s, "first files": watch.first_files}
    found = {"run": first_run_s, **first, "driver": driver_mib, "java": java_mib, "find": find_s, "rescan": rescan_s}
    print(json.dumps(found))
    context.stop()


def report_growth(work: Path, cores: int, few: int, many: int) -> bool:
    """Print memory, rate, time to the first window and time of a rescan for few and for many files."""
    found = []
    for count in (few, many):
        folder = work / f"grow-{count}"
        make_input(folder, count)
        found.append(alone(work, cores, str(folder), "merge", dict(os.environ)))
    small, large = found
    # Workers start before the first window is published; the rate after it counts.
    rates = [
        (count - each["first files"]) / (each["run"] - each["first"]) for count, each in ((few, small), (many, large))
    ]
    checks = [
        (large["driver"] <= 1.25 * small["driver"] + 50, f"driver {small['driver']:.0f} and {large['driver']:.0f} MiB"),
        (large["java"] <= 1.25 * small["java"] + 50, f"its Java {small['java']:.0f} and {large['java']:.0f} MiB"),
        (rates[1] >= 0.9 * rates[0], f"{rates[0]:,.0f} and {rates[1]:,.0f} files/s"),
        (large["first"] <= 1.5 * small["first"] + 0.5, f"first {small['first']:.2f} and {large['first']:.2f} s"),
        (large["rescan"] <= 1.5 * large["find"], f"rescan {large['rescan']:.2f} s, find {large['find']:.2f} s"),
    ]
    return all([check(holds, f"{few:,} and {many:,} files: {text}") for holds, text in checks])


def report_names(work: Path, cores: int, names: int) -> None:
    """Print time and memory for many names of a few files, and for a rescan that finds nothing new."""
    make_names(work / "names", names)
    found = alone(work, cores, str(work / "names"), "filter", dict(os.environ))
    journal_mb = sum(path.stat().st_size for path in (work / "journal").rglob("*") if path.is_file()) / 1e6
    print(
        f"{names:,} names: {names / found['run']:,.0f} files/s, first {found['first']:.2f} s, "
        f"driver {found['driver']:.0f} MiB, its Java {found['java']:.0f} MiB, rescan {found['rescan']:.1f} s, "
        f"find {found['find']:.1f} s, checkpoint {journal_mb:.0f} MB"
    )


def main() -> None:
    """Run the measurement of the command line, and print it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cores", type=int, required=True)
    parser.add_argument("work", type=Path)
    parser.add_argument("folder")
    parser.add_argument("job", choices=sorted(JOBS))
    options = parser.parse_args()
    measure_alone(options.work, options.cores, options.folder, options.job)


if __name__ == "__main__":
    main()
