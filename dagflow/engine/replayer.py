"""Runs windows again on the same blocks with the app as it is now, and replaces what they published."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from dagflow.api.transactions import TargetDecision
from dagflow.engine.control_graph import Emission
from dagflow.engine.corrections import (
    Lost,
    PartialReplay,
    chosen_files,
    corrections_of,
    counters_of,
    partial_replay,
    urls_of,
    without_versions,
)
from dagflow.engine.driver_watch import DriverWatch
from dagflow.engine.left_out import as_left_out_before, gone_before_replay, recovered_by_replay
from dagflow.engine.live_run import StopRequest
from dagflow.engine.publication import finish_replay
from dagflow.engine.repeatable import require_as_counted, why_not_alone
from dagflow.engine.replay_scope import ReplayScope
from dagflow.engine.run_setup import Assembly
from dagflow.engine.scaling import Scaling
from dagflow.engine.window_codec import require_names_apart, require_takers, taking_ports
from dagflow.engine.window_committer import intent_of
from dagflow.engine.window_repair import unpublished
from dagflow.engine.window_runner import InFlight, WindowLoop, WindowRunner
from dagflow.errors import DagflowError, RunStoppedError, SourceChangedError, StorageError
from dagflow.execution.messages import TaskResult
from dagflow.frozen import frozen
from dagflow.journal.events import WindowReplay
from dagflow.journal.journal import now_ms
from dagflow.journal.saved_state import ControlState
from dagflow.journal.windows import Correction, ProducedFiles, Window, WindowIntent, WindowPlan
from dagflow.metrics.counters import Counters
from dagflow.plan.physical import PortRef, merger_name
from dagflow.storage.context import StorageContext
from dagflow.storage.location import redacted
from dagflow.storage.pending import FileFacts, PendingFile, output_of
from dagflow.storage.publishing import discard_all

_PUT_VERSION_BACK = "put the version back that was read; nothing was replaced"


@frozen
class FileChange:
    """What a replay did to one published file.

    Attributes:
        change: "unchanged", "replaced", "added" or "removed"; the figures of a file that is not there are 0.
    """

    url: str
    change: str
    records_before: int
    records_after: int
    size_before: int
    size_after: int


@frozen
class ReplayedWindow:
    """What a replay did to each file that a window had published, or publishes now."""

    window_id: int
    changes: tuple[FileChange, ...]


@frozen
class _Published:
    """A window before it is replayed.

    Attributes:
        intent: Its intent; that of the newest replay if the replay could not be finished.
        files: The files that it published, or that targets show of it.
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


