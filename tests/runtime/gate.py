"""An operator whose tasks wait until a file is there, so that something can happen to a run meanwhile."""

from __future__ import annotations

from pathlib import Path

_GATE = """\
import pathlib, time
from dagflow import InputPort, Operator, OutputPort
from dagflow.api.records import RecordBatch

class Mark(Operator):
    input = InputPort(RecordBatch)
    output = OutputPort(RecordBatch)

    @input.each
    def mark(self, batch):
        folder = pathlib.Path({folder!r})
        (folder / "begun").touch()
        while not (folder / "go").exists():
            time.sleep(0.05)
        self.output.emit(batch)
"""


def gated_operator(folder: Path) -> str:
    """The module my_ops: its tasks make the file `begun` in a directory, and wait for the file `go` there."""
    return _GATE.format(folder=str(folder))
