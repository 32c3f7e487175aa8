"""Runs an app in a directory of its own, on the input of windows or on new input, and reads what it publishes there."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import pyarrow as pa

from dagflow.api.context import Skipped
from dagflow.api.refused_records import REJECTS
from dagflow.api.transactions import RowOrigin, Target, TransactionalSink, targets_of
from dagflow.engine.limited_run import MOVE_IT, relocated_app
from dagflow.engine.preparation import LocationCollector, prepare_operator
from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.engine.stop_request import StopRequest
from dagflow.errors import DagflowError, RunStoppedError, SourceChangedError, own_name
from dagflow.execution.task_outputs import OutputBounds
from dagflow.journal.reader import all_windows, published_urls, read_journal
from dagflow.journal.state import JournalState
from dagflow.journal.windows import Window, WindowPlan
from dagflow.plan.accumulators import accumulators, wants_to_follow
from dagflow.plan.load import load_app, logical_plan
from dagflow.plan.logical import LogicalPlan
from dagflow.report.open_rejects import refused_rows
from dagflow.report.published_rows import PublishedRows, rows_of_files
from dagflow.runtime.scratch import Scratch, sweep
from dagflow.spec.class_lookup import OPERATOR, find_class, search_path_of
from dagflow.storage.context import StorageContext
from dagflow.storage.location import join, redacted
from dagflow.storage.objects import ObjectStore
from dagflow.storage.pending import PendingFile


@dataclass(slots=True)
class Output:
    """The output of one operator, where the app has it or in the directory of the comparison."""

    operator: str
    storage: StorageContext
    locations: list[str]
    target: Target | None
    origin: RowOrigin | None

    @property
    def keys(self) -> Sequence[str]:
        return () if self.target is None else self.target.keys

    @property
    def name(self) -> str:
        return self.target.name if self.target is not None else ", ".join(map(redacted, self.locations))

    def rows(self, store: ObjectStore, state: JournalState) -> PublishedRows:
        """All rows that are there."""
        if self.target is None:
            return self._of_files(published_urls(store, state) if state.last_committed else ())
        return PublishedRows.of_stream(self.target.rows)

    def _of_files(self, urls: Iterable[str]) -> PublishedRows:
        below = tuple(f"{location}/" for location in self.locations)
        return rows_of_files(self.storage, self.locations[0], sorted({url for url in urls if url.startswith(below)}))

    def of_files(self, files: Iterable[PendingFile]) -> PublishedRows:
        """The rows of data files."""
        return self._of_files(file.final_url for file in files if file.target in ("", self.operator))

    def rows_of_windows(self, windows: Iterable[Window]) -> PublishedRows:
        """The rows that some windows have published.

        Raises:
            DagflowError: The output does not say which rows these are.
        """
        if self.target is None:
            return self.of_files(file for window in windows if window.intent for file in window.intent.files)
        found = PublishedRows.of_stream(self.target.rows)
        column = "" if self.origin is None or self.keys else self.origin.window
        if found.schema.names and column not in found.schema.names:
            raise DagflowError(
                f"{self.name} does not say which of its rows are of which window",
                hint="compare all windows, without --window and --files",
            )
        ids = pa.array([window.plan.window_id for window in windows], pa.int64())
        return found.where(column, ids)


def outputs_of(app: LogicalPlan) -> list[Output]:
    """What the operators of an app publish."""
    storage = app.attributes.storage_context()
    targets, outputs = targets_of(app.instances, storage), []
    for name, operator in app.instances.items():
        collector = LocationCollector(storage)
        if not operator.output_ports.keys() - {REJECTS}:
            prepare_operator(name, operator, collector)
        if collector.outputs:
            origin = operator.row_origin() if isinstance(operator, TransactionalSink) else None
            outputs.append(Output(name, storage, list(collector.outputs), targets.get(name), origin))
    return outputs


@dataclass(slots=True)
class Apart:
    """A directory in which an app runs, and publishes."""

    app: LogicalPlan
    options: RunOptions
    stop: StopRequest
    directory: str
    _plan: LogicalPlan | None = field(default=None)

    @property
    def checkpoint(self) -> str:
        return join(self.directory, "journal")

    def run(self, again: Sequence[WindowPlan] | None) -> None:
        """Run the app on windows, or on new input; its output is added to that so far."""
        bounds = OutputBounds(join(self.directory, "out"), "a comparison", MOVE_IT)
        self._plan = plan = relocated_app(self.app, bounds, with_origins=True)
        for operator in accumulators(plan.instances).values():
            if operator.over is None and wants_to_follow(self.app):
                operator.over = "window"
        options = replace(self.options, checkpoint=self.checkpoint, again=again, output_bounds=bounds, is_apart=True)
        if run(plan, options, stop=self.stop).state == "stopped":
            raise RunStoppedError("the comparison was asked to stop; nothing was changed")

    def run_again(self, windows: Iterable[Window]) -> None:
        """Run the app on the input of windows, without what was corrected since.

        Raises:
            SourceChangedError: Input that was read then is left out now: it would look as if its rows were removed.
        """
        plans, skipped, lost = [], list[Skipped](), self.options.lost
        for window in windows:
            plans.append(window.plan)
            skipped += window.intent.skipped if window.intent else ()
        corrected = {skip.version: skip for skip in skipped if skip.cause == "corrected"}
        self.options = replace(self.options, lost={**lost, **corrected})
        # A window that publishes results over several windows takes in all before it.
        ends = [number for number, plan in enumerate(plans, 1) if plan.closes]
        for start, end in pairwise([0, *ends, len(plans)]):
            if start < end:
                self.run(plans[start:end])
        known = {(skip.version, skip.start) for skip in skipped}
        for skip in (skip for window in self.windows() if window.intent for skip in window.intent.skipped):
            if (skip.version, skip.start) not in known and skip.version not in lost:
                raise SourceChangedError(
                    f"this file was read, and would be left out now: {skip.reason}",
                    url=redacted(skip.url),
                    hint="put the version back that was read; or choose windows that have not read it, with --window",
                )

    def loaded(self, text: str, source: str) -> LogicalPlan:
        """The app that a file had, by its text at that time."""
        file = Path(self.directory, "app.yaml")
        file.write_text(text)
        return load_app(file, search_path=search_path_of(source))

    def windows(self, first: int = 0) -> Iterator[Window]:
        return all_windows(*self._opened(), first)

    def rejects(self, first: int = 0) -> PublishedRows:
        """What the windows from one on have refused, as refused_rows()."""
        return refused_rows(lambda: self.windows(first), ())

    def _opened(self) -> tuple[ObjectStore, JournalState]:
        return read_journal(self.app.attributes.storage_context(), self.checkpoint)

    def rows_of(self, operator: str) -> PublishedRows:
        """What an operator has published here."""
        output = next(each for each in outputs_of(self._plan or self.app) if each.operator == operator)
        return output.rows(*self._opened())


@contextlib.contextmanager
def apart_run(app: LogicalPlan, options: RunOptions, stop: StopRequest) -> Iterator[Apart]:
    """A directory for a comparison, which is removed at the end, or by a later comparison if it was killed."""
    parent = os.path.abspath(".dagflow")
    os.makedirs(parent, exist_ok=True)
    sweep(parent)
    with contextlib.closing(Scratch(parent)) as scratch:
        yield Apart(app, options, stop, str(scratch.path))


def with_rows_kept(app: LogicalPlan, operator: str, directory: str, totals: Iterable[str] = ()) -> LogicalPlan:
    """The app with Parquet files in place of an output: its rows say where they are from, and none replaces another.

    Args:
        totals: Operators whose results are to be of single windows.
    """
    if app.spec is None:
        return app
    properties = {"table": f"parquet:{directory}/kept/{operator}", "metadata_columns": ["file", "offset", "window"]}
    writer, specs = find_class("TableWriter", (), OPERATOR), dict(app.spec.operators)
    specs[operator] = replace(specs[operator], class_name="TableWriter", operator_class=writer, properties=properties)
    for name in {*map(own_name, totals)} & {*specs}:
        specs[name] = replace(specs[name], properties={**specs[name].properties, "over": "window"})
    return logical_plan(replace(app.spec, operators=specs))
