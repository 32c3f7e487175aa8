"""What a plan keeps of a window, read by the run that goes on with it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from dagflow import ControlOperator, InputPort, OutputPort
from dagflow.engine.run import run
from dagflow.errors import DagflowError, JournalError, OperatorError
from dagflow.plan.logical import LogicalPlan, OperatorNode
from dagflow.runtime.local import InlineRuntime
from tests.engine.sample_app import TextSource, app_of, edge, published


@dataclass(frozen=True)
class Note:
    """A tuple for an operator of the driver."""

    text: str


class Bare:
    """A tuple that has no JSON form."""

    def __init__(self, text: str) -> None:
        self.text = text


def made_in_a_function() -> type:
    """A dataclass that no module has under its name."""

    @dataclass(frozen=True)
    class Local:
        text: str

    return Local


class NotingSource(TextSource):
    """Emits a note beside the samples."""

    note: type = Note

    notes = OutputPort(object)

    def emit_tuples(self) -> None:
        """Emit both."""
        if self.position < len(self.texts):
            self.notes.emit(self.note(f"from {self.position}"))
        super().emit_tuples()


class NoteCollector(ControlOperator):
    """Takes notes when a window's results are in."""

    runs_at_commit: ClassVar[bool] = True

    input = InputPort(object)
    taken: ClassVar[list[object]] = []

    @input.each
    def take(self, note: object) -> None:
        """Keep it."""
        self.taken.append(note)


def noting(tmp_path: Path, note: type = Note) -> LogicalPlan:
    """One window of two samples and a note."""
    app = app_of(tmp_path, [b"a", b"b"])
    nodes = {
        "source": OperatorNode("source", NotingSource(texts=[b"a", b"b"], note=note)),
        "report": OperatorNode("report", NoteCollector()),
    }
    return replace(app, operators={**app.operators, **nodes}, edges=(*app.edges, edge("source.notes", "report.input")))


def failing(window: Any) -> None:
    """End a run when its window is planned."""
    raise DagflowError("the lights went out")


def test_planned_tuples_of_a_class_that_is_gone_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run is refused with their operator and the class, and goes on when that has its name again."""
    monkeypatch.setattr(NoteCollector, "taken", [])
    with pytest.raises(DagflowError, match="the lights went out"):
        run(noting(tmp_path), runtime=lambda program: InlineRuntime(program, before=failing))
    with monkeypatch.context() as patch:
        patch.delitem(globals(), "Note")
        message = (
            rf"journal: a tuple that was planned for operator 'report' needs {__name__}\.Note, which no longer exists"
        )
        for _ in range(2):
            with pytest.raises(JournalError, match=message):
                run(noting(tmp_path), runtime=InlineRuntime)
    assert not published(tmp_path)
    run(noting(tmp_path), runtime=InlineRuntime)
    assert (published(tmp_path), NoteCollector.taken) == ([b"a", b"b"], [Note("from 0")])


@pytest.mark.parametrize("note", [Bare, made_in_a_function()])
def test_tuples_between_operators_of_the_driver_are_data_too(
    tmp_path: Path, note: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names who has emitted them, and a run goes on when they are of a dataclass of a module."""
    monkeypatch.setattr(NoteCollector, "taken", [])
    message = rf"has emitted tuples that the plan of a window cannot hold: a {note.__name__} cannot be kept"
    with pytest.raises(
        OperatorError, match=rf"operator 'source': {message}.*\n *a class of tuples is a frozen dataclass"
    ):
        run(noting(tmp_path, note), runtime=InlineRuntime)
    assert (published(tmp_path), NoteCollector.taken) == ([], [])
    run(noting(tmp_path), runtime=InlineRuntime)
    assert (published(tmp_path), NoteCollector.taken) == ([b"a", b"b"], [Note("from 0")])
