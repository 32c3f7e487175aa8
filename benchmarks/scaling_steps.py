"""One measurement of scaling.py: runs an app, and prints its cost as JSON.

    python -m benchmarks.scaling_steps '{"files": 4, "file_bytes": 1000000000}'

takes the fields of a ScalingStep as JSON.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.measuring import peak_mib

SLEEPING = """
import time
from dagflow import InputPort, Operator, OutputPort


class Sleep(Operator):
    \"\"\"Lets a partition of a window take a fixed time without using a core.\"\"\"

    seconds: float = 0.0
    input = InputPort()
    output = OutputPort()
    _is_busy = False

    @input.batch
    def take(self, batch):
        \"\"\"Drop everything.\"\"\"
        self._is_busy = True

    def end_window(self):
        \"\"\"Wait, where there was anything to do: partitions without work share a task.\"\"\"
        time.sleep(self.seconds * self._is_busy)
"""

APP = """
name: scaling
attributes: {{checkpoint: {work}/journal}}
operators:
  splitter:
    class: FileSplitterInput
    properties: {{files: {files}, block_size: {block_bytes}{threshold}}}
  reader: {{class: BlockReader, properties: {{min_readers: {partitions}, max_readers: {partitions}}}}}
  filter: {{{filter}, partition: parallel}}
  writer: {{class: RecordWriter, properties: {{path: {work}/output}}, partition: parallel}}
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  lines: {{from: reader.messages, to: filter.input}}
  kept: {{from: filter.output, to: writer.input}}
"""
NOTHING_KEPT = 'class: RecordFilter, properties: {keep: {prefix: "no line begins with this"}}'


@dataclass(frozen=True, slots=True)
class ScalingStep:
    """The size of one measurement.

    Attributes:
        files: Number of names of the one input file.
        file_bytes: Its size.
        block_bytes: Size of a block.
        blocks_per_window: 0 for dagflow's own choice.
        partitions: Of each window.
        cores: Tasks that run at the same time.
        runtime: "spark" reads the blocks; "instant" answers every window at once, and leaves the driver's own work.
        files_per_partition: Output files that "instant" hands over to be published.
        sleep_s: Seconds that each partition of a window sleeps.
    """

    files: int = 1
    file_bytes: int = 1 << 20
    block_bytes: int = 64 << 20
    blocks_per_window: int = 0
    partitions: int = 2
    cores: int = 2
    runtime: str = "spark"
    files_per_partition: int = 0
    sleep_s: float = 0.0


def make_input(folder: Path, step: ScalingStep) -> None:
    """Write one file of lines and give it more names: the page cache holds it once, and each name is read."""
    dice = random.Random(1)
    letters = "abcdefghijklmnopqrstuvwxyz0123456789/=&"
    lines = ["".join(dice.choices(letters, k=dice.randint(20, 115))) for _ in range(10_000)]
    pool = b"".join(f"2026-03-04T00:00:{dice.randint(0, 59):02d} {line}\n".encode() for line in lines)
    folder.mkdir()
    first = folder / "000000.log"
    with first.open("wb") as file:
        if step.runtime == "instant":
            file.truncate(step.file_bytes)  # it is not read
        else:
            for start in range(0, step.file_bytes, len(pool)):
                file.write(pool[: step.file_bytes - start])
    for number in range(1, step.files):
        (folder / f"{number:06}.log").hardlink_to(first)


class InstantRuntime:
    """A runtime whose tasks are done as soon as they are submitted.

    Args:
        program: The app.
        step: The number of concurrent tasks, and of files that each partition has written.
        output: Where those files are published.
    """

    def __init__(self, program: Any, step: ScalingStep, output: Path) -> None:
        self._plan = program.plan
        self._step = step
        self._output = output
        self.parallelism = step.cores
        self.seconds = 0.0

    def submit(self, window: Any) -> Future[list[Any]]:
        """Answer for each partition."""
        from dagflow.execution.messages import TaskResult
        from dagflow.metrics.counters import Counters

        started = time.perf_counter()
        future: Future[list[Any]] = Future()
        future.set_result(
            [
                TaskResult(
                    stage.index,
                    partition,
                    Counters.of_counts({"reader": {"blocks": 1}}),
                    tuple(self._file(window, partition, number) for number in range(self._step.files_per_partition)),
                    (),
                    {},
                    {},
                    0.0,
                )
                for stage in self._plan.stages
                for partition in range(window.partitions[stage.head])
            ]
        )
        self.seconds += time.perf_counter() - started  # what tasks would have done elsewhere
        return future

    def _file(self, window: Any, partition: int, number: int) -> Any:
        from dagflow.storage.context import StorageContext

        name = f"part-{window.window_id:08d}-{partition:05d}-{number:04d}"
        writer = StorageContext.default().open_pending(str(self._output / name), tag=window.tag)
        writer.write(b"one line\n")
        return writer.close(records=1)

    def cancel(self) -> None:
        """Nothing is under way."""

    def close(self) -> None:
        """Nothing is held."""


def forget_peak() -> None:
    """Let the kernel count this process's peak memory from now on."""
    Path("/proc/self/clear_refs").write_text("5")


