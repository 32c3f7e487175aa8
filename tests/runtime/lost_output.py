"""Runs a window on Spark while an executor seems to die; prints the records of its files.

python -m tests.runtime.lost_output DIRECTORY
"""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import replace
from pathlib import Path

from dagflow.api.context import OperatorContext
from dagflow.execution.messages import Program
from dagflow.runtime.spark import SparkRuntime
from dagflow.runtime.spark_context import start_context, stop_context
from tests.execution.sample_operators import DropPrefixed, SampleWords
from tests.runtime.runtime_contract import exchanging_plan, operators_of, published, window


class FailingOnce(SampleWords):
    """The second attempt of each task fails, as a service that does not answer for a while."""

    folder: str

    def setup(self, context: OperatorContext) -> None:
        """Leave a trace, or fail."""
        traces = [Path(self.folder, f"{context.partition} {attempt}") for attempt in ("first", "second")]
        for trace in traces:
            if not trace.exists():
                trace.touch()
                if trace == traces[1]:
                    raise RuntimeError("the service does not answer")
                return


class RemovesShuffleFiles(DropPrefixed):
    """The first task removes what was sent to the later ones, as if an executor had died."""

    folder: str

    def setup(self, context: OperatorContext) -> None:
        """Remove it once, when all of this task's own input is here."""
        trace = Path(self.folder, "lost")
        if context.partition == 0 and not trace.exists():
            trace.touch()
            for place in os.environ["SPARK_LOCAL_DIRS"].split(","):
                for file in Path(place).rglob("shuffle_*.data"):
                    file.unlink()


def main(folder: Path) -> None:
    """Run the window."""
    logging.basicConfig(level=logging.WARNING)
    context = start_context("tests", "local[2]", {}, folder / "spark.log")
    plan = exchanging_plan()
    lines, filtered, _ = plan.stages
    plan = replace(plan, stages=(lines, replace(filtered, outputs=())))
    operators = {
        "lines": FailingOnce(folder=str(folder)),
        "filter": RemovesShuffleFiles(prefix="#", folder=str(folder)),
    }
    runtime = SparkRuntime(Program.of("app", plan, {**operators_of(folder), **operators}), context)
    texts = [b"%d" % number for number in range(20)]
    results = runtime.submit(replace(window(texts), partitions={"lines": 2, "filter": 6})).result()
    written = b"".join(published(results, folder / "out").values())
    print(*sorted(written.decode().split(), key=int))
    runtime.close()
    stop_context(context)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
