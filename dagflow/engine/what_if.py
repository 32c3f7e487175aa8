"""What windows that run again, or new input, would change in the output: they run in a directory of their own.

Nothing outside of that directory is written, and what is published there is compared with what is there now.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pyarrow as pa

from dagflow.api.context import Skipped, VersionKey
from dagflow.api.refused_records import REJECTS
from dagflow.engine.apart import Apart, Output, apart_run, outputs_of, with_rows_kept
from dagflow.engine.corrections import Superseded
from dagflow.engine.kept_totals import totals_by_output
from dagflow.engine.preparation import target_problems
from dagflow.engine.replay_scope import replaced_files, replay_scope, with_retries
from dagflow.engine.run_setup import RunOptions, open_journal
from dagflow.engine.stop_request import StopRequest
from dagflow.errors import (
    DagflowError,
    JournalError,
    MissingJournalError,
    PlanError,
    RunStoppedError,
    SourceChangedError,
)
from dagflow.frozen import frozen
from dagflow.journal.reader import all_windows, newest_windows, read_state
from dagflow.journal.state import JournalState
from dagflow.journal.windows import Window, WindowPlan
from dagflow.late import compute as pc
from dagflow.plan.accumulators import wants_to_follow
from dagflow.plan.load import load_app
from dagflow.plan.logical import LogicalPlan
from dagflow.plan.placement import place
from dagflow.plan.stream_columns import stream_columns
from dagflow.report.open_rejects import refused_rows
from dagflow.report.published_rows import PublishedRows, content_of
from dagflow.report.row_differences import Identity, RowDifferences, differences
from dagflow.spec.class_lookup import search_path_of
from dagflow.spec.problems import Problems
from dagflow.storage.context import StorageContext
from dagflow.storage.location import absolute, join, name_of, redacted
from dagflow.storage.objects import ObjectStore
from dagflow.storage.pending import PendingFile

logger = logging.getLogger(__name__)


@frozen
class OutputDifferences:
    """What would change in the output of one operator.

    Attributes:
        operator: The operator that writes it.
        name: Its name in messages, such as "table delta:out/orders".
        rejects: The same of the records that operators before it refuse: "removed" are those that would be accepted.
    """

    operator: str
    name: str
    rows: RowDifferences
    rejects: RowDifferences


@frozen
class WhatIf:
    """What would change.

    Attributes:
        windows: How many windows have run.
        rejects: What would change in the refused records of all operators.
    """

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
        chosen: The windows; None for all.

    Raises:
        SourceChangedError: The input of a window is no longer what it was.
        DagflowError: A window fails, or the output does not say which rows are of which window.
    """
    store, found = _finished(app, options)
    state = found or JournalState()
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

    with apart_run(app, options, stop) as apart, apart_run(app, options, stop) as apart_as_it_was:
        apart.run_again(windows())
        _require_read(windows(), apart.windows())
        was = _AsItWas(apart_as_it_was, state, windows)
        refused = refused_rows(windows, state.retried), apart.rejects()
        outputs = []
        for output in outputs_of(app):
            after = apart.rows_of(output.operator)
            before = output.rows(store, state) if chosen is None else output.rows_of_windows(windows())
            rows = was.compared(output, before, after)
            outputs.append(OutputDifferences(output.operator, output.name, rows, _rejects(*refused, apart, output)))
        return WhatIf(sum(1 for _ in windows()), outputs, _rejects(*refused, apart))


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
    store, state = _finished(app, options)
    with apart_run(app, options, stop) as apart:
        if state is not None:
            _copy(app.attributes.storage_context(), store.url, apart.checkpoint)
        # A total that goes is in no table of its own.
        totals = totals_by_output(place(app), app.instances)
        for name in totals:
            apart.app = with_rows_kept(apart.app, name, apart.directory)
        apart.run(None)
        known = state or JournalState()
        new = [window for window in apart.windows() if window.plan.window_id > known.last_committed]
        corrected = _Corrected(app, options, stop, store, known)
        with corrected.without_old_versions([window.plan for window in new]) as rest:
            refused = corrected.rejects, apart.rejects(known.last_committed)
            outputs = []
            for output in outputs_of(app):
                there, after, by = output.rows(store, known), apart.rows_of(output.operator), output.identity
                if rest is None or output.operator in totals:
                    before = there if output.keys else PublishedRows(there.schema, lambda: ())
                    by = replace(by, replaces=bool(output.keys))
                else:
                    before, by = corrected.rows_in(output), replace(by, has_moved=True)
                    after = PublishedRows.together([rest.rows_of(output.operator), after])
                rows = replace(differences(before, after, by, apart.directory), rows=there.count())
                outputs.append(OutputDifferences(output.operator, output.name, rows, _rejects(*refused, apart, output)))
            return WhatIf(len(new), outputs, _rejects(*refused, apart))


def _rejects(before: PublishedRows, after: PublishedRows, apart: Apart, output: Output | None = None) -> RowDifferences:
    """What would change in the refused records of the operators before an output, or of all."""
    if output is not None:
        names = pa.array(sorted(_upstream(apart.app, output.operator)), pa.string())
        before, after = (rows.where(lambda part: pc.is_in(part["operator"], names)) for rows in (before, after))
    return differences(before, after, Identity(("file", "offset")), apart.directory)


def _upstream(app: LogicalPlan, operator: str) -> set[str]:
    """The operators whose records reach another one, not as refused ones."""
    found, waiting = set[str](), [operator]
    while waiting:
        name = waiting.pop()
        sources = {edge.source for edge in app.edges if edge.target.operator == name}
        more = {each.operator for each in sources if each.port != REJECTS} - found
        found |= more
        waiting += more
    return found