def live_heap_mib(context: Any) -> float:
    """What is alive in the JVM's heap, after a collection."""
    jvm = context._jvm
    jvm.System.gc()
    runtime = jvm.Runtime.getRuntime()
    return float(runtime.totalMemory() - runtime.freeMemory()) / (1 << 20)


def run_app(work: Path, step: ScalingStep, runtime: Callable[[Any, Any], Any]) -> Any:
    """Run the app from an empty checkpoint, and return its summary."""
    from dagflow.engine.run import run
    from dagflow.plan.load import load_app

    for name in ("journal", "output"):
        shutil.rmtree(work / name, ignore_errors=True)
    (work / "sleeping.py").write_text(SLEEPING)
    sleep = f"class: sleeping.Sleep, properties: {{seconds: {step.sleep_s}}}"
    (work / "scaling.yaml").write_text(
        APP.format(
            work=work,
            files=work / "input",
            block_bytes=step.block_bytes,
            threshold=f", blocks_threshold: {step.blocks_per_window}" if step.blocks_per_window else "",
            partitions=step.partitions,
            filter=sleep if step.sleep_s else NOTHING_KEPT,
        )
    )
    app = load_app(str(work / "scaling.yaml"))
    modules = app.spec.user_modules() if app.spec else []
    summary = run(app, runtime=lambda program: runtime(program, modules))
    if summary.state != "completed":
        raise ValueError(f"the run ended as {summary}")
    return summary


def measure(work: Path, step: ScalingStep) -> dict[str, float]:
    """Run once to warm up where tasks run for real, and then for the record."""
    make_input(work / "input", step)
    if step.runtime == "instant":
        made: list[InstantRuntime] = []

        def instant(program: Any, _: Any) -> InstantRuntime:
            made.append(InstantRuntime(program, step, work / "output"))
            return made[-1]

        found = _measured(work, step, instant)
        return {**found, "seconds": found["seconds"] - sum(runtime.seconds for runtime in made)}
    from dagflow.runtime.spark import SparkRuntime
    from dagflow.runtime.spark_context import start_context

    context = start_context("scaling", f"local[{step.cores}]", {}, work / "spark.log")

    def spark(program: Any, modules: Any) -> SparkRuntime:
        return SparkRuntime(program, context, modules=modules)

    try:
        (work / "input").rename(work / "large")
        make_input(work / "input", ScalingStep(file_bytes=1 << 20))
        run_app(work, replace(step, block_bytes=(1 << 20) // step.cores, blocks_per_window=0), spark)
        shutil.rmtree(work / "input")
        (work / "large").rename(work / "input")
        return {**_measured(work, step, spark), "jvm_mib": live_heap_mib(context)}
    finally:
        context.stop()


def _measured(work: Path, step: ScalingStep, runtime: Callable[[Any, Any], Any]) -> dict[str, float]:
    forget_peak()
    started, started_cpu = time.perf_counter(), time.process_time()
    summary = run_app(work, step, runtime)
    seconds, cpu = time.perf_counter() - started, time.process_time() - started_cpu
    journal = sum(path.stat().st_size for path in (work / "journal").rglob("*") if path.is_file())
    return {
        "seconds": seconds,
        "driver_cpu_s": cpu,
        "driver_mib": peak_mib(),
        "journal_bytes": journal,
        "windows": summary.windows,
        "blocks": summary.blocks,
        "bytes": summary.bytes,
    }


def main() -> None:
    """Measure what the command line says, and print it."""
    step = ScalingStep(**json.loads(sys.argv[1]))
    with tempfile.TemporaryDirectory(prefix="dagflow-scaling-", dir=os.environ.get("DAGFLOW_BENCHMARK_DIR")) as folder:
        print(json.dumps(measure(Path(folder), step)))


if __name__ == "__main__":
    main()
