"""Runs windows again on the same blocks with the app as it is now, and replaces what they published."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from types import MappingProxyType

from dagflow.api.context import Skipped
from dagflow.api.control import Grouper
from dagflow.api.sources import block_id_of
from dagflow.api.transactions import TargetDecision
from dagflow.engine.control_graph import Emission
from dagflow.engine.corrections import Lost, corrections_of, lost_parts, source_ranges, version_key_of
from dagflow.engine.driver_watch import DriverWatch
from dagflow.engine.kept_totals import without_totals
from dagflow.engine.left_out import as_left_out_before, gone_before_replay, recovered_by_replay
from dagflow.engine.partial_replay import (
    PartialReplay,
    ReadWindow,
    chosen_files,
    partial_replay,
    rewriting_replay,
    unbooked,
    works_record_by_record,
)
from dagflow.engine.publication import finish_replay
from dagflow.engine.repeatable import why_not_alone
from dagflow.engine.replay_scope import ReplayScope
from dagflow.engine.run_setup import Assembly
from dagflow.engine.scaling import Scaling
from dagflow.engine.stop_request import StopRequest
from dagflow.engine.window_codec import require_names_apart, require_takers, taking_ports
from dagflow.engine.window_committer import intent_of
from dagflow.engine.window_loop import WindowLoop
from dagflow.engine.window_repair import unpublished
from dagflow.engine.window_runner import InFlight, WindowRunner
from dagflow.errors import (
    DagflowError,
    MissingError,
    RunStoppedError,
    SourceChangedError,
    StorageError,
)
from dagflow.execution.messages import TaskResult
from dagflow.frozen import frozen
from dagflow.journal.events import WindowReplay
from dagflow.journal.journal import now_ms
from dagflow.journal.saved_state import ControlState
from dagflow.journal.windows import ProducedFiles, Window, WindowIntent, WindowPlan
from dagflow.metrics.counters import Counters
from dagflow.plan.physical import PortRef, holder_of, merger_name
from dagflow.plan.placement import PlacedApp
from dagflow.storage.context import StorageContext
from dagflow.storage.location import name_of, redacted
from dagflow.storage.pending import FileFacts, PendingFile, output_of
from dagflow.storage.publishing import discard_all

_PUT_VERSION_BACK = "put the version back that was read; nothing was replaced"


@frozen
class FileChange:
    """What a replay did to one published file.

    Attributes:
        change: "unchanged", "replaced", "added" or "removed".
        records_before: Records that the file held, 0 for a new file.
        records_after: Records that the file holds now, 0 for a removed file.
        size_before: Size before, in bytes.
        size_after: Size now, in bytes.
    """

    url: str
    change: str
    records_before: int
    records_after: int
    size_before: int
    size_after: int


@frozen
class ReplayedWindow:
    """What a replay did to one window.

    Attributes:
        changes: What happened to each file that the window had published, or publishes now.
    """

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


@frozen
class _Rerun:
    """A window that ran again; the files of its new intent are pending, except those that are kept."""

    published: _Published
    intent: WindowIntent
    kept: frozenset[str]

    @property
    def made(self) -> list[PendingFile]:
        return [file for file in self.intent.files if file.final_url not in self.kept]

    def as_event(self, number: int, new: Set[str], correction: int) -> WindowReplay:
        """The journal event for the replayed window.

        Args:
            new: The names of all files that the replay makes.
            correction: The window that is published with it; 0 for none.
        """
        before = self.published
        replaced = [file for file in before.files if file.target and file.final_url not in self.kept]
        # The facts about their values say nothing any more.
        facts = [FileFacts(file.target, partition=file.facts.partition if file.facts else {}) for file in replaced]
        return WindowReplay(
            replace(self.intent, committed_ms=now_ms()),
            sorted(before.urls - self.kept - new),
            before.intent.counters,
            before.intent.accounting,
            number,
            sorted(self.kept),
            [replace(file, pending_url="", token="", facts=own) for file, own in zip(replaced, facts, strict=True)],
            correction,
        )


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
        app = parts.app
        self._plan = app.plan
        self._operators = app.operators
        self._storage = app.storage
        self._side_inputs = parts.side_inputs
        self._watch = watch
        self._counts = Scaling(app.plan, app.deciders, parts.sizing.parallelism).counts
        self._publication = parts.publication
        self._scope = scope
        self._lost, self._correction, self._beside = lost, correction, beside
        self._totals = parts.totals
        self._codec = parts.codec
        self._before = {window_id: self._published(window_id) for window_id in scope.all}
        self._part = self._partial(app) if lost and scope.again else None
        if self._part is not None:
            concerned = self._part.concerned
            merged = {
                at: names
                for at, names in scope.merged.items()
                if any(file.final_url in concerned for file in self._before[at].files)
            }
            if self._part.rewriting is not None:
                merged = {at: frozenset() for at in lost.keys() - self._part.again}
            self._scope = ReplayScope(self._part.again, merged)
        # The windows that had refused the records give them, so that those that have read them again give none.
        self._emptied = {at for at in self._scope.again if self._before[at].planned.retries}
        self._left = deque(sorted(self._scope.again - self._emptied))
        self._reruns: dict[int, _Rerun] = {}

    def replay(self) -> list[ReplayedWindow]:
        """Run windows again, then replace the files of all of them; raises as run_again() does."""
        events = self.run_again()
        if self._lost:
            made = corrections_of(events[-1].intent.window_id, self._lost, self.records())
            events[-1] = replace(events[-1], corrections=made)
        with self._watch.doing("the commit of the replay"):
            self._journal.append(*events)
            finish_replay(self._journal, self._storage, self._operators)
        reruns = [self._reruns[window_id] for window_id in self._scope.all]
        return [
            ReplayedWindow(rerun.intent.window_id, tuple(_file_changes(rerun.published.files, rerun.intent.files)))
            for rerun in reruns
        ]

    def run_again(self) -> list[WindowReplay]:
        """Run windows again, and return the decision that replaces their files.

        Raises:
            JournalError: The app has no input port for the blocks of a window.
            DagflowError: A window failed; nothing was replaced.
            RunStoppedError: A stop was requested before the record was written; nothing was replaced.
        """
        try:
            self._require_shown()
            self._run_all()
            if self._stop.is_requested:
                raise RunStoppedError("the replay was asked to stop; nothing was replaced")
            for window_id in self._scope.merged.keys() - self._scope.again | self._emptied:
                self._reruns[window_id] = self._merged(self._before[window_id])
            reruns = [self._reruns[window_id] for window_id in self._scope.all]
            new = self._made
            taken = {url for window in self._before.values() for url in window.urls}
            _require_free(self._storage, {file.final_url for file in new} - taken)
            require_names_apart([*new, *self._beside])
            self._publication.check([file for file in new if file.target], [])
            names = {file.final_url for file in new}
            number, unfinished = self._journal.state.replays + 1, self._journal.state.reprocessing.values()
            correction = self._correction or max((each.correction for each in unfinished), default=0)
            events = [rerun.as_event(number, names, correction) for rerun in reruns]
        except DagflowError:
            self._abandon()
            discard_all(self._storage, self._made)
            raise
        return events

    def _require_shown(self) -> None:
        """Refuse to make files in place of others that targets do not show any more, before any work is done."""
        replaced: list[PendingFile] = []
        for before in self._before.values():
            kept = {file.final_url for file in self._kept(before)[0]}
            replaced += [file for file in before.files if file.target and file.final_url not in kept]
        self._publication.require_shown(replaced)

    def records(self) -> tuple[Counter[str], Counter[str]]:
        """The records of the windows before, and as they would be published, by output; asked for before that is."""
        before, after = Counter[str](), Counter[str]()
        for rerun in self._reruns.values():
            self._count(before, rerun.published.files)
            self._count(after, rerun.intent.files)
        for waiting in self._journal.state.held.waiting.values():
            self._count(before, [held.file for held in waiting if held.window_id in self._scope.again])
        return before, after

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

    def _partial(self, app: PlacedApp) -> PartialReplay | None:
        """The part of the windows that runs again where these lose versions; None for all of them."""
        windows = {
            at: ReadWindow(
                [(block_id_of(part), version_key_of(part)) for part in source_ranges(each.planned)], each.intent
            )
            for at, each in self._before.items()
        }
        is_plain = not any(each.lost or each.planned.retries for each in self._before.values())
        if not (is_plain and works_record_by_record(app.plan, app.operators)):
            return None
        waiting = (
            each for name, own in self._journal.state.held.waiting.items() if name not in self._totals for each in own
        )
        held = {each.window_id for each in waiting}
        groupers = {holder_of(name): each for name, each in app.operators.items() if isinstance(each, Grouper)}
        scope, totals = self._scope, self._totals
        rewriting = rewriting_replay(windows, self._lost, held, totals, scope.beside, groupers, self._is_there)
        waiting_here = held & set(windows)
        return rewriting or partial_replay(windows, self._lost, scope.again, waiting_here, totals, scope.beside)

    def _is_there(self, file: PendingFile) -> bool:
        """Whether a data file can be read, also one that is no longer part of its table."""
        if name_of(file.final_url) not in self._scope.beside:
            return True
        try:
            return self._storage.stat(file.final_url).size_bytes == file.size_bytes
        except MissingError:
            return False

    def _next_window(self) -> WindowPlan | None:
        if not self._left:
            return None
        planned = self._before[self._left.popleft()].planned
        if self._part is not None and self._part.rewriting is not None:
            jobs = self._part.rewriting[planned.window_id].items()
            tuples = {PortRef(merger, "jobs"): own for merger, own in jobs}
            return self._codec.plan_of(Emission(replace(planned, inputs={}), tuples), self._counts)
        mergers = {merger_name(name) for name in planned.takes}
        own = {name: given for name, given in planned.inputs.items() if name.rpartition(".")[0] not in mergers}
        planned = replace(planned, inputs=own)
        require_takers(planned, taking_ports(self._plan))
        heads = {stage.head for stage in self._plan.stages}
        return replace(
            planned,
            partitions={**self._counts, **{head: n for head, n in planned.partitions.items() if head in heads}},
            # A plan in an archive has no state; a pre-scan's decision holds for all windows.
            control_state=ControlState(prescans=self._journal.state.control_state.prescans),
            side_inputs=self._side_inputs.current(),
        )

    def _submit(self, planned: WindowPlan) -> None:
        gone = gone_before_replay(self._before[planned.window_id].intent.skipped, self._storage)
        gone |= self._lost.get(planned.window_id, {})
        if self._part is not None:
            gone |= self._part.spared.get(planned.window_id, {})
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
        results, totals = without_totals(results, self._totals)
        discard_all(self._storage, totals)
        files, produced = self._kept(before)
        still = self._still_waiting(planned.window_id)
        kept = frozenset([*(file.final_url for file in files), *still])
        # The columns of a target change without a word in the journal.
        counted = {operator: replace(each, changes=()) for operator, each in decisions.items()}
        did = intent_of(planned, self._plan, results, decisions=counted)
        if self._part is not None:
            lost = self._lost_parts(before)
            self._reruns[planned.window_id] = _Rerun(before, self._part.intent(before.intent, did, lost), kept)
            return
        intent = replace(
            did,
            files=[*files, *did.files],
            produced=[*produced, *did.produced],
            held=[file for file in before.intent.held if file.final_url in still],
            skipped=as_left_out_before(before.intent.skipped, did.skipped),
            recovered=recovered_by_replay(self._journal.state.left_out, before.intent, did.skipped),
        )
        self._reruns[planned.window_id] = _Rerun(before, intent, kept)

    def _merged(self, window: _Published) -> _Rerun:
        """A window that does not run again, and loses the files of groups that do, or everything."""
        files, produced = self._kept(window)
        lost = self._lost_parts(window)
        intent = replace(
            window.intent,
            files=files,
            produced=produced,
            skipped=[*window.intent.skipped, *lost],
            accounting=unbooked(window.intent.accounting, lost),
            recovered=[],
            started_ms=0,
            finished_ms=0,
        )
        if window.planned.window_id in self._emptied:
            intent = replace(intent, refused=[], accounting={}, counters=Counters())
        still = self._still_waiting(window.planned.window_id)
        return _Rerun(window, intent, frozenset([*(file.final_url for file in files), *still]))

    def _still_waiting(self, window_id: int) -> set[str]:
        """The files that a window has held back, and that still wait to be merged as they are."""
        is_read_again = self._part is None or self._part.rewriting is None
        runs_again = is_read_again and window_id in self._scope.again
        return {
            held.file.final_url
            for name, own in self._journal.state.held.waiting.items()
            if name in self._totals or not runs_again
            for held in own
            if held.window_id == window_id
        }

    def _lost_parts(self, window: _Published) -> list[Skipped]:
        return lost_parts(Window(window.planned, window.intent), self._lost.get(window.planned.window_id, {}))

    def _kept(self, window: _Published) -> tuple[list[PendingFile], list[ProducedFiles]]:
        """The files of a window that stay, and where they come from."""
        if self._part is not None:
            return self._part.kept(window.intent)
        is_replaced = self._scope.replaces(window.planned)
        return chosen_files(
            window.files, window.produced, lambda part, file: file.target in self._totals or not is_replaced(part)
        )


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
        try:
            storage.stat(url)
        except MissingError:
            continue
        raise StorageError(
            "a window would publish under a name that another window or another program has taken",
            url=redacted(url),
            hint="publish into another directory, or under other names",
        )


def _file_changes(old: Sequence[PendingFile], new: Sequence[PendingFile]) -> Iterator[FileChange]:
    """What happened to each file, in the order of their names."""
    before = {file.final_url: file for file in old}
    after = {file.final_url: file for file in new}
    for url in sorted({*before, *after}):
        was, now = before.get(url), after.get(url)
        yield FileChange(
            redacted(url),
            _change(was, now),
            was.records if was else 0,
            now.records if now else 0,
            was.size_bytes if was else 0,
            now.size_bytes if now else 0,
        )


def _change(was: PendingFile | None, now: PendingFile | None) -> str:
    if was is None or now is None:
        return "added" if was is None else "removed"
    is_same = (was.size_bytes, was.crc32) == (now.size_bytes, now.crc32) and now.crc32 is not None
    return "unchanged" if is_same else "replaced"
