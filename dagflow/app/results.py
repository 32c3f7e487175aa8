"""What an app gives: its plan, and the result of a run, under a display that suits where it is shown."""

from __future__ import annotations

import html
import sys
from dataclasses import dataclass, field, fields
from typing import Any, Self

from typing_extensions import override

from dagflow.cli.commands.plan import partitions
from dagflow.cli.display import Display
from dagflow.cli.output import count, duration, size
from dagflow.cli.progress import display_for, logging_to
from dagflow.cli.render import progress_line, summary
from dagflow.cli.signals import on_driver_thread, stop_on_signals
from dagflow.engine.live_run import StopRequest
from dagflow.engine.run import run as engine_run
from dagflow.engine.run_setup import RunOptions
from dagflow.journal.windows import Receipt
from dagflow.plan.logical import LogicalPlan
from dagflow.plan.physical import PhysicalPlan
from dagflow.plan.placement import place
from dagflow.plan.render.explain import Format, explain
from dagflow.report.snapshot import RunSnapshot


@dataclass(frozen=True)
class AppPlan:
    """The plan of a run; a notebook shows its picture.

    Attributes:
        logical: The DAG of operators and streams.
        physical: The stages, and the exchanges between them.
    """

    logical: LogicalPlan
    physical: PhysicalPlan = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "physical", place(self.logical))

    def show(self, format: Format = "text") -> str:
        """The plan as `dagflow plan` shows it: text, mermaid, dot or svg."""
        counts = partitions(self.logical, self.physical)
        return explain(self.logical, self.physical, format=format, partitions=counts, redact=self.logical.redact)

    def __str__(self) -> str:
        return self.show()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self.show("svg")


class RunResult(RunSnapshot):
    """The figures of a run that has ended; a notebook shows it as a small table."""

    __slots__ = ()

    @classmethod
    def of(cls, done: RunSnapshot) -> Self:
        """The figures of a snapshot."""
        return cls(**{each.name: getattr(done, each.name) for each in fields(done)})

    @property
    def tables(self) -> dict[str, Receipt]:
        """What tables and other transactional targets have at the end, by operator: the newest window, and version."""
        return self.targets

    def __str__(self) -> str:
        return summary(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = [
            (self.app, f"{self.state} in {duration(self.seconds)}"),
            ("read", f"{count(self.files, 'file')}, {size(self.bytes)}"),
            *((port, count(number, "record")) for port, number in self.records.items() if number),
            ("rejected", f"{self.rejected:,}"),
            ("left out", f"{count(self.left_out.ranges, 'range')}, {size(self.left_out.bytes)}"),
            ("output", ", ".join(self.outputs)),
            *((name, f"{table.version}, window {table.window_id}") for name, table in self.tables.items()),
        ]
        cells = "".join(f"<tr><th>{html.escape(name)}</th><td>{html.escape(text)}</td></tr>" for name, text in rows)
        return f"<table>{cells}</table>"


class NotebookDisplay(Display):
    """One line in the output of a cell, which changes while the run works; messages are lines below it."""

    def __init__(self, app: str, show: Any) -> None:
        super().__init__(app)
        self._handle = show({"text/plain": f"{app}: starting"}, raw=True, display_id=True)

    def _line(self, text: str) -> None:
        self._handle.update({"text/plain": text}, raw=True)

    @override
    def progress(self, snapshot: RunSnapshot) -> None:
        super().progress(snapshot)
        self._line(progress_line(snapshot))

    @override
    def notice(self, text: str) -> None:
        sys.stderr.write(f"{self.redact(text)}\n")

    @override
    def stopping(self) -> None:
        self._line(f"{self.app}: stopping")

    @override
    def finish(self, snapshot: RunSnapshot) -> None:
        super().finish(snapshot)
        self._line(progress_line(snapshot))


def run_watched(app: LogicalPlan, options: RunOptions, *, is_quiet: bool) -> RunSnapshot:
    """Raises KeyboardInterrupt if the run was interrupted, after it has stopped in order."""
    notebook = None if is_quiet else _notebook()
    display = NotebookDisplay(app.name, notebook) if notebook else display_for(app.name, app.redact, is_quiet=is_quiet)
    display.redact = app.redact
    stop = StopRequest()

    def ask() -> None:
        stop.request()
        display.stopping()

    def again() -> None:
        raise KeyboardInterrupt

    with logging_to(display, is_verbose=False), display, stop_on_signals(ask, again):
        snapshot = on_driver_thread(lambda: engine_run(app, options, display, stop))
        display.finish(snapshot)
    if stop.is_requested:
        raise KeyboardInterrupt
    return snapshot


def _notebook() -> Any:
    """The display function of a notebook; None outside of one."""
    running = sys.modules.get("IPython")
    shell = None if running is None else running.get_ipython()
    if shell is None or not hasattr(shell, "kernel"):
        return None
    # Imported late: it is there in a notebook only.
    from IPython.display import display

    return display
