"""The result of a run."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import Any

from dagflow.cli.output import count, duration, size
from dagflow.cli.render import summary
from dagflow.journal.saved_state import LeftOut
from dagflow.journal.windows import Receipt
from dagflow.report.snapshot import RunSnapshot


@dataclass(frozen=True)
class RunResult:
    """The result of a run; a notebook shows it as a small table.

    Attributes:
        snapshot: All figures of the run.
    """

    snapshot: RunSnapshot

    @property
    def state(self) -> str:
        """How the run ended: "completed" or "stopped"."""
        return self.snapshot.state

    @property
    def seconds(self) -> float:
        """Duration of the run in seconds."""
        return self.snapshot.seconds

    @property
    def files(self) -> int:
        """Number of files that the run began."""
        return self.snapshot.files

    @property
    def bytes(self) -> int:
        """Number of bytes that the run read."""
        return self.snapshot.bytes

    @property
    def records(self) -> dict[str, int]:
        """Number of records that left each port, by "operator.port"."""
        return self.snapshot.records

    @property
    def rejected(self) -> int:
        """Number of records that were refused."""
        return self.snapshot.rejected

    @property
    def counts(self) -> dict[str, int]:
        """Counters of the operators' own, by "operator:name"."""
        return self.snapshot.counts

    @property
    def outputs(self) -> tuple[str, ...]:
        """Locations where the operators publish."""
        return self.snapshot.outputs

    @property
    def tables(self) -> dict[str, Receipt]:
        """What tables and other transactional targets have at the end, by operator: the newest window, and version."""
        return self.snapshot.targets

    @property
    def left_out(self) -> LeftOut:
        """Ranges of the input that all runs together have left out."""
        return self.snapshot.left_out

    def to_json(self) -> dict[str, Any]:
        """The object that `dagflow run --json` prints."""
        return self.snapshot.to_json()

    def __str__(self) -> str:
        return summary(self.snapshot)

    def __repr__(self) -> str:
        return summary(self.snapshot)

    def _repr_html_(self) -> str:
        figures = self.snapshot
        rows = [
            (f"{figures.app}", f"{figures.state} in {duration(figures.seconds)}"),
            ("read", f"{count(figures.files, 'file')}, {size(figures.bytes)}"),
            *((port, count(number, "record")) for port, number in self.records.items() if number),
            ("rejected", f"{figures.rejected:,}"),
            ("left out", f"{count(figures.left_out.ranges, 'range')}, {size(figures.left_out.bytes)}"),
            ("output", ", ".join(self.outputs)),
            *((name, f"{table.version}, window {table.window_id}") for name, table in self.tables.items()),
        ]
        cells = "".join(f"<tr><th>{html.escape(name)}</th><td>{html.escape(text)}</td></tr>" for name, text in rows)
        return f"<table>{cells}</table>"
