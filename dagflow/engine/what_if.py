"""What windows that run again, or new input, would change in the output: they run in a directory of their own.

Nothing outside of that directory is written, and what is published there is compared with what is there now.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import field, replace
from functools import cache, partial
from itertools import pairwise
from pathlib import Path

import pyarrow as pa

from dagflow.api.context import Skipped
from dagflow.api.refused_records import REJECTS
from dagflow.api.transactions import RowOrigin, Target, TransactionalSink, targets_of
from dagflow.engine.corrections import Superseded
from dagflow.engine.limited_run import MOVE_IT, relocated_app
from dagflow.engine.live_run import StopRequest
from dagflow.engine.preparation import LocationCollector
from dagflow.engine.repeatable import totals_by_output
from dagflow.engine.replay_scope import replaced_files, replay_scope, with_retries
from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions, open_journal
from dagflow.errors import (
    DagflowError,
    JournalError,
    MissingJournalError,
    RunStoppedError,
    SourceChangedError,
    own_name,
)
from dagflow.execution.task_outputs import OutputBounds
from dagflow.frozen import frozen, mutable
from dagflow.journal.reader import all_windows, published_urls, read_journal, read_state
from dagflow.journal.state import JournalState
from dagflow.journal.windows import Window, WindowPlan
from dagflow.plan.accumulators import accumulators, wants_to_follow
from dagflow.plan.load import load_app, logical_plan
from dagflow.plan.logical import LogicalPlan, reached
from dagflow.plan.placement import place
from dagflow.plan.stream_columns import require_columns
from dagflow.report.open_rejects import refused_rows
from dagflow.report.published_rows import Identity, PublishedRows, RowDifferences, differences, rows_of_files
from dagflow.runtime.scratch import Scratch, sweep
from dagflow.spec.class_lookup import OPERATOR, find_class, search_path_of
from dagflow.storage.base import ObjectStore
from dagflow.storage.context import StorageContext
from dagflow.storage.files import PythonFile
from dagflow.storage.location import absolute, join, name_of, redacted
from dagflow.storage.pending import PendingFile


@mutable
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
        if self.target is None:
            return self._of_files(published_urls(store, state) if state.last_committed else ())
        return PublishedRows.of_stream(self.target.rows)

    def _of_files(self, urls: Iterable[str]) -> PublishedRows:
        below = tuple(f"{location}/" for location in self.locations)
        return rows_of_files(self.storage, self.locations[0], sorted({url for url in urls if url.startswith(below)}))

    def of_files(self, files: Iterable[PendingFile]) -> PublishedRows:
        return self._of_files(file.final_url for file in files if file.target in ("", self.operator))

    def rows_of_windows(self, windows: Iterable[Window]) -> PublishedRows:
        """The rows that some windows have published; an error if the output does not say which these are."""
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
    storage = app.attributes.storage_context()
    targets, outputs = targets_of(app.instances, storage), []
    for name, operator in app.instances.items():
        collector = LocationCollector(storage)
        if not operator.output_ports.keys() - {REJECTS}:
            collector.prepare({name: operator})
        if collector.outputs:
            origin = operator.row_origin() if isinstance(operator, TransactionalSink) else None
            outputs.append(Output(name, storage, list(collector.outputs), targets.get(name), origin))
    return outputs


@mutable
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


logger = logging.getLogger(__name__)


@frozen
class OutputDifferences:
    """What would change in the output of one operator.

    Attributes:
        name: Its name in messages, such as "table delta:out/orders".
        rejects: The same of the records that operators before it refuse: "removed" are those that would be accepted.
    """

    operator: str
    name: str
    rows: RowDifferences
    rejects: RowDifferences


@frozen
class WhatIf:
    """What would change."""

    windows: int
    outputs: Sequence[OutputDifferences]
    rejects: RowDifferences

    @property
    def is_change(self) -> bool:
        rejects = self.rejects
        return bool(rejects.added or rejects.removed) or any(not each.rows.is_none for each in self.outputs)


def if_replayed(app: LogicalPlan, options: RunOptions, chosen: Collection[int] | None, stop: StopRequest) -> WhatIf:
    """What would be there if the app, as it is now, had processed windows of a checkpoint.

    Args:
        options: The checkpoint, and how many processes of this machine run the tasks.

    Raises:
        SourceChangedError: The input of a window is no longer what it was.
        DagflowError: A window fails, or the output does not say which rows are of which window.
    """
    store, state = _finished(app, options)
    if chosen is None and state.forgotten:
        raise JournalError(
            f"windows up to {state.forgotten} are no longer kept, and cannot run again",
            url=redacted(store.url),
            hint="choose windows that are kept, with --window",
        )
    if chosen is not None and state.retried:
        chosen = with_retries(all_windows(store, state), chosen, state.forgotten)

    def windows() -> Iterator[Window]:
        return (each for each in all_windows(store, state) if chosen is None or each.plan.window_id in chosen)

    with apart_run(app, options, stop) as apart, apart_run(app, options, stop) as as_it_was:
        apart.run_again(windows())
        has_run = cache(partial(_runs_as_it_was, as_it_was, state, windows))

        def compared(output: Output) -> RowDifferences:
            before = output.rows(store, state) if chosen is None else output.rows_of_windows(windows())
            after, directory = apart.rows_of(output.operator), apart.directory
            by = Identity(output.keys, output.origin)
            found = differences(before, after, by, directory)
            if output.keys or {*by.place} <= {*before.schema.names} or found.is_none or not has_run():
                return found
            # The app as it was finds out from where the rows are, if it gives the rows that are there.
            rows = as_it_was.rows_of(output.operator)
            is_same = differences(before, rows, by, directory).is_none
            return differences(rows, after, by, directory) if is_same else found

        refused = refused_rows(windows, state.retried), apart.rejects()
        return _what_if(app, sum(1 for _ in windows()), compared, refused, apart.directory)


def if_run(app: LogicalPlan, options: RunOptions, stop: StopRequest) -> WhatIf:
    """What the next run of an app would change: the new rows, and the rows that they replace.

    Args:
        options: The checkpoint, and how many processes of this machine run the tasks.

    Raises:
        DagflowError: The run fails, or an earlier run is not finished.
    """
    if wants_to_follow(app):
        raise DagflowError(
            "an app that follows its input has no end to compare",
            hint="let it end: --set SPLITTER.follow=false, with the name of the splitter",
        )
    (store, state), storage = _finished(app, options), app.attributes.storage_context()
    with apart_run(app, options, stop) as apart, apart_run(app, options, stop) as rest:
        if state.facts is not None:
            _copy(storage, store.url, apart.checkpoint)
        # A total that goes is in no table of its own.
        totals = totals_by_output(place(app), app.instances)
        for name in totals:
            apart.app = with_rows_kept(apart.app, name, apart.directory)
        apart.run(None)
        new = [window.plan for window in apart.windows(state.last_committed + 1)]
        superseded = Superseded(store, state, storage)
        lost = [pair for plan in new if plan.corrects for pair in superseded.by(plan, ()).items()]
        versions = {version: skip for _, own in lost for version, skip in own.items()}
        urls = sorted({redacted(version[0]) for version in versions})
        files, refused = list[PendingFile](), refused_rows(lambda: (), ())
        if lost:
            rest.options = replace(options, lost=versions)
            files, windows = _run_again(rest, store, {window_id for window_id, _ in lost})
            refused = refused_rows(lambda: windows, state.retried).where("file", pa.array(urls, pa.string()))

        def compared(output: Output) -> RowDifferences:
            there, after = output.rows(store, state), apart.rows_of(output.operator)
            if not lost or output.operator in totals:
                before = there if output.keys else PublishedRows(there.schema, tuple)
                by = Identity(output.keys, output.origin, replaces=bool(output.keys))
            else:
                before = output.of_files(files)
                after = PublishedRows.together([rest.rows_of(output.operator), after])
                by = Identity(output.keys, output.origin, urls)
            return replace(differences(before, after, by, apart.directory), rows=there.count())

        rejects = refused, apart.rejects(state.last_committed + 1)
        return _what_if(app, len(new), compared, rejects, apart.directory)


def _run_again(rest: Apart, store: ObjectStore, ids: Collection[int]) -> tuple[list[PendingFile], list[Window]]:
    """Run windows without the versions that are lost; return the files that they replace, and all concerned windows."""
    storage, copy = rest.app.attributes.storage_context(), join(rest.directory, "copy")
    _copy(storage, store.url, copy)
    with contextlib.closing(open_journal(rest.app, storage.objects(copy))) as journal:
        scope = replay_scope(journal, ids, lambda files: {})
        windows = [journal.window(window_id) for window_id in scope.all]
    rest.run_again(window for window in windows if window.plan.window_id in scope.again)
    return [file for window in windows for file in replaced_files(window, scope)], windows


def _what_if(
    app: LogicalPlan,
    windows: int,
    compared: Callable[[Output], RowDifferences],
    refused: tuple[PublishedRows, PublishedRows],
    directory: str,
) -> WhatIf:
    """What changes in each output, and in the refused records: of the operators before it, and of all."""

    def rejects(before: PublishedRows, after: PublishedRows) -> RowDifferences:
        return differences(before, after, Identity(("file", "offset")), directory)

    arcs = [edge.arc[::-1] for edge in app.edges if edge.source.port != REJECTS]
    outputs = []
    for output in outputs_of(app):
        names = pa.array(reached(output.operator, arcs)[1:], pa.string())
        own = rejects(*(rows.where("operator", names) for rows in refused))
        outputs.append(OutputDifferences(output.operator, output.name, compared(output), own))
    return WhatIf(windows, outputs, rejects(*refused))


def _finished(app: LogicalPlan, options: RunOptions) -> tuple[ObjectStore, JournalState]:
    """The checkpoint of an app and its state; nothing in it waits to be published."""
    # A table of the comparison would take what that of the app does not.
    outputs_of(app)
    require_columns(app)
    store = app.attributes.storage_context().objects(absolute(options.checkpoint or app.attributes.checkpoint))
    try:
        state = read_state(store)
    except MissingJournalError:
        return store, JournalState()
    if state.planned or state.intents or state.reprocessing or any(state.held.waiting.values()):
        raise JournalError(
            "an earlier run or replay is not finished: what it will publish is not there yet",
            url=redacted(store.url),
            hint="let it be finished: dagflow run",
        )
    return store, state


def _runs_as_it_was(apart: Apart, state: JournalState, windows: Callable[[], Iterable[Window]]) -> bool:
    try:
        apart.app = apart.loaded(state.text, state.source)
        apart.run_again(windows())
    except RunStoppedError:
        raise
    except DagflowError as error:
        logger.info("the app as it was does not run again error=%s", error)
        return False
    return True


def _copy(storage: StorageContext, checkpoint: str, directory: str) -> None:
    Path(directory).mkdir(parents=True)
    for entry in storage.list_directory(checkpoint):
        path = Path(directory, name_of(entry.url))
        if entry.is_directory:
            _copy(storage, entry.url, str(path))
        else:
            with PythonFile(storage.open_file(entry.url)) as file:
                path.write_bytes(file.read())
