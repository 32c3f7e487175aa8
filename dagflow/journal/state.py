"""The state of a journal: the events of its log, applied one after the other."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import field, fields, replace
from typing import Any, assert_never

from dagflow.api.context import WaitingEnd
from dagflow.frozen import frozen, mutable
from dagflow.journal.events import (
    Cleared,
    Done,
    Event,
    Fence,
    NewApp,
    Operators,
    Outputs,
    Repair,
    Replan,
    ReplayCancelled,
    ReplayDone,
    SetAside,
    Start,
    WindowReplay,
)
from dagflow.journal.frames import encode, to_json
from dagflow.journal.saved_state import AppFacts, Booked, CommittedState, ControlState, LeftOut, ends_after
from dagflow.journal.windows import (
    ColumnHistory,
    Correction,
    PartitionDecision,
    Receipt,
    Window,
    WindowIntent,
    WindowPlan,
)
from dagflow.metrics import names
from dagflow.metrics.counters import Counters
from dagflow.storage.pending import HeldFile, PendingFile


@mutable
class HeldFiles:
    """Files that windows have held back.

    Attributes:
        waiting: Files that no committed window has taken, oldest first, by operator.
        taken: Files that a committed, not yet published window has taken, by that window.
        withdrawn: Files of a window whose replay is decided, which publishes its rows at once, by the window.
    """

    waiting: dict[str, list[HeldFile]] = field(default_factory=dict)
    taken: dict[int, dict[str, list[HeldFile]]] = field(default_factory=dict)
    withdrawn: dict[int, dict[str, list[HeldFile]]] = field(default_factory=dict)

    @property
    def all_waiting(self) -> list[HeldFile]:
        return [held for files in self.waiting.values() for held in files]

    def commit(self, plan: WindowPlan, intent: WindowIntent, since_window: int = 0) -> None:
        """Remove what a window takes, and add what it holds back; see HeldFile for since_window."""
        window_id = plan.window_id
        for operator, newest in plan.takes.items():
            waiting = self.waiting.pop(operator, [])
            taken = [held for held in waiting if held.window_id <= newest]
            self.taken.setdefault(window_id, {})[operator] = taken
            self._keep(operator, waiting[len(taken) :])
        for file in intent.held:
            operator = "" if file.facts is None else file.facts.operator
            self.waiting.setdefault(operator, []).append(HeldFile(window_id, intent.committed_ms, file, since_window))

    def publish(self, window_id: int) -> None:
        self.taken.pop(window_id, None)

    def take_back(self, window_id: int) -> None:
        for operator, waiting in list(self.waiting.items()):
            self._keep(operator, [held for held in waiting if held.window_id != window_id])
        for operator, taken in self.taken.pop(window_id, {}).items():
            self._keep(operator, [*taken, *self.waiting.get(operator, [])])

    def withdraw(self, window_id: int, kept: Collection[str]) -> None:
        """Stop the files of a window from waiting, except some: its new files replace them."""
        for operator, waiting in list(self.waiting.items()):
            own = [held for held in waiting if held.window_id == window_id and held.file.final_url not in kept]
            if own:
                self.withdrawn.setdefault(window_id, {})[operator] = own
                self._keep(operator, [held for held in waiting if held not in own])

    def give_back(self, window_id: int) -> None:
        for operator, withdrawn in self.withdrawn.pop(window_id, {}).items():
            waiting = [*withdrawn, *self.waiting.get(operator, [])]
            self._keep(operator, sorted(waiting, key=lambda held: held.window_id))

    def _keep(self, operator: str, files: list[HeldFile]) -> None:
        if files:
            self.waiting[operator] = files
        else:
            self.waiting.pop(operator, None)

    def free(self, operator: str, planned: Iterable[WindowPlan]) -> list[HeldFile]:
        """The files of an operator that no planned window takes, oldest first."""
        newest = max((plan.takes.get(operator, 0) for plan in planned), default=0)
        return [held for held in self.waiting.get(operator, []) if held.window_id > newest]

    def taken_by(self, window_id: int) -> list[PendingFile]:
        return [held.file for files in self.taken.get(window_id, {}).values() for held in files]

    def has(self, operator: str, window_id: int) -> bool:
        """Whether files of an operator wait that a window, or one before it, has held back."""
        places = (self.waiting, *self.taken.values())
        return any(held.window_id <= window_id for files in places for held in files.get(operator, ()))

    def files(self, but: Collection[int] = ()) -> Iterator[PendingFile]:
        for by_operator in (self.waiting, *self.taken.values(), *self.withdrawn.values()):
            for files in by_operator.values():
                yield from (held.file for held in files if held.window_id not in but)

    def published_through(self, newest: int) -> int:
        """The newest window such that neither it nor any window before it has held files."""
        return min([newest, *((held.since_window or held.window_id) - 1 for held in self.all_waiting)])


KEPT_DRIVERS = 50
"""How many of the newest drivers are kept, for display."""

KEPT_CORRECTIONS = 20
"""How many of the newest corrections are kept, for display."""

KEPT_APPS = 20
"""How many of the newest apps are kept."""

KEPT_DECISIONS = 20
"""How many changes of partition counts are kept for display; each window's plan keeps its own."""