def _finished(app: LogicalPlan, options: RunOptions) -> tuple[ObjectStore, JournalState | None]:
    """The checkpoint of an app and its state, None before the first run; nothing in it waits to be published."""
    # A table of the comparison would take what that of the app does not.
    found, problems = target_problems(app), Problems()
    stream_columns(app, problems)
    if found or problems:
        raise PlanError([*found, *problems.found])
    store = app.attributes.storage_context().objects(absolute(options.checkpoint or app.attributes.checkpoint))
    try:
        state = read_state(store)
    except MissingJournalError:
        return store, None
    if state.planned or state.intents or state.reprocessing or any(state.held.waiting.values()):
        raise JournalError(
            "an earlier run or replay is not finished: what it will publish is not there yet",
            url=redacted(store.url),
            hint="let it be finished: dagflow run",
        )
    return store, state


def _require_read(windows: Iterable[Window], again: Iterable[Window], lost: Collection[VersionKey] = ()) -> None:
    """Refuse input that was read then and is left out now: it would look as if its rows were removed."""
    known = {(skip.version, skip.start) for window in windows if window.intent for skip in window.intent.skipped}
    for skip in (skip for window in again if window.intent for skip in window.intent.skipped):
        if (skip.version, skip.start) not in known and skip.version not in lost:
            raise SourceChangedError(
                f"this file was read, and would be left out now: {skip.reason}",
                url=redacted(skip.url),
                hint="put the version back that was read; or choose windows that have not read it, with --window",
            )


@dataclass(slots=True)
class _Corrected:
    """What corrected and deleted files would take out of the output.

    Attributes:
        files: The files that would be replaced: those of the windows that have read an earlier version.
        rejects: The refused records of earlier versions, by place.
    """

    app: LogicalPlan
    options: RunOptions
    stop: StopRequest
    store: ObjectStore
    state: JournalState
    files: list[PendingFile] = field(default_factory=list)
    rejects: PublishedRows = field(init=False)
    lost: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rejects = refused_rows(lambda: (), ())

    def rows_in(self, output: Output) -> PublishedRows:
        """The rows of an output that would be replaced; all that leave are of the corrected file, if it is one."""
        rows, origin = output.of_files(self.files), output.origin
        if origin is None or len(self.lost) > 1 or origin.file in rows.schema.names:
            return rows
        return rows.with_columns(pa.schema([(origin.file, pa.string())]), self.lost[0])

    @contextlib.contextmanager
    def without_old_versions(self, plans: Sequence[WindowPlan]) -> Iterator[Apart | None]:
        """Where the windows that have read earlier versions have run again without these; None where there are none."""
        storage = self.app.attributes.storage_context()
        superseded = Superseded(partial(newest_windows, self.store, self.state), self.state.forgotten, storage)
        lost: dict[VersionKey, Skipped] = {}
        ids: set[int] = set()
        for plan in (plan for plan in plans if plan.corrects):
            for window_id, versions in superseded.by(plan, ()).items():
                ids.add(window_id)
                lost |= versions
        if not ids:
            yield None
            return
        with apart_run(self.app, replace(self.options, lost=lost), self.stop) as rest:
            _copy(storage, self.store.url, join(rest.directory, "copy"))
            copy = storage.objects(join(rest.directory, "copy"))
            with contextlib.closing(open_journal(self.app, copy)) as journal:
                scope = replay_scope(journal, ids, lambda files: {})
                windows = [journal.window(window_id) for window_id in scope.all]
            self.lost = sorted({version[0] for version in lost})
            urls = pa.array(map(redacted, self.lost), pa.string())
            refused = refused_rows(lambda: windows, self.state.retried)
            self.rejects = refused.where(lambda part: pc.is_in(part["file"], urls))
            self.files += [file for window in windows for file in replaced_files(window, scope)]
            again = [window for window in windows if window.plan.window_id in scope.again]
            rest.run_again(again)
            _require_read(again, rest.windows(), lost)
            yield rest


@dataclass(slots=True)
class _AsItWas:
    """The app as its newest run found it, which finds out from where the rows of a table are that do not say it."""

    apart: Apart
    state: JournalState
    windows: Callable[[], Iterable[Window]]
    _is_run: bool | None = None

    def compared(self, output: Output, before: PublishedRows, after: PublishedRows) -> RowDifferences:
        """The differences of an output: by file and offset, if that app gives the same rows as there are."""
        by, origin, directory = output.identity, output.origin, self.apart.directory
        found = differences(before, after, by, directory)
        if origin is None or output.keys or {*by.place} <= {*before.schema.names} or found.is_none:
            return found
        if not self._has_run():
            return found
        rows = self.apart.rows_of(output.operator)
        is_same = differences(before, rows, Identity(hidden=(*by.place, *by.hidden)), directory).is_none
        return differences(rows, after, by, directory) if is_same else found

    def _has_run(self) -> bool:
        """Whether the app could run again on the windows."""
        if self._is_run is None:
            file = Path(self.apart.directory, "app.yaml")
            file.write_text(self.state.text)
            try:
                self.apart.app = load_app(file, search_path=search_path_of(self.state.source))
                self.apart.run_again(self.windows())
                self._is_run = True
            except RunStoppedError:
                raise
            except DagflowError as error:
                logger.info("the app as it was does not run again error=%s", error)
                self._is_run = False
        return self._is_run


def _copy(storage: StorageContext, checkpoint: str, directory: str) -> None:
    """Copy a checkpoint into a directory of this machine."""
    Path(directory).mkdir(parents=True)
    for entry in storage.list_directory(checkpoint):
        path = join(directory, name_of(entry.url))
        if entry.is_directory:
            _copy(storage, entry.url, path)
        else:
            Path(path).write_bytes(content_of(storage, entry.url))
