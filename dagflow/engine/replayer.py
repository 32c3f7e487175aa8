"""Runs windows again on the same blocks with the app as it is now, and replaces what they published."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from concurrent.futures import wait
from dataclasses import dataclass, replace

from dagflow.api.context import Skipped, VersionKey
from dagflow.api.transactions import TargetDecision, targets_of
from dagflow.engine.control_graph import waits_for_results
from dagflow.engine.driver_watch import DriverWatch
from dagflow.engine.file_changes import ReplayedWindow, file_changes
from dagflow.engine.gone_versions import as_left_out_before, gone_before_replay
from dagflow.engine.operator_state import is_stateful
from dagflow.engine.placed_app import PlacedApp
from dagflow.engine.recovered_ranges import recovered_by_replay
from dagflow.engine.recovery import finish_replay
from dagflow.engine.removed_sources import remover_of, removers_in, why_not_read_again
from dagflow.engine.replay_scope import ReplayScope
from dagflow.engine.scaling import Scaling
from dagflow.engine.side_inputs import SideInputs
from dagflow.engine.stop_request import TICK_S, StopRequest, abandon
from dagflow.engine.target_access import TargetDecisions, why_not_in_targets
from dagflow.engine.target_replays import TargetReplays
from dagflow.engine.window_codec import WindowCodec, require_names_apart, require_takers, taking_ports, why_not_taken
from dagflow.engine.window_intent import busy_s, counters_of, intent_of, ran_ms
from dagflow.engine.window_repair import unpublished
from dagflow.errors import (
    ANOTHER_TABLE,
    PUT_BACK,
    START_OVER,
    DagflowError,
    JournalError,
    MissingError,
    RunStoppedError,
    SourceChangedError,
    StorageError,
    own_name,
)
from dagflow.execution.messages import TaskResult
from dagflow.journal.events import WindowReplay
from dagflow.journal.journal import Journal, now_ms
from dagflow.journal.saved_state import ControlState
from dagflow.journal.state import JournalState
from dagflow.journal.windows import ProducedFiles, WindowIntent, WindowPlan
from dagflow.plan.accumulators import accumulators
from dagflow.plan.groups import merger_name
from dagflow.runtime.base import Runtime
from dagflow.storage.context import StorageContext
from dagflow.storage.file_facts import FileFacts
from dagflow.storage.location import redacted
from dagflow.storage.pending import PendingFile, pending_tag
from dagflow.storage.publishing import discard_all

_PUT_VERSION_BACK = "put the version back that was read; nothing was replaced"


@dataclass(frozen=True, slots=True)
class _Published:
    """A window before it is replayed.

    Attributes:
        planned: Its plan.
        intent: Its intent; that of the newest replay if the replay could not be finished.
        files: The files that it published, or that targets show of it.
        produced: Where these files come from, in their order.
        lost: Files that an earlier replay made, and that were lost before they got their final names.
    """

    planned: WindowPlan
    intent: WindowIntent
    files: list[PendingFile]
    produced: list[ProducedFiles]
    lost: list[PendingFile]

    @property
    def urls(self) -> set[str]:
        """The names under which readers may find files of it."""
        return {file.final_url for file in [*self.files, *self.lost] if not file.target}

    def kept(self, kept: Callable[[ProducedFiles], bool]) -> tuple[list[PendingFile], list[ProducedFiles]]:
        """The files of some partitions, and where they come from."""
        files = iter(self.files)
        own = [(each, list(itertools.islice(files, each.files))) for each in self.produced]
        chosen = [(each, made) for each, made in own if kept(each)]
        return [file for _, made in chosen for file in made], [each for each, _ in chosen]


@dataclass(frozen=True, slots=True)
class _Rerun:
    """A window that ran again; the files of its new intent are pending, except those that are kept."""

    published: _Published
    intent: WindowIntent
    kept: frozenset[str]

    @property
    def made(self) -> list[PendingFile]:
        """The new files."""
        return [file for file in self.intent.files if file.final_url not in self.kept]

    def as_event(self, number: int, new: Set[str]) -> WindowReplay:
        """The journal event for the replayed window.

        Args:
            number: The number of the replay.
            new: The names of all files that the replay makes.
        """
        before = self.published
        replaced = [file for file in before.files if file.target and file.final_url not in self.kept]
        return WindowReplay(
            replace(self.intent, committed_ms=now_ms()),
            sorted(before.urls - self.kept - new),
            before.intent.counters,
            before.intent.accounting,
            number,
            sorted(self.kept),
            [replace(file, pending_url="", token="", facts=_what_and_where(file)) for file in replaced],
        )


class Replayer:
    """Replays windows of one journal.

    Guarantee: no published file is replaced before all new files, of all windows together, are complete and durable and
    one record of the journal holds their names. After that record all of them will be replaced, by the next run or
    replay if this process dies. Each file is replaced atomically and as a whole. No file of another window is touched.

    Args:
        journal: Open, with its epoch claimed.
        app: The app as it is now.
        runtime: Returns the runtime; called when the first window runs.
        stop: Asks to end early.
        parallelism: Tasks that run at the same time.
        side_inputs: Returns the side inputs, as they are now.
        watch: Reports where the driver stalls.

    Raises:
        JournalError: The app cannot replay windows, because what it publishes depends on more than a window's blocks.
    """

    def __init__(
        self,
        journal: Journal,
        app: PlacedApp,
        runtime: Callable[[], Runtime],
        stop: StopRequest,
        parallelism: int,
        side_inputs: SideInputs,
        watch: DriverWatch,
    ) -> None:
        obstacle = why_not_replayed(app)
        if obstacle is not None:
            raise obstacle
        self._journal = journal
        self._storage = app.storage
        self._plan = app.plan
        self._runtime = runtime
        self._stop = stop
        self._side_inputs = side_inputs
        self._watch = watch
        self._codec = WindowCodec(app.plan, app.operators, pending_tag(journal.state.app_uuid, journal.epoch))
        self._counts = Scaling(app.plan, app.deciders, parallelism).counts
        self._operators = app.operators
        self._targets = TargetReplays(app.operators, journal, app.storage)
        self._decisions = TargetDecisions(app.storage)

    def replay(self, windows: ReplayScope) -> list[ReplayedWindow]:
        """Run windows again, then replace the files of all of them.

        Raises:
            MissingError: There is no such window.
            JournalError: A window is not committed, or the app has no input port for its blocks.
            DagflowError: A window failed; nothing was replaced.
            RunStoppedError: A stop was requested before the record was written; nothing was replaced.
        """
        published = [self._published(window_id) for window_id in windows.all]
        reruns: list[_Rerun] = []
        try:
            for window in published:
                reruns.append(self._run_again(window, windows, [file for rerun in reruns for file in rerun.made]))
            self._raise_if_stopped()
            new = [file for rerun in reruns for file in rerun.made]
            require_names_apart(new)
            taken = {url for window in published for url in window.urls}
            _require_free(self._storage, {file.final_url for file in new} - taken)
            self._targets.check(new)
            names = {file.final_url for file in new}
            events = [rerun.as_event(self._journal.state.replays + 1, names) for rerun in reruns]
            self._targets.require_shown(file for event in events for file in event.replaced)
        except DagflowError:
            discard_all(self._storage, [file for rerun in reruns for file in rerun.made])
            raise
        with self._watch.doing("the commit of the replay"):
            self._journal.append(*events)
            finish_replay(self._journal, self._storage, self._operators)
        return [
            ReplayedWindow(rerun.intent.window_id, tuple(file_changes(rerun.published.files, rerun.intent.files)))
            for rerun in reruns
        ]

    def _published(self, window_id: int) -> _Published:
        window = self._journal.window(window_id)
        planned, intent = window.plan, window.intent
        if (obstacle := why_not_alone(planned, self._journal.state)) is not None:
            raise obstacle
        if (obstacle := why_not_again(self._journal.state, [window_id])) is not None:
            raise obstacle
        if intent is None or window_id > self._journal.state.last_done:
            raise unpublished(f"window {window_id}", self._journal.state, self._journal.url)
        # A replay whose files were lost may have replaced some of the published files, and removed others.
        unfinished = self._journal.state.reprocessing.get(window_id)
        if unfinished is None:
            return _Published(planned, intent, intent.files, intent.produced, [])
        # Among its files only those of targets can already be visible to readers: they come first.
        is_shown = any(self._targets.has(file.target, unfinished.number) for file in unfinished.made if file.target)
        shown = unfinished.intent if is_shown else intent
        return _Published(planned, unfinished.intent, shown.files, shown.produced, unfinished.intent.files)

    def _run_again(self, window: _Published, windows: ReplayScope, earlier: Sequence[PendingFile]) -> _Rerun:
        """Run one window, if it has to run; its files are pending when this returns.

        Raises:
            DagflowError: The window failed; no file of it is pending.
        """
        planned = window.planned
        mergers = {merger_name(name): name for name in planned.takes}
        replaced = windows.merged.get(planned.window_id, frozenset())
        is_again = planned.window_id in windows.again

        def is_kept(part: ProducedFiles) -> bool:
            """Whether files stay: those of a group that is not replayed, and the window's own where only groups are."""
            return mergers[part.stage] not in replaced if part.stage in mergers else not is_again

        files, produced = window.kept(is_kept)
        kept = frozenset(file.final_url for file in files)
        if not is_again:
            merged = replace(window.intent, files=files, produced=produced, recovered=[], started_ms=0, finished_ms=0)
            return _Rerun(window, merged, kept)
        own = {name: given for name, given in planned.inputs.items() if name.rpartition(".")[0] not in mergers}
        gone = gone_before_replay(window.intent.skipped, self._storage)
        results, decisions = self._run_to_fit(replace(planned, inputs=own), gone, windows.again, earlier)
        did = intent_of(planned.window_id, self._plan, results)
        did.counters.add(counters_of(decisions))
        failure = _failure_of(results, window)
        if failure is not None:
            discard_all(self._storage, did.files)
            raise failure
        read = recovered_by_replay(self._journal.state.left_out, window.intent, did.skipped)
        files, produced = [*files, *did.files], [*produced, *did.produced]
        skipped = as_left_out_before(window.intent.skipped, did.skipped)
        started_ms, finished_ms = ran_ms(planned, results)
        did = replace(
            did,
            skipped=skipped,
            recovered=read,
            # Control operators have no part in a replay.
            busy_s=busy_s({}, results),
            started_ms=started_ms,
            finished_ms=finished_ms,
        )
        return _Rerun(window, replace(did, files=files, produced=produced), kept)

    def _run_to_fit(
        self,
        planned: WindowPlan,
        gone: Mapping[VersionKey, Skipped],
        again: Set[int],
        earlier: Sequence[PendingFile],
    ) -> tuple[list[TaskResult], dict[str, TargetDecision]]:
        """Run a window, and again where a target does not take its files as they are."""
        while True:
            made_by = dict(self._decisions.texts)
            results = self._run(planned, gone)
            if any(result.error is not None for result in results):
                return results, {}
            decisions = self._targets.decide(again, earlier, [file for result in results for file in result.files])
            if not self._decisions.rerun_to_fit(planned.window_id, made_by, results, decisions, lambda: True):
                return results, decisions

    def _run(self, planned: WindowPlan, gone: Mapping[VersionKey, Skipped]) -> list[TaskResult]:
        heads = {stage.head for stage in self._plan.stages}
        require_takers(planned, taking_ports(self._plan))
        if not planned.inputs:
            return []  # it has only merged what other windows held back
        counts = {**self._counts, **{head: n for head, n in planned.partitions.items() if head in heads}}
        # A plan in an archive has no state; a pre-scan's decision holds for all windows.
        state = ControlState(prescans=self._journal.state.control_state.prescans)
        job = self._codec.job_of(replace(planned, partitions=counts, control_state=state), {})
        side_inputs = self._side_inputs.data_of(self._side_inputs.current())
        runtime = self._runtime()
        self._raise_if_stopped()
        decided = self._decisions.take()
        job = replace(job, is_reprocessed=True, side_inputs=side_inputs, decided=decided, gone=gone)
        running = runtime.submit(job)
        while wait([running], timeout=TICK_S).not_done:
            if self._stop.is_requested:
                abandon(self._storage, runtime, [running])
                self._raise_if_stopped()
        return running.result()

    def _raise_if_stopped(self) -> None:
        if self._stop.is_requested:
            raise RunStoppedError("the replay was asked to stop; nothing was replaced")


