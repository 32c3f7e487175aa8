"""An app that runs on a cluster, and its output."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from tests.cluster.hosts import Cluster, wait_until
from tests.crash.killing import hurry, require_whole, slow_operator, visible_files

Shape = Literal["fused", "exchanged"]

APP = """\
name: killed-app
attributes: {{checkpoint: journal}}
operators:
  splitter:
    class: FileSplitterInput
    properties: {{files: [in], block_size: 8KiB, blocks_threshold: {blocks}, batch_files: 1}}
  reader: {{class: BlockReader, properties: {{min_readers: 4, max_readers: 8}}}}
  filter: {{class: RecordFilter, properties: {{drop: {{prefix: "#"}}}}, partition: parallel}}
  slow: {{class: slow_ops.Slow, partition: parallel}}
  writer: {{class: RecordWriter, properties: {{path: out, file_name: {name}}}{partition}}}
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  records: {{from: reader.messages, to: filter.input}}
  kept: {{from: filter.output, to: slow.input}}
  late: {{from: slow.output, to: writer.input}}
"""

RUN_S = 240.0


class ClusterRun:
    """`dagflow run` of one app, restarted until it completes.

    Args:
        cluster: Where it runs.
        folder: Where app, input and output are; made by write().
    """

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def write(self, shape: Shape, files: int, *, blocks: int = 8, delay_s: float = 0.02) -> None:
        """Write the app, its operator, and as input modules of Python's standard library."""
        self.folder.mkdir()
        fused = {"name": "block", "partition": ", partition: parallel"}
        exchanged = {"name": "part", "partition": ", partition: {by: record}"}
        kind = fused if shape == "fused" else exchanged
        (self.folder / "app.yaml").write_text(APP.format(blocks=blocks, **kind))
        (self.folder / "slow_ops.py").write_text(slow_operator(self.folder, delay_s))
        (self.folder / "in").mkdir()
        for path in sorted(Path(os.__file__).parent.glob("[a-z]*.py"))[:files]:
            (self.folder / "in" / path.name).write_bytes(path.read_bytes())

    def start(self, *arguments: str, **env: str) -> None:
        """Start the run."""
        self._process = self.cluster.dagflow(self.folder, "--json", *arguments, **env)

    @property
    def is_over(self) -> bool:
        """Return whether the run has ended."""
        return self._process is None or self._process.poll() is not None

    @property
    def visible(self) -> int:
        """Return the number of published files."""
        return visible_files(self.folder)

    @property
    def log(self) -> str:
        """Return what the runs have printed."""
        path = self.folder / "run.log"
        return path.read_text() if path.exists() else ""

    @property
    def spark_log(self) -> str:
        """Return Spark's log of the driver."""
        path = self.folder / ".dagflow" / "killed-app.spark.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def wait_for(self, is_so: Callable[[], bool], what: str, most_s: float = RUN_S) -> None:
        """Wait until a condition holds during the run.

        Raises:
            AssertionError: The run ended before that.
        """
        seen = False

        def has_happened() -> bool:
            # Remembered, because what held for a moment, such as an executor, may be gone at the next check.
            nonlocal seen
            seen = seen or is_so()
            return seen or self.is_over

        try:
            wait_until(has_happened, what, most_s)
        except TimeoutError as error:
            raise TimeoutError(f"{error}; the run says: {self.log[-1500:]}\n{self.spark_log[-3000:]}") from None
        assert seen, f"the run was over before: {what}\n{self.log[-3000:]}"

    def wait_for_more(self, files: int) -> None:
        """Wait until this many more files are published."""
        most = self.visible + files
        self.wait_for(lambda: self.visible >= most, f"{files} more files than {most - files} are published")

    def ask_to_stop(self) -> None:
        """Send SIGTERM to the driver."""
        assert self._process is not None
        self._process.terminate()

    def end(self, within_s: float = RUN_S) -> int:
        """Wait for the exit code."""
        assert self._process is not None
        return self._process.wait(within_s)

    def summary(self) -> dict[str, Any]:
        """Return the JSON summary of the last run."""
        found: dict[str, Any] = json.loads(re.findall(r"^\{.*\}$", self.log, re.MULTILINE)[-1])
        return found

    def finish(self) -> int:
        """Let the run hurry, and restart it until it completes; return the number of restarts.

        Raises:
            AssertionError: The output differs from that of grep, or pending files are left.
        """
        hurry(self.folder)
        starts = 0
        while self.end() != 0:
            starts += 1
            assert starts <= 2, self.log[-5000:]
            self.start()
        self.require_whole()
        return starts

    def require_whole(self) -> None:
        """Fail unless the output equals that of grep, and nothing pending is left."""
        require_whole(self.folder)
        assert "Traceback" not in self.log, self.log

    def destroy(self) -> None:
        """End the driver's processes."""
        driver = self.cluster.hosts["driver"]
        driver.signal(list(driver.members()), signal.SIGKILL)
        if self._process is not None:
            self._process.wait()
