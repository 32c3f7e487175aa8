"""Runs windows again with today's app, on the blocks that they had, and replaces what they published."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import wait
from dataclasses import astuple, dataclass, replace

from dagflow.api.operator import Operator
from dagflow.engine.control_graph import waits_for_results
from dagflow.engine.finish_reprocess import finish_reprocess
from dagflow.engine.operator_state import is_stateful
from dagflow.engine.scaling import Scaling
from dagflow.engine.stop_request import TICK_S, StopRequest, abandon
from dagflow.engine.window_codec import WindowCodec, require_names_apart
from dagflow.errors import DagflowError, JournalError, MissingError, RunStoppedError, SourceChangedError, StorageError
from dagflow.execution.messages import TaskResult
from dagflow.journal import Journal, Reprocess, WindowIntent, WindowPlan
from dagflow.plan.physical import PhysicalPlan
from dagflow.runtime.base import Runtime
from dagflow.storage.files import stat
from dagflow.storage.location import redacted
from dagflow.storage.pending import PendingFile, discard, pending_tag

_PUT_BACK = "put the version back that was read; nothing was replaced"


@dataclass(frozen=True, slots=True)
class FileChange:
    """What a replay did to one published file.

    Attributes:
        url: The file.
        change: "unchanged", "replaced", "added" or "removed".
        records_before: Records that it held, 0 where it was not there.
        records_after: Records that it holds, 0 where it is gone.
        size_before: Its length before, in bytes.
        size_after: Its length now, in bytes.
    """

    url: str
    change: str
    records_before: int
    records_after: int
    size_before: int
    size_after: int


@dataclass(frozen=True, slots=True)
class ReprocessedWindow:
    """What a replay did.

    Attributes:
        window_id: The window.
        changes: What became of each file that it had published, or publishes now.
    """

    window_id: int
    changes: tuple[FileChange, ...]


@dataclass(frozen=True, slots=True)
class _Before:
    """What is known of a window before it is replayed.

    Attributes:
        planned: Its plan.
        intent: What its counts are of: of the window as it was last decided.
        files: What it had published.
        lost: What a replay was to put there that could not be finished.
    """

    planned: WindowPlan
    intent: WindowIntent
    files: list[PendingFile]
    lost: list[PendingFile]

    @property
    def urls(self) -> set[str]:
        return {file.final_url for file in [*self.files, *self.lost]}


@dataclass(frozen=True, slots=True)
class _Redone:
    """A window that ran again, and whose files wait."""

    before: _Before
    intent: WindowIntent
    files: list[PendingFile]


class Reprocessor:
    """Replays windows of one journal.

    Guarantee: files are replaced after all new ones, of all windows together, are complete and durable and one
    record of the journal holds their names; before that record nothing is replaced, and from there on everything
    will be, by the next run or replay where this process dies. Each file is replaced at once and as a whole.
    No file of another window is touched.

    Args:
        journal: Open, with its epoch claimed.
        plan: Today's physical plan.
        operators: All operators by name.
        runtime: Gives the place where tasks run; called when the first window runs.
        stop: How the replay is asked to end.
        parallelism: Tasks that run at the same time.

    Raises:
        JournalError: The app cannot be replayed, because what it publishes depends on more than the window's blocks.
    """

    def __init__(
        self,
        journal: Journal,
        plan: PhysicalPlan,
        operators: dict[str, Operator],
        runtime: Callable[[], Runtime],
        stop: StopRequest,
        *,
        parallelism: int,
    ) -> None:
        _require_replayable(plan, operators)
        self._journal = journal
        self._plan = plan
        self._runtime = runtime
        self._stop = stop
        self._codec = WindowCodec(plan, operators, pending_tag(journal.state.app_uuid, journal.epoch))
        self._counts = Scaling(plan, operators, parallelism).counts

    def replay(self, window_ids: Iterable[int]) -> list[ReprocessedWindow]:
        """Run windows again, then replace the files of all of them.

        Raises:
            MissingError: There is no such window.
            JournalError: A window is not committed, or today's app has no place for its blocks.
            DagflowError: A window failed; nothing was replaced.
            RunStoppedError: The replay was asked to end before its record was written; nothing was replaced.
        """
        befores = [self._before(window_id) for window_id in sorted(set(window_ids))]
        redone: list[_Redone] = []
        try:
            for before in befores:
                redone.append(self._run_again(before))
            self._end_if_asked()
            old = {url for before in befores for url in before.urls}
            new = [file for each in redone for file in each.files]
            require_names_apart(new)
            _require_free({file.final_url for file in new} - old)
        except DagflowError:
            for file in [file for each in redone for file in each.files]:
                discard(file)
            raise
        kept = {file.final_url for file in new}
        self._journal.begin_reprocess(
            [
                Reprocess(each.intent, sorted(each.before.urls - kept), dict(each.before.intent.counters))
                for each in redone
            ]
        )
        finish_reprocess(self._journal)
        return [
            ReprocessedWindow(each.intent.window_id, tuple(_changes(each.before.files, each.files))) for each in redone
        ]

    def _before(self, window_id: int) -> _Before:
        planned, intent = self._journal.window(window_id)
        if intent is None or window_id > self._journal.state.last_done:
            raise JournalError(
                f"window {window_id} is not published yet", url="journal", hint="finish it first, with dagflow run"
            )
        # A replay whose files were lost before they were in their places may have replaced some, and removed some.
        undone = self._journal.state.reprocessing.get(window_id)
        return _Before(
            planned, undone.intent if undone else intent, _files_of(intent), _files_of(undone.intent) if undone else []
        )

    def _run_again(self, before: _Before) -> _Redone:
        """Run one window; its files wait.

        Raises:
            DagflowError: The window failed; nothing of it waits.
        """
        results = self._run(before.planned)
        files = [file for result in results for file in result.files]
        failure = _failure_of(results, before)
        if failure is not None:
            for file in files:
                discard(file)
            raise failure
        return _Redone(before, _intent_of(before.planned.window_id, self._plan, results), files)

    def _run(self, planned: WindowPlan) -> list[TaskResult]:
        heads = {stage.head for stage in self._plan.stages}
        ports = {str(exchange.edge.target) for stage in self._plan.stages for exchange in stage.inputs}
        if strangers := sorted(set(planned.tuples) - ports):
            raise JournalError(
                f"window {planned.window_id} gave blocks to {strangers[0]}, which the app has no more",
                url="journal",
                hint="replay it with an app that has an operator of that name",
            )
        counts = {**self._counts, **{head: n for head, n in planned.partitions.items() if head in heads}}
        task = self._codec.task_of(replace(planned, partitions=counts, config_hash=self._codec.config_hash), {})
        runtime = self._runtime()
        self._end_if_asked()
        running = runtime.submit(task)
        while wait([running], timeout=TICK_S).not_done:
            if self._stop.is_requested:
                abandon(runtime, [running])
                self._end_if_asked()
        return running.result()

    def _end_if_asked(self) -> None:
        if self._stop.is_requested:
            raise RunStoppedError("the replay was asked to stop; nothing was replaced")


def _require_replayable(plan: PhysicalPlan, operators: dict[str, Operator]) -> None:
    """Refuse operators whose output depends on other windows, or that publish beside the window.

    Raises:
        JournalError: There is one.
    """
    for stage in plan.stages:
        for name in stage.operators:
            if is_stateful(operators[name]):
                raise JournalError(
                    f"operator '{name}' has state, and what it was before a window is not kept",
                    url="journal",
                    hint="start over with --fresh",
                )
    for name in waits_for_results(plan, operators):
        raise JournalError(
            f"operator '{name}' works on the results of all windows in order, and cannot do one of them again",
            url="journal",
            hint="start over with --fresh",
        )


def _failure_of(results: Sequence[TaskResult], before: _Before) -> DagflowError | None:
    """Why the results of a window cannot take the place of what it did before; None where they can.

    What was published of a file that cannot be read any more exists nowhere else.
    """
    for result in results:
        if isinstance(result.error, SourceChangedError):
            # What a run may do about it, leave the file out, a replay refuses.
            return SourceChangedError(result.error.message, url=result.error.url, hint=_PUT_BACK)
        if result.error is not None:
            return result.error
    for skipped in (skipped for result in results for skipped in result.skipped):
        known = (
            start <= skipped.start and skipped.end <= end
            for url, start, end, _ in before.intent.skipped
            if url == skipped.url
        )
        if not any(known):
            return StorageError(
                f"window {before.planned.window_id} has published what was in it, and it would be left out now: "
                f"{skipped.reason}",
                url=skipped.url,
                hint=_PUT_BACK,
            )
    return None


def _intent_of(window_id: int, plan: PhysicalPlan, results: Sequence[TaskResult]) -> WindowIntent:
    heads = {stage.index: stage.head for stage in plan.stages}
    counters: Counter[str] = Counter()
    for result in results:
        counters.update(result.counters)
    return WindowIntent(
        window_id=window_id,
        files=[file.to_json() for result in results for file in result.files],
        counters=dict(counters),
        skipped=[list(astuple(skipped)) for result in results for skipped in result.skipped],
        produced=[[heads[result.stage], result.partition, len(result.files)] for result in results if result.files],
    )


def _require_free(urls: set[str]) -> None:
    """Refuse names that somebody, perhaps another window, has taken.

    Raises:
        StorageError: One is taken.
    """
    for url in sorted(urls):
        try:
            stat(url)
        except MissingError:
            continue
        raise StorageError(
            "the replay would publish under a name that another window or another program has taken",
            url=redacted(url),
            hint="publish into another directory, or under other names",
        )


def _files_of(intent: WindowIntent) -> list[PendingFile]:
    return [PendingFile.from_json(file) for file in intent.files]


def _changes(old: Sequence[PendingFile], new: Sequence[PendingFile]) -> Iterator[FileChange]:
    before = {file.final_url: file for file in old}
    after = {file.final_url: file for file in new}
    for url in sorted({*before, *after}):
        was, now = before.get(url), after.get(url)
        if was is None or now is None:
            change = "added" if was is None else "removed"
        else:
            is_same = (was.size_bytes, was.crc32) == (now.size_bytes, now.crc32) and now.crc32 is not None
            change = "unchanged" if is_same else "replaced"
        figures = [getattr(file, name) if file else 0 for name in ("records", "size_bytes") for file in (was, now)]
        yield FileChange(redacted(url), change, *figures)