@frozen
class PartitionCounts:
    """How many partitions a stage had: least, most, and in the newest planned window."""

    min: int
    max: int
    last: int


@frozen
class DriverStart:
    """A driver that took over the journal to run an app."""

    window_id: int
    holder: str


def note_partitions(known: dict[str, PartitionCounts], plan: WindowPlan) -> None:
    for stage, count in plan.partitions.items():
        before = known.get(stage, PartitionCounts(count, count, count))
        known[stage] = PartitionCounts(min(before.min, count), max(before.max, count), count)


@mutable
class JournalState:
    """The result of applying a log.

    Attributes:
        app: The app's name; "" before the first run, and after the journal was set aside.
        app_uuid: A name that no other checkpoint has.
        generation: How often the journal was set aside.
        setting_aside: The object that holds the old state while its files are being removed, or "".
        source: The app file of the newest run, or "".
        directory: The working directory of that run, which relative locations in the app are relative to, or "".
        roots: Where its named roots were, each as `name=location`.
        text: The app file of that run without secrets; "" where it is not kept.
        apps: The texts of the newest apps, by fingerprint: windows name the app that planned them.
        is_local: Whether the tasks of that run were on this machine, without Spark.
        earlier_outputs: Locations from before the journal was set aside.
        operators: All operators of the newest run that restored the states of earlier ones.
        facts: The app of the newest run; None where no run has recorded it.
        last_planned: Id of the newest planned window, 0 for none.
        last_committed: Id of the newest window with an intent, 0 for none.
        last_done: Id of the newest window whose files are all known to be published, 0 for none.
        forgotten: Id of the newest window that is not kept any more, 0 for none.
        planned: Windows that were planned and have no intent.
        committing: Plans of the windows in intents.
        before: What committed_state was before the windows in intents.
        repaired: Files of commits that were taken back, some of which may be published, by window id; until the window
            is done.
        finished: Done windows that are not in the archive yet, encoded for it.
        decisions: The newest partition decisions of the plans.
        waiting: Ends of files that windows have left, because they may go on.
        reprocessing: Done windows whose files are being replaced, by window id.
        reprocessed: The objects that hold the results of replays, by window id.
        receipts: The newest state of each transactional target, by operator.
        retried: Windows whose refused records a later window has taken over.
        corrections: The newest corrections of outputs.
        phase_ms: How long each phase took in all done windows together, in milliseconds, by phase; see PHASES.
        run_start: The first window of the newest run that has committed new input; 0 for none.
        last_committed_ms: When the newest intent was written, in milliseconds since 1970, 0 for none.
        last_published_ms: When the newest done window was published, in milliseconds since 1970, 0 for none.
    """

    app: str = ""
    app_uuid: str = ""
    generation: int = 0
    setting_aside: str = ""
    source: str = ""
    directory: str = ""
    roots: list[str] = field(default_factory=list)
    text: str = ""
    apps: dict[str, str] = field(default_factory=dict)
    is_local: bool = False
    drivers: list[DriverStart] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    earlier_outputs: list[str] = field(default_factory=list)
    operators: list[str] = field(default_factory=list)
    facts: AppFacts | None = None
    next_window_id: int = 1
    last_planned: int = 0
    last_committed: int = 0
    last_done: int = 0
    forgotten: int = 0
    planned: dict[int, WindowPlan] = field(default_factory=dict)
    intents: dict[int, WindowIntent] = field(default_factory=dict)
    committing: dict[int, WindowPlan] = field(default_factory=dict)
    before: dict[int, CommittedState] = field(default_factory=dict)
    repaired: dict[int, list[PendingFile]] = field(default_factory=dict)
    finished: dict[int, bytes] = field(default_factory=dict)
    control_state: ControlState = field(default_factory=ControlState)
    committed_state: CommittedState = field(default_factory=CommittedState)
    totals: Counters = field(default_factory=Counters)
    busy_s: dict[str, float] = field(default_factory=dict)
    partitions: dict[str, PartitionCounts] = field(default_factory=dict)
    decisions: list[PartitionDecision] = field(default_factory=list)
    left_out: LeftOut = field(default_factory=LeftOut)
    waiting: list[WaitingEnd] = field(default_factory=list)
    reprocessing: dict[int, WindowReplay] = field(default_factory=dict)
    replays: int = 0
    reprocessed: dict[int, str] = field(default_factory=dict)
    receipts: dict[str, Receipt] = field(default_factory=dict)
    retried: list[int] = field(default_factory=list)
    corrections: list[Correction] = field(default_factory=list)
    held: HeldFiles = field(default_factory=HeldFiles)
    columns: list[ColumnHistory] = field(default_factory=list)
    phase_ms: dict[str, int] = field(default_factory=dict)
    run_start: int = 0
    last_committed_ms: int = 0
    last_published_ms: int = 0

    @property
    def oldest_unpublished_ms(self) -> int:
        """When the oldest planned input that no target shows began to wait, in milliseconds since 1970.

        0 where nothing waits. The journal does not know input that is in no plan yet; files are planned in about the
        order in which they were discovered.
        """
        waiting = [plan.waits_since_ms for plan in [*self.planned.values(), *self.committing.values()]]
        waiting += [files[0].held_ms for files in self.held.waiting.values()]
        return min(filter(None, waiting), default=0)

    def published_through(self, newest: int) -> int:
        """The newest window such that neither it nor any window before it holds back files or results."""
        results = self.committed_state.held_results.values()
        return min([self.held.published_through(newest), *(result.since_window - 1 for result in results)])

    @property
    def uncommitted_bytes(self) -> int:
        """Bytes of input that splitters have emitted in windows that are not committed."""
        return sum(plan.counters.total(names.BYTES_EMITTED) for plan in self.planned.values())

    @property
    def uncommitted_blocks(self) -> int:
        return sum(plan.counters.total(names.BLOCKS_EMITTED) for plan in self.planned.values())

    def apply(self, event: Event) -> None:
        """Change the state by an event; a ValueError where a driver that keeps the protocol would not write it now."""
        match event:
            case Fence():
                self._take_over(event)
            case Start():
                self.app = event.app
                self.app_uuid = self.app_uuid or event.uuid
            case WindowPlan():
                self._plan(event)
            case Replan():
                self._plan_again(event.plan)
            case WindowIntent():
                self._commit(event)
            case Done():
                self._finish(event)
            case Repair():
                self._repair(event.window_id)
            case WindowReplay():
                self._begin_replay(event)
            case ReplayDone():
                self._end_replay(event)
            case ReplayCancelled():
                self._cancel_replay(event)
            case Outputs():
                self.outputs = sorted({*self.outputs, *event.urls})
            case Operators():
                self.operators = event.names
            case NewApp():
                self.facts = event.facts
                known = {name: text for name, text in self.apps.items() if name != event.facts.fingerprint}
                self.apps = dict([*known.items(), (event.facts.fingerprint, self.text)][-KEPT_APPS:])
            case SetAside():
                self._set_aside(event.name)
            case Cleared():
                self.setting_aside = ""
            case _:
                assert_never(event)

    def _take_over(self, fence: Fence) -> None:
        if fence.run is not None:
            self.source = fence.run.source or self.source
            self.directory = fence.run.directory or self.directory
            self.roots, self.is_local = fence.run.roots, fence.run.is_local
            # A replay names no app file: that of the newest run stays.
            self.text = fence.run.text if fence.run.source else self.text
            self.drivers = [*self.drivers, DriverStart(self.next_window_id, str(fence.holder))][-KEPT_DRIVERS:]

    def _plan(self, plan: WindowPlan) -> None:
        if plan.window_id != self.next_window_id:
            raise ValueError(f"window {plan.window_id} is planned where window {self.next_window_id} is due")
        self.last_planned, self.next_window_id = plan.window_id, plan.window_id + 1
        self._take_plan(plan)

    def _plan_again(self, plan: WindowPlan) -> None:
        if plan.window_id not in self.planned:
            raise ValueError(f"window {plan.window_id} is planned again; planned are {sorted(self.planned)}")
        self._take_plan(plan)

    def _take_plan(self, plan: WindowPlan) -> None:
        self.planned[plan.window_id] = plan
        if plan.window_id == self.last_planned:
            self.control_state = plan.control_state
        self.decisions = [*self.decisions, *plan.decisions][-KEPT_DECISIONS:]
        note_partitions(self.partitions, plan)

    def _commit(self, intent: WindowIntent) -> None:
        if intent.window_id != self.last_committed + 1 or intent.window_id not in self.planned:
            raise ValueError(
                f"window {intent.window_id} is committed after window {self.last_committed}; "
                f"planned are {sorted(self.planned)}"
            )
        plan = self.planned.pop(intent.window_id)
        self.committing[intent.window_id] = plan
        self.before[intent.window_id] = before = self.committed_state
        self.intents[intent.window_id] = intent
        self.last_committed = intent.window_id
        self.last_committed_ms = intent.committed_ms
        if not plan.retries and self.drivers and self.drivers[-1].window_id <= intent.window_id:
            self.run_start = self.drivers[-1].window_id
        self.committed_state = intent.state
        self.left_out = self.left_out.after(intent.skipped, intent.recovered)
        self.waiting = ends_after(self.waiting, intent.waiting, intent.ended)
        self.retried += plan.retries
        self.corrections = [*self.corrections, *intent.corrections][-KEPT_CORRECTIONS:]
        published = [before.held_results[name].since_window for name in plan.closes if name in before.held_results]
        self.held.commit(plan, intent, min(published, default=0))
        for operator, changes in intent.columns.items():
            self.columns += [ColumnHistory(intent.window_id, intent.committed_ms, operator, each) for each in changes]
        self.totals.add(plan.counters)
        self.totals.add(intent.counters)
        for name, seconds in intent.busy_s.items():
            self.busy_s[name] = self.busy_s.get(name, 0.0) + seconds

    def _finish(self, done: Done) -> None:
        window_id = done.window_id
        if window_id not in self.intents:
            raise ValueError(f"window {window_id} is done without an intent")
        # The archive is a sequence of ranges; its readers would skip a window that came later.
        if window_id != self.last_done + 1:
            raise ValueError(f"window {window_id} is done before window {self.last_done + 1}")
        plan = self.committing.pop(window_id).without_state()
        intent = self.intents.pop(window_id).without_state()
        self.last_done = window_id
        self.before.pop(window_id, None)
        self.repaired.pop(window_id, None)
        self.held.publish(window_id)
        for name, version in done.receipts.items():
            target = done.targets.get(name, "")
            before = self.receipts.get(name, Receipt(0, "", target))
            self.receipts[name] = before.followed_by(window_id, version, target)
        self._correct([])
        self.last_published_ms = done.published_ms
        window = Window(plan, intent, done.published_ms, done.receipts)
        for phase, took_ms in window.phase_ms().items():
            self.phase_ms[phase] = self.phase_ms.get(phase, 0) + took_ms
        self.finished[window_id] = encode(to_json(window))

    def _repair(self, window_id: int) -> None:
        # No app has this fingerprint, so the next run plans the window again.
        if window_id in self.planned:
            self.planned[window_id] = replace(self.planned[window_id], config_hash="")
            return
        if window_id not in self.before or window_id != self.last_committed:
            raise ValueError(f"window {window_id} is repaired; {sorted(self.before)} are committed and not published")
        plan, intent = self.committing.pop(window_id), self.intents.pop(window_id)
        self.planned[window_id] = replace(plan, config_hash="")
        self.last_committed = window_id - 1
        self.committed_state = self.before.pop(window_id)
        self.repaired[window_id] = [*self.repaired.get(window_id, []), *intent.files]
        self.retried = [retried for retried in self.retried if retried not in plan.retries]
        # The reverse of the commit: what it had read of earlier windows counts as left out again, and its own does not.
        self.left_out = self.left_out.after(intent.recovered, intent.skipped)
        self.waiting = ends_after(self.waiting, intent.ended, intent.waiting)
        self.held.take_back(window_id)
        self.corrections = [each for each in self.corrections if each.window_id != window_id]
        self.columns = [change for change in self.columns if change.window_id != window_id]
        self.totals.subtract(plan.counters)
        self.totals.subtract(intent.counters)
        for name, seconds in intent.busy_s.items():
            self.busy_s[name] -= seconds

    def _begin_replay(self, event: WindowReplay) -> None:
        window_id = event.intent.window_id
        if not 0 < window_id <= self.last_done:
            raise ValueError(f"window {window_id} is replayed, but windows 1 to {self.last_done} are done")
        # A window whose new files were lost before they were published is replayed once more.
        self.reprocessing[window_id] = event
        self.replays = max(self.replays, event.number)
        self.held.withdraw(window_id, event.kept)
        if window_id in self.held.withdrawn:
            # Windows that would merge its files are planned again, without these files; see _repair.
            planned = self.planned.items()
            self.planned = {each: replace(plan, config_hash="") if plan.takes else plan for each, plan in planned}
        self.totals.subtract(event.before)
        self.totals.add(event.intent.counters)
        self._book(event.intent.accounting, event.booked_before)

    def _end_replay(self, event: ReplayDone) -> None:
        done = self.reprocessing.pop(event.window_id, None)
        if done is None:
            raise ValueError(f"the replay of window {event.window_id} ends without having begun")
        listed = set(self.left_out.newest)
        # Two windows of a replay may have left out the same ranges.
        self.left_out = self.left_out.after((), [skip for skip in done.intent.recovered if skip in listed])
        self.held.withdrawn.pop(event.window_id, None)
        self.retried = [each for each in self.retried if each != event.window_id]  # they are its own again
        self.reprocessed[event.window_id] = event.name
        # A target that has only had held files has no newest window yet.
        for name in event.receipts.keys() & self.receipts.keys():
            self.receipts[name] = replace(self.receipts[name], version=event.receipts[name])
        self._correct(done.corrections)

    def _correct(self, made: Sequence[Correction]) -> None:
        """Add corrections, and name the versions of targets that have those which are published now."""
        newest = [*self.corrections, *made][-KEPT_CORRECTIONS:]
        self.corrections = [
            each
            if each.version
            or each.window_id > self.last_done
            or each.output not in self.receipts
            or self.held.has(each.output, each.window_id)
            else replace(each, version=(to := self.receipts[each.output]).version, place=to.place)
            for each in newest
        ]

    def _cancel_replay(self, event: ReplayCancelled) -> None:
        cancelled = self.reprocessing.pop(event.window_id, None)
        if cancelled is None:
            raise ValueError(f"the replay of window {event.window_id} is taken back without having begun")
        self.held.give_back(event.window_id)
        self.totals.subtract(cancelled.intent.counters)
        self.totals.add(event.before)
        self._book(event.booked_before, cancelled.intent.accounting)

    def _book(self, added: Booked, withdrawn: Booked) -> None:
        self.committed_state = self.committed_state.with_booked(added, withdrawn)
        self.before = {window_id: each.with_booked(added, withdrawn) for window_id, each in self.before.items()}

    def _set_aside(self, name: str) -> None:
        fresh = JournalState(app_uuid=self.app_uuid, generation=self.generation + 1, setting_aside=name)
        fresh.earlier_outputs = sorted({*self.earlier_outputs, *self.outputs})
        for each in fields(self):
            setattr(self, each.name, getattr(fresh, each.name))

    def unpublished_files(self) -> Iterator[PendingFile]:
        """Every decided file that may not have its final name yet."""
        for intent in [*self.intents.values(), *(replay.intent for replay in self.reprocessing.values())]:
            yield from intent.files
        yield from self.held.files()

    def to_json(self) -> dict[str, Any]:
        """The state as JSON values, without finished windows: they must be in the archive by then."""
        if self.finished:
            raise ValueError(f"windows {sorted(self.finished)} are not in the archive yet")
        value: dict[str, Any] = to_json(self)
        return value