class Replayer(WindowLoop):
    """Replays windows of one journal.

    Totals that are kept by file are not made again, since the correction changes them itself: their files stay.

    Args:
        lost: Versions of files whose records the windows lose.
        correction: The window that is published with them, which has read what replaces these.
        beside: The files of that window.

    Guarantee: no published file is replaced before all new files, of all windows together, are complete and durable and
    one record of the journal holds their names. After that record all of them will be replaced, by the next run or
    replay if this process dies. Each file is replaced atomically and as a whole. No file of another window is touched.

    Raises:
        JournalError: A window is not committed, or cannot run again.
    """

    def __init__(
        self,
        parts: Assembly,
        scope: ReplayScope,
        stop: StopRequest,
        watch: DriverWatch,
        lost: Lost = MappingProxyType({}),
        correction: int = 0,
        beside: Sequence[PendingFile] = (),
    ) -> None:
        super().__init__(parts.journal, WindowRunner(parts), stop)
        self._parts, self._app = parts, parts.app
        self._watch = watch
        self._counts = Scaling(self._app.plan, self._app.deciders, parts.sizing.parallelism).counts
        self._publication, self._scope = parts.publication, scope
        self._lost, self._correction, self._beside = lost, correction, beside
        self._totals = parts.totals
        self._before = {window_id: self._published(window_id) for window_id in scope.all}
        self._part = self._partial() if lost and scope.again else None
        if self._part is not None:
            jobs = self._part.jobs.keys()
            self._scope = ReplayScope(frozenset(jobs), dict.fromkeys(lost.keys() - jobs, frozenset()))
        # The windows that had refused the records give them, so that those that have read them again give none.
        self._emptied = {at for at in self._scope.again if self._before[at].planned.retries}
        self._left = deque(sorted(self._scope.again - self._emptied))
        self._reruns: dict[int, WindowReplay] = {}

    def replay(self) -> list[ReplayedWindow]:
        """Run windows again, then replace the files of all of them; raises as run_again() does."""
        events = self.run_again()
        if self._lost:
            last = events[-1].intent
            made = self.corrections(last.window_id, urls_of(self._lost))
            counters = last.counters.copy()
            counters.add(counters_of(made, self._app.operators))
            events[-1] = replace(events[-1], corrections=made, intent=replace(last, counters=counters))
        with self._watch.doing("the commit of the replay"):
            self._journal.append(*events)
            finish_replay(self._journal, self._app.storage, self._app.operators)
        return [
            ReplayedWindow(window_id, tuple(_file_changes(self._before[window_id].files, event.intent.files)))
            for window_id, event in zip(self._scope.all, events, strict=True)
        ]

    def run_again(self) -> list[WindowReplay]:
        """Run windows again, and return the decision that replaces their files.

        Raises:
            JournalError: The app has no input port for the blocks of a window.
            DagflowError: A window failed; nothing was replaced.
            RunStoppedError: A stop was requested before the record was written; nothing was replaced.
        """
        try:
            # Before any work is done.
            self._publication.require_shown(file for each in self._before.values() for file in self._replaced(each))
            self._run_all()
            if self._stop.is_requested:
                raise RunStoppedError("the replay was asked to stop; nothing was replaced")
            for window_id in self._scope.merged.keys() - self._scope.again | self._emptied:
                self._reruns[window_id] = self._changed(self._before[window_id])
            reruns = [self._reruns[window_id] for window_id in self._scope.all]
            if self._totals and self._part is None:
                before = [Window(each.planned, each.intent) for each in self._before.values()]
                after = [Window(self._before[each.intent.window_id].planned, each.intent) for each in reruns]
                require_as_counted(before, after, self._journal.state.retried, urls_of(self._lost))
            new = self._made
            names = {file.final_url for file in new}
            _require_free(self._app.storage, names.difference(*(window.urls for window in self._before.values())))
            require_names_apart([*new, *self._beside])
            self._publication.check([file for file in new if file.target], [])
            number, unfinished = self._journal.state.replays + 1, self._journal.state.reprocessing.values()
            correction = self._correction or max((each.correction for each in unfinished), default=0)
            return [
                replace(
                    each,
                    intent=replace(each.intent, committed_ms=now_ms()),
                    removed=[url for url in each.removed if url not in names],
                    number=number,
                    correction=correction,
                )
                for each in reruns
            ]
        except DagflowError:
            self._abandon()
            discard_all(self._app.storage, self._made)
            raise

    def _replaced(self, window: _Published) -> list[PendingFile]:
        """The files of targets that new ones of a window replace; the facts about their values say nothing any more."""
        kept = {file.final_url for file in self._kept(window)[0]}
        return [
            replace(file, pending_url="", token="", facts=FileFacts(file.target, partition=file.facts.partition))
            for file in window.files
            if file.facts is not None and file.target and file.final_url not in kept
        ]

    def corrections(
        self,
        window_id: int,
        files: Collection[str],
        totals: tuple[Counter[str], Counter[str]] | None = None,
        deleted: int = 0,
    ) -> list[Correction]:
        """What the windows, and that with the later versions, change in outputs; asked for before it is published."""
        before, after = Counter[str](), Counter[str]()
        out, added = totals or (Counter(), Counter())
        for at, rerun in self._reruns.items():
            self._count(before, self._before[at].files)
            self._count(after, rerun.intent.files)
            mine = (held.file for held in self._journal.state.held.all_waiting if held.window_id == at)
            self._count(before, (file for file in mine if file.final_url not in rerun.kept))
        self._count(added, self._beside)
        return corrections_of(window_id, files, out + (before - after), added + (after - before), deleted)

    def _count(self, counts: Counter[str], files: Iterable[PendingFile]) -> None:
        for file in files:
            counts[output_of(file, self._journal.state.outputs)] += file.records

    @property
    def _made(self) -> list[PendingFile]:
        return [file for _, rerun in sorted(self._reruns.items()) for file in rerun.made]

    def _published(self, window_id: int) -> _Published:
        window = self._journal.window(window_id)
        planned, intent = window.plan, window.intent
        if (obstacle := why_not_alone(planned, self._journal.state)) is not None:
            raise obstacle
        if intent is None or window_id > self._journal.state.last_done:
            raise unpublished(f"window {window_id}", self._journal.state, self._journal.url)
        # A replay whose files were lost may have replaced some of the published files, and removed others.
        unfinished = self._journal.state.reprocessing.get(window_id)
        if unfinished is None:
            return _Published(planned, intent, intent.files, intent.produced, [])
        # Among its files only those of targets can already be visible to readers: they come first.
        is_shown = any(
            self._publication.has_replay(file.target, unfinished.number) for file in unfinished.made if file.target
        )
        shown = unfinished.intent if is_shown else intent
        return _Published(planned, unfinished.intent, shown.files, shown.produced, unfinished.intent.files)

    def _partial(self) -> PartialReplay | None:
        """The data files that are made anew where windows lose versions; None where the windows run again."""
        windows = {at: Window(each.planned, each.intent) for at, each in self._before.items()}
        held = {each.window_id for each in self._journal.state.held.all_waiting if each.file.target not in self._totals}
        unfinished = self._journal.state.reprocessing
        is_plain = windows.keys().isdisjoint(unfinished) and not any(each.plan.retries for each in windows.values())
        if not (is_plain and held.isdisjoint(self._lost)):
            return None
        return partial_replay(self._app, windows, self._lost, self._totals, self._scope.beside)

    def _next_window(self) -> WindowPlan | None:
        if not self._left:
            return None
        planned = self._before[self._left.popleft()].planned
        if self._part is not None:
            tuples = {PortRef(merger, "jobs"): own for merger, own in self._part.jobs[planned.window_id].items()}
            return self._parts.codec.plan_of(Emission(replace(planned, inputs={}), tuples), self._counts)
        mergers = {merger_name(name) for name in planned.takes}
        own = {name: given for name, given in planned.inputs.items() if name.rpartition(".")[0] not in mergers}
        planned = replace(planned, inputs=own)
        require_takers(planned, taking_ports(self._app.plan))
        heads = {stage.head for stage in self._app.plan.stages}
        return replace(
            planned,
            partitions={**self._counts, **{head: n for head, n in planned.partitions.items() if head in heads}},
            # A plan in an archive has no state; a pre-scan's decision holds for all windows.
            control_state=ControlState(prescans=self._journal.state.control_state.prescans),
            side_inputs=self._parts.side_inputs.current(),
        )

    def _submit(self, planned: WindowPlan) -> None:
        gone = gone_before_replay(self._before[planned.window_id].intent.skipped, self._app.storage)
        gone |= self._lost.get(planned.window_id, {})
        self._in_flight.append(self._runner.submit(planned, gone))

    def _require_success(self, planned: WindowPlan, results: Sequence[TaskResult]) -> None:
        if (failure := _failure_of(results, self._before[planned.window_id])) is not None:
            raise failure

    def _decide(self, results: Sequence[TaskResult]) -> Mapping[str, TargetDecision]:
        held = self._journal.state.held.files(self._scope.again)
        made = [file for result in results for file in result.files if file.target and file.target not in self._totals]
        return self._publication.decide(made, [*held, *self._made, *(file for file in self._beside if file.target)])

    def _commit(self, flight: InFlight, results: Sequence[TaskResult], decisions: Mapping[str, TargetDecision]) -> None:
        """Keep what the window did: all windows are committed together."""
        planned = flight.planned
        before = self._before[planned.window_id]
        made = (file for result in results for file in result.files)
        discard_all(self._app.storage, (file for file in made if file.target in self._totals))
        # The columns of a target change without a word in the journal.
        counted = {operator: replace(each, changes=()) for operator, each in decisions.items()}
        did = intent_of(planned, self._app.plan, results, taken=dict.fromkeys(self._totals, ()), decisions=counted)
        self._reruns[planned.window_id] = self._changed(before, did)

    def _changed(self, window: _Published, did: WindowIntent | None = None) -> WindowReplay:
        """A window that ran again, or that only loses files.

        Args:
            did: What it did now; if only data files were made anew, no more than that.
        """
        before, (files, produced) = window.intent, self._kept(window)
        made = did or WindowIntent(before.window_id)
        still = self._still_waiting(before.window_id)
        if did is not None and self._part is None:
            intent = replace(
                did,
                held=[file for file in before.held if file.final_url in still],
                skipped=as_left_out_before(before.skipped, did.skipped),
                recovered=recovered_by_replay(self._journal.state.left_out, before, did.skipped),
            )
        else:
            intent = without_versions(before, window.planned, self._lost.get(before.window_id, {}))
            intent = replace(intent, started_ms=made.started_ms, finished_ms=made.finished_ms)
        if before.window_id in self._emptied:
            intent = replace(intent, refused=[], accounting={}, counters=Counters())
        intent = replace(intent, files=[*files, *made.files], produced=[*produced, *made.produced])
        kept = {file.final_url for file in files} | still
        return WindowReplay(
            intent,
            sorted(window.urls - kept),
            before.counters,
            before.accounting,
            kept=sorted(kept),
            replaced=self._replaced(window),
        )

    def _still_waiting(self, window_id: int) -> set[str]:
        """The files that a window has held back, and that still wait to be merged as they are."""
        runs_again = self._part is None and window_id in self._scope.again
        return {
            held.file.final_url
            for held in self._journal.state.held.all_waiting
            if held.window_id == window_id and (held.file.target in self._totals or not runs_again)
        }

    def _kept(self, window: _Published) -> tuple[list[PendingFile], list[ProducedFiles]]:
        """The files of a window that stay, and where they come from."""
        made_anew, is_replaced = self._part, self._scope.replaces(window.planned)

        def stays(part: ProducedFiles, file: PendingFile) -> bool:
            is_gone = is_replaced(part) if made_anew is None else file.final_url in made_anew.concerned
            return file.target in self._totals or not is_gone

        return chosen_files(window.files, window.produced, stays)


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
    for skipped in (skipped for result in results for skipped in result.skipped if skipped.cause != "corrected"):
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
    """Refuse names that another window or another program has taken."""
    for url in sorted(urls):
        if storage.find(url) is not None:
            raise StorageError(
                "a window would publish under a name that another window or another program has taken",
                url=redacted(url),
                hint="publish into another directory, or under other names",
            )


def _file_changes(old: Sequence[PendingFile], new: Sequence[PendingFile]) -> Iterator[FileChange]:
    """What happened to each file, in the order of their names."""
    before, after = ({file.final_url: file for file in files} for files in (old, new))
    none = PendingFile("", "", 0, 0)
    for url in sorted({*before, *after}):
        was, now = before.get(url, none), after.get(url, none)
        is_same = (was.size_bytes, was.crc32) == (now.size_bytes, now.crc32) and now.crc32 is not None
        change = "added" if was is none else "removed" if now is none else "unchanged" if is_same else "replaced"
        yield FileChange(redacted(url), change, was.records, now.records, was.size_bytes, now.size_bytes)