def _what_and_where(file: PendingFile) -> FileFacts:
    """The facts of a file without those about its values."""
    return FileFacts(file.target, partition={} if file.facts is None else file.facts.partition)


def why_not_alone(planned: WindowPlan, state: JournalState) -> JournalError | None:
    """Why a window cannot run again by itself: its records are part of a result over several windows."""
    if not (held := [*planned.holds, *planned.closes]):
        return None
    return JournalError(
        f"window {planned.window_id} is part of a result of operator '{own_name(held[0])}' over several windows, and "
        "cannot be processed again alone",
        url="journal",
        hint=PUT_BACK if remover_of({}, state) else START_OVER,
    )


def why_not_again(state: JournalState, windows: Iterable[int]) -> JournalError | None:
    """Why windows cannot run again: a later one has published refused records of theirs, which would be duplicated."""
    retried = sorted(set(state.retried) & set(windows))
    if not retried:
        return None
    return JournalError(
        f"a later window has taken over the refused records of window {retried[0]}: what was published of them would "
        "be there twice",
        url="journal",
        hint=PUT_BACK if remover_of({}, state) else START_OVER,
    )


def why_not_made_again(
    app: PlacedApp, state: JournalState, windows: Sequence[int], plans: Iterable[WindowPlan]
) -> DagflowError | None:
    """Why a replay would refuse windows, as far as that is known before it starts.

    Args:
        app: The app as it is now.
        state: What the journal says.
        windows: Their ids, ascending; not empty.
        plans: The plans of these windows that are checked.
    """
    ports = taking_ports(app.plan)
    return (
        why_not_replayed(app)
        or why_not_again(state, windows)
        or why_not_in_targets(state, targets_of(app.operators, app.storage), windows[0])
        or next(filter(None, (why_not_alone(each, state) or why_not_taken(each, ports) for each in plans)), None)
    )


