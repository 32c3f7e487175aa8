"""Logs that are appended to, rotated and read in any order, by runs that may die: each line comes exactly once."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.errors import DagflowError
from dagflow.execution.messages import Program, WindowJob
from dagflow.plan.load import load_app
from dagflow.plan.logical import LogicalPlan
from dagflow.runtime.base import Runtime
from dagflow.runtime.local import InlineRuntime
from tests.nightly import examples
from tests.operators.splitter.changes.renames.rotations import (
    ROTATIONS,
    copy_and_truncate,
    copy_with_date_inside_and_truncate,
    mirror,
)
from tests.operators.splitter.splitter_driver import write
from tests.properties.test_growing_files import append

APP = """\
name: sample
attributes: {{checkpoint: {folder}/journal}}
operators:
  splitter:
    class: FileSplitterInput
    properties:
      {{files: ["{folder}/in"], batch_bytes: {batch}, block_size: {block}, max_files_per_window: {files}, {spread}}}
  reader: {{class: BlockReader}}
  writer: {{class: RecordWriter, properties: {{path: "{folder}/out"}}, partition: parallel}}
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  records: {{from: reader.messages, to: writer.input}}
"""

COPYING = (mirror, copy_and_truncate, copy_with_date_inside_and_truncate)

LOGS = st.sampled_from(["app.log", "web.log"])


class RotatingLogs(RuleBasedStateMachine):
    """Writes lines to logs, rotates them, and runs an app over their directory again and again."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="rotating-"))
        (self.folder / "in").mkdir()
        self.logged: list[bytes] = []
        # Logs that were copied, and that the next run must find under their names to know the copies.
        self.copied: set[str] = set()

    @initialize(
        batch=st.sampled_from(["0", "16MiB"]),
        block=st.sampled_from([8, 1 << 20]),
        files=st.sampled_from([1, 3, 100]),
        spread=st.sampled_from(["", "blocks_threshold: 1", "blocks_threshold: 3"]),
    )
    def begin(self, batch: str, block: int, files: int, spread: str) -> None:
        """Choose how files are cut into blocks and windows; a window of few blocks has only a part of a log."""
        text = APP.format(folder=self.folder, batch=batch, block=block, files=files, spread=spread)
        self.app: LogicalPlan = load_app(str(write(self.folder / "app.yaml", text)))
        for name in ("app.log", "web.log"):
            self.log(name, 1)

    @rule(name=LOGS, lines=st.integers(1, 4))
    def log(self, name: str, lines: int) -> None:
        """Append lines that are all different."""
        for _ in range(lines):
            # The number first, so that no two logs begin with the same block.
            self.logged.append(b"%07d line of %s" % (len(self.logged), name.encode()))
            append(self.folder / "in" / name, self.logged[-1] + b"\n")

    @rule(name=LOGS, rotate=st.sampled_from(ROTATIONS), begins=st.booleans())
    def rotate(self, name: str, rotate: Callable[[Path], None], begins: bool) -> None:
        """Rotate a log, if it is there; the program that logs may begin a new one at once."""
        if (path := self.folder / "in" / name).exists() and path.stat().st_size:
            rotate(path)
            self.copied |= {name} if rotate in COPYING else set()
            if begins or (name in self.copied and not path.exists()):
                self.log(name, 1)

    @rule()
    def run_to_the_end(self) -> None:
        """Read what there is."""
        run(self.app, RunOptions(), runtime=InlineRuntime)
        self.copied.clear()

    @rule(windows=st.integers(1, 3))
    def run_and_die(self, windows: int) -> None:
        """Begin to read, and die when some windows were planned."""

        def die(window: WindowJob) -> None:
            nonlocal windows
            windows -= 1
            if not windows:
                raise DagflowError("the machine is gone")

        self.run_with(die)

    @rule(name=LOGS, rotate=st.sampled_from(ROTATIONS), lines=st.integers(0, 2), windows=st.integers(1, 2))
    def run_while_it_rotates(self, name: str, rotate: Callable[[Path], None], lines: int, windows: int) -> None:
        """Rotate a log when a window is planned, and not read."""

        def act(window: WindowJob) -> None:
            nonlocal windows
            windows -= 1
            if not windows:
                self.rotate(name, rotate, False)
                self.log(name, lines) if lines else None

        self.run_with(act)

    def run_with(self, before: Callable[[WindowJob], None]) -> None:
        """Run, and do something before each window is read."""

        def made(program: Program) -> Runtime:
            return InlineRuntime(program, before=before)

        try:
            run(self.app, RunOptions(), runtime=made)
        except DagflowError as error:
            assert "the machine is gone" in str(error), str(error)

    def teardown(self) -> None:
        """In the end every line has been published once."""
        try:
            for _ in range(2):
                run(self.app, RunOptions(), runtime=InlineRuntime)
            lines = [line for path in (self.folder / "out").iterdir() for line in path.read_bytes().splitlines()]
            assert Counter(lines) == Counter(self.logged)
        finally:
            shutil.rmtree(self.folder)


TestRotatingLogs = RotatingLogs.TestCase
TestRotatingLogs.settings = settings(max_examples=examples(25), stateful_step_count=15, deadline=None)
