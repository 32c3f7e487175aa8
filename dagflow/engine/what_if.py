"""What windows that run again, or new input, would change in the output: they run in a directory of their own.

Nothing outside of that directory is written, and what is published there is compared with what is there now.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pyarrow as pa

from dagflow.api.context import Skipped, VersionKey
from dagflow.engine.apart import Apart, Output, apart_run, outputs_of, refused_in
from dagflow.engine.corrections import Superseded
from dagflow.engine.kept_totals import totals_by_output
from dagflow.engine.preparation import target_problems
from dagflow.engine.replay_scope import replaced_files, with_their_groups
from dagflow.engine.run_setup import RunOptions, open_journal
from dagflow.engine.stop_request import StopRequest
from dagflow.errors import (
    DagflowError,
    JournalError,
    MissingJournalError,
    PlanError,
    RunStoppedError,
    SourceChangedError,
    own_name,
)
from dagflow.frozen import frozen
from dagflow.journal.reader import all_windows, newest_windows, read_state
from dagflow.journal.state import JournalState
from dagflow.journal.windows import Window, WindowPlan
from dagflow.plan.accumulators import wants_to_follow
from dagflow.plan.load import load_app
from dagflow.plan.logical import LogicalPlan
from dagflow.plan.placement import place
from dagflow.plan.stream_columns import stream_columns
from dagflow.report.open_rejects import ShownReject
from dagflow.report.published_rows import content_of
from dagflow.report.row_differences import RowDifferences, differences
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
        before: How many rows it has now: of the windows that are compared, as far as the output tells them apart.
    """

    operator: str
    name: str
    before: int
    rows: RowDifferences


@frozen
class WhatIf:
    """What would change.

    Attributes:
        windows: How many windows have run.
        returning: Refused records that would be accepted.
        refused: Records that would be refused, and are not now.
    """

    windows: int
    outputs: Sequence[OutputDifferences]
    returning: Sequence[ShownReject] = ()
    refused: Sequence[ShownReject] = ()

    @property
    def is_change(self) -> bool:
        return bool(self.returning or self.refused) or any(not each.rows.is_none for each in self.outputs)


def if_replayed(app: LogicalPlan, options: RunOptions, chosen: Collection[int] | None, stop: StopRequest) -> WhatIf:
    """What would be there if the app, as it is now, had processed windows of a checkpoint.

    Args:
        options: The checkpoint, and how many processes of this machine run the tasks.
        chosen: The windows; None for all.

    Raises:
        SourceChangedError: The input of a window is no longer what it was.
        DagflowError: A window fails, or the output does not say which rows are of which window.
    """
    store, state = _finished(app, options)
    if state is None:
        return WhatIf(0, ())
    if chosen is None and state.forgotten:
        raise JournalError(
            f"windows up to {state.forgotten} are no longer kept, and cannot run again",
            url=redacted(store.url),
            hint="choose windows that are kept, with --window",
        )
    windows = [each for each in all_windows(store, state) if chosen is None or each.plan.window_id in chosen]
    with apart_run(app, options, stop) as apart, apart_run(app, options, stop) as apart_as_it_was:
        apart.run_again(windows)
        _require_read(windows, apart.windows())
        was = _AsItWas(apart_as_it_was, state, windows)
        outputs = []
        for output in outputs_of(app):
            after = apart.rows_of(output.operator)
            before = output.rows(store, state) if chosen is None else output.rows_of_windows(windows)
            rows = output.compare(was.with_origins(output, before, after), after)
            outputs.append(OutputDifferences(output.operator, output.name, len(before), rows))
        were = refused_in(windows, state)
        returning, refused = _apart_from(were, apart.rejects()), _apart_from(apart.rejects(), were)
        return WhatIf(len(windows), outputs, returning, refused)


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
        apart.run(None)
        before = 0 if state is None else state.last_committed
        new = [window for window in apart.windows() if window.plan.window_id > before]
        corrected = _Corrected(app, options, stop, store, state or JournalState())
        with corrected.without_old_versions([window.plan for window in new]) as rest:
            outputs = []
            for output in outputs_of(app):
                there, after = output.rows(store, state or JournalState()), apart.rows_of(output.operator)
                replaced = output.with_keys_of(there, after)
                if rest is not None:
                    replaced = output.of_files(corrected.files)
                    after = pa.concat_tables([rest.rows_of(output.operator), after], promote_options="permissive")
                rows = output.compare(replaced, after)
                outputs.append(OutputDifferences(output.operator, output.name, len(there), rows))
            refused = refused_in(new, JournalState())
            returning = _apart_from(corrected.rejects, refused)
            return WhatIf(len(new), outputs, returning, _apart_from(refused, corrected.rejects))


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


def _require_read(windows: Sequence[Window], again: Sequence[Window], lost: Collection[VersionKey] = ()) -> None:
    """Refuse input that was read then and is left out now: it would look as if its rows were removed."""
    known = {(skip.version, skip.start) for window in windows if window.intent for skip in window.intent.skipped}
    for skip in (skip for window in again if window.intent for skip in window.intent.skipped):
        if (skip.version, skip.start) not in known and skip.version not in lost:
            raise SourceChangedError(
                f"this file was read, and would be left out now: {skip.reason}",
                url=redacted(skip.url),
                hint="put the version back that was read; or choose windows that have not read it, with --window",
            )


def _apart_from(
    rejects: dict[tuple[str, int], ShownReject], others: dict[tuple[str, int], ShownReject]
) -> list[ShownReject]:
    return [each for place, each in rejects.items() if place not in others]


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
    rejects: dict[tuple[str, int], ShownReject] = field(default_factory=dict)

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
        if totals := totals_by_output(place(self.app), self.app.instances):
            raise DagflowError(
                f"which totals of operator '{own_name(min(totals))}' a corrected or deleted file would let go is known "
                "when the run has taken them out",
                hint="run it without --diff, and compare the table with its version before",
            )
        with apart_run(self.app, replace(self.options, lost=lost), self.stop) as rest:
            _copy(storage, self.store.url, join(rest.directory, "copy"))
            copy = storage.objects(join(rest.directory, "copy"))
            with contextlib.closing(open_journal(self.app, copy)) as journal:
                scope = with_their_groups(journal, ids)
                windows = [journal.window(window_id) for window_id in scope.all]
            refused, urls = refused_in(windows, self.state), {redacted(version[0]) for version in lost}
            self.rejects |= {place: each for place, each in refused.items() if each.file in urls}
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
    windows: Sequence[Window]
    _is_run: bool | None = None

    def with_origins(self, output: Output, before: pa.Table, after: pa.Table) -> pa.Table:
        """The rows with file and offset, if that app gives the same rows; otherwise as they are."""
        origin = output.origin
        if origin is None or output.keys or {origin.file, origin.offset} <= {*before.column_names}:
            return before
        if output.compare(before, after).is_none or not self._has_run():
            return before
        rows = self.apart.rows_of(output.operator)
        is_same = differences(before, rows, hidden=(origin.window, origin.file, origin.offset)).is_none
        return rows if is_same else before

    def _has_run(self) -> bool:
        """Whether the app could run again on the windows."""
        if self._is_run is None:
            file = Path(self.apart.directory, "app.yaml")
            file.write_text(self.state.text)
            try:
                self.apart.app = load_app(file, search_path=search_path_of(self.state.source))
                self.apart.run_again(self.windows)
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