def why_not_replayed(app: PlacedApp) -> JournalError | None:
    """Why an app cannot replay windows: output depends on other windows, or is published apart from its window."""
    removers = removers_in(app.operators)
    obstacle = _obstacle(app, removers)
    if removers and obstacle is not None:
        return JournalError(obstacle.message, url="journal", hint=PUT_BACK)
    waiting = [name for name in waits_for_results(app.plan, app.operators) if name in removers]
    return why_not_read_again(waiting[0]) if waiting else obstacle


def _obstacle(app: PlacedApp, removers: Collection[str]) -> JournalError | None:
    """Why an app could not replay windows even if it did not remove source files."""
    for stage in app.plan.stages:
        for name in stage.operators:
            if is_stateful(app.operators[name]):
                return JournalError(
                    f"operator '{own_name(name)}' has state, and the journal does not keep the state before a window",
                    url="journal",
                    hint=START_OVER,
                )
    for name, target in targets_of(app.operators, app.storage).items():
        if why := target.why_not_replayed:
            return JournalError(
                f"operator '{own_name(name)}' writes to {target.name}: {why}", url="journal", hint=ANOTHER_TABLE
            )
    for name in waits_for_results(app.plan, app.operators):
        if name not in removers:
            return JournalError(
                f"operator '{own_name(name)}' works on the results of all windows in order, and cannot process one of "
                "them again",
                url="journal",
                hint=START_OVER,
            )
    for name, each in accumulators(app.operators).items():
        if each.over != "window":
            return JournalError(
                f"operator '{own_name(name)}' gives results over several windows, and a window that is processed again "
                "would give one of its own",
                url="journal",
                hint=f"say over: window, where each window is to give a result of its own; otherwise {START_OVER}",
            )
    return None


def _failure_of(results: Sequence[TaskResult], window: _Published) -> DagflowError | None:
    """Why the results of a window cannot replace what it published; None where they can.

    The published records of a file that can no longer be read exist only in the published output.
    """
    for result in results:
        if isinstance(result.error, SourceChangedError):
            # A run may skip such a file; a replay must not.
            return SourceChangedError(result.error.message, url=result.error.url, hint=_PUT_VERSION_BACK)
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
                f"window {window.planned.window_id} has published records of this file, which would be skipped now: "
                f"{skipped.reason}",
                url=redacted(skipped.url),
                hint=_PUT_VERSION_BACK,
            )
    return None


def _require_free(storage: StorageContext, urls: set[str]) -> None:
    """Refuse names that another window or another program has taken.

    Raises:
        StorageError: A name is taken.
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
