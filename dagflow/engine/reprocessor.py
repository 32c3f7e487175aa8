"""Runs windows again with the app as it is now, on the blocks that they had, and replaces what they published."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import wait
from dataclasses import dataclass, replace

from dagflow.api.transactions import targets_of
from dagflow.engine.control_graph import waits_for_results
from dagflow.engine.file_changes import ReprocessedWindow, file_changes
from dagflow.engine.operator_state import is_stateful
from dagflow.engine.placed_app import PlacedApp
from dagflow.engine.recovery import finish_reprocess
from dagflow.engine.scaling import Scaling
from dagflow.engine.side_inputs import SideInputs
from dagflow.engine.stop_request import TICK_S, StopRequest, abandon
from dagflow.engine.window_codec import WindowCodec, require_names_apart, require_takers
from dagflow.engine.window_committer import intent_of
from dagflow.errors import (
    START_OVER,
    DagflowError,
    JournalError,
    MissingError,
    RunStoppedError,
    SourceChangedError,
    StorageError,
)
from dagflow.execution.messages import TaskResult
from dagflow.journal import ControlState, Journal, JournalState, Reprocess, WindowIntent, WindowPlan
from dagflow.runtime.base import Runtime
from dagflow.storage.context import StorageContext
from dagflow.storage.location import redacted
from dagflow.storage.pending import PendingFile, pending_tag
from dagflow.storage.publishing import discard_all

_PUT_BACK = "put the version back that was read; nothing was replaced"


@dataclass(frozen=True, slots=True)
class _Published:
    """A window as it is before it is reprocessed.

    Attributes:
        planned: Its plan.
        intent: Its intent, of the newest reprocessing if that could not be finished.
        files: The files that it published.
        lost: Files that an earlier reprocessing made, and that were lost before they were in their places.
    """

    planned: WindowPlan
    intent: WindowIntent
    files: list[PendingFile]
    lost: list[PendingFile]

    @property
    def urls(self) -> set[str]:
        return {file.final_url for file in [*self.files, *self.lost]}


@dataclass(frozen=True, slots=True)
class _Rerun:
    """A window that ran again; the files of its new intent are pending."""

    published: _Published
    intent: WindowIntent


class Reprocessor:
    """Reprocesses windows of one journal.

    Guarantee: no published file is replaced before all new files, of all windows together, are complete and durable
    and one record of the journal holds their names. From that record on all of them will be replaced, by the next run
    or reprocessing where this process dies. Each file is replaced at once and as a whole. No file of another window is
    touched.

    Args:
        journal: Open, with its epoch claimed.
        app: The app as it is now.
        runtime: Gives the runtime; called when the first window runs.
        stop: Asks to end early.
        parallelism: Tasks that run at the same time.
        side_inputs: Gives the side inputs, as they are now.

    Raises:
        JournalError: The app cannot reprocess, because what it publishes depends on more than a window's blocks.
    """

    def __init__(
        self,
        journal: Journal,
        app: PlacedApp,
        runtime: Callable[[], Runtime],
        stop: StopRequest,
        parallelism: int,
        side_inputs: SideInputs,
    ) -> None:
        obstacle = why_not_reprocessed(app)
        if obstacle is not None:
            raise obstacle
        self._journal = journal
        self._storage = app.storage
        self._plan = app.plan
        self._runtime = runtime
        self._stop = stop
        self._side_inputs = side_inputs
        self._codec = WindowCodec(app.plan, app.operators, pending_tag(journal.state.app_uuid, journal.epoch))
        self._counts = Scaling(app.plan, app.deciders, parallelism).counts

    def reprocess(self, window_ids: Iterable[int]) -> list[ReprocessedWindow]:
        """Run windows again, then replace the files of all of them.

        Raises:
            MissingError: There is no such window.
            JournalError: A window is not committed, or the app has no input port for its blocks.
            DagflowError: A window failed; nothing was replaced.
            RunStoppedError: A stop was requested before the record was written; nothing was replaced.
        """
        published = [self._published(window_id) for window_id in sorted(set(window_ids))]
        reruns: list[_Rerun] = []
        try:
            for window in published:
                reruns.append(self._run_again(window))
            self._raise_if_stopped()
            new = [file for rerun in reruns for file in rerun.intent.files]
            require_names_apart(new)
            taken = {url for window in published for url in window.urls}
            _require_free(self._storage, {file.final_url for file in new} - taken)
        except DagflowError:
            discard_all(self._storage, [file for rerun in reruns for file in rerun.intent.files])
            raise
        kept = {file.final_url for file in new}
        self._journal.append(
            *(
                Reprocess(rerun.intent, sorted(rerun.published.urls - kept), rerun.published.intent.counters)
                for rerun in reruns
            )
        )
        finish_reprocess(self._journal, self._storage)
        return [
            ReprocessedWindow(rerun.intent.window_id, tuple(file_changes(rerun.published.files, rerun.intent.files)))
            for rerun in reruns
        ]

    def _published(self, window_id: int) -> _Published:
        window = self._journal.window(window_id)
        planned, intent = window.plan, window.intent
        if held := [*planned.holds, *planned.closes]:
            raise JournalError(
                f"window {window_id} is part of a result of operator '{held[0]}' over several windows, and cannot be "
                "processed again alone",
                url="journal",
                hint=START_OVER,
            )
        if (obstacle := why_not_again(self._journal.state, [window_id])) is not None:
            raise obstacle
        if intent is None or window_id > self._journal.state.last_done:
            raise JournalError(
                f"window {window_id} is not published yet", url="journal", hint="finish it first, with dagflow run"
            )
        # A reprocessing whose files were lost may have replaced some of the published files, and removed some.
        unfinished = self._journal.state.reprocessing.get(window_id)
        return _Published(
            planned,
            unfinished.intent if unfinished else intent,
            intent.files,
            unfinished.intent.files if unfinished else [],
        )

    def _run_again(self, window: _Published) -> _Rerun:
        """Run one window; its files are pending when this returns.

        Raises:
            DagflowError: The window failed; no file of it is pending.
        """
        results = self._run(window.planned)
        intent = intent_of(window.planned.window_id, self._plan, results)
        failure = _failure_of(results, window)
        if failure is not None:
            discard_all(self._storage, intent.files)
            raise failure
        return _Rerun(window, intent)

    def _run(self, planned: WindowPlan) -> list[TaskResult]:
        heads = {stage.head for stage in self._plan.stages}
        ports = {str(exchange.edge.target) for stage in self._plan.stages for exchange in stage.inputs}
        require_takers(planned, ports)
        counts = {**self._counts, **{head: n for head, n in planned.partitions.items() if head in heads}}
        # A plan in an archive has no state; what a pre-scan has decided once holds for all windows.
        state = ControlState(prescans=self._journal.state.control_state.prescans)
        task = self._codec.task_of(replace(planned, partitions=counts, control_state=state), {})
        side_inputs = self._side_inputs.data_of(self._side_inputs.current())
        runtime = self._runtime()
        self._raise_if_stopped()
        running = runtime.submit(replace(task, is_reprocessed=True, side_inputs=side_inputs))
        while wait([running], timeout=TICK_S).not_done:
            if self._stop.is_requested:
                abandon(self._storage, runtime, [running])
                self._raise_if_stopped()
        return running.result()

    def _raise_if_stopped(self) -> None:
        if self._stop.is_requested:
            raise RunStoppedError("reprocessing was asked to stop; nothing was replaced")


def why_not_again(state: JournalState, windows: Iterable[int]) -> JournalError | None:
    """Why windows cannot run again: what a later one has published of their refused records would be there twice."""
    retried = sorted(set(state.retried) & set(windows))
    if not retried:
        return None
    return JournalError(
        f"a later window has taken over the refused records of window {retried[0]}: what was published of them would "
        "be there twice",
        url="journal",
        hint=START_OVER,
    )


def why_not_reprocessed(app: PlacedApp) -> JournalError | None:
    """Why an app cannot reprocess windows: output depends on other windows, or is published apart from its window."""
    for stage in app.plan.stages:
        for name in stage.operators:
            if is_stateful(app.operators[name]):
                return JournalError(
                    f"operator '{name}' has state, and the journal does not keep the state before a window",
                    url="journal",
                    hint=START_OVER,
                )
    for name, target in targets_of(app.operators, app.storage).items():
        return JournalError(
            f"operator '{name}' writes to {target.name}, and what a window has added to it is not replaced yet",
            url="journal",
            hint="let the app name another table, and start over with --fresh; this one stays as it is",
        )
    for name in waits_for_results(app.plan, app.operators):
        return JournalError(
            f"operator '{name}' works on the results of all windows in order, and cannot process one of them again",
            url="journal",
            hint=START_OVER,
        )
    return None


def _failure_of(results: Sequence[TaskResult], window: _Published) -> DagflowError | None:
    """Why the results of a window cannot replace what it published; None where they can.

    The published records of a file that can no longer be read exist nowhere else.
    """
    for result in results:
        if isinstance(result.error, SourceChangedError):
            # A run may skip such a file; reprocessing must not.
            return SourceChangedError(result.error.message, url=result.error.url, hint=_PUT_BACK)
        if result.error is not None:
            return result.error
    for skipped in (skipped for result in results for skipped in result.skipped):
        known = (
            each.start <= skipped.start and skipped.end <= each.end
            for each in window.intent.skipped
            if each.url == skipped.url
        )
        if not any(known):
            error = SourceChangedError if skipped.cause == "superseded" else StorageError
            return error(
                f"window {window.planned.window_id} has published what was in it, and it would be skipped now: "
                f"{skipped.reason}",
                url=skipped.url,
                hint=_PUT_BACK,
            )
    return None


def _require_free(storage: StorageContext, urls: set[str]) -> None:
    """Refuse names that another window or another program has taken.

    Raises:
        StorageError: One is taken.
    """
    for url in sorted(urls):
        try:
            storage.stat(url)
        except MissingError:
            continue
        raise StorageError(
            "a window would publish under a name that another window or another program has taken",
            url=redacted(url),
            hint="publish into another directory, or under other names",
        )
