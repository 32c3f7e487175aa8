"""What a journal amounts to: its records, folded."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from dagflow.journal.frames import encode
from dagflow.journal.records import Event, Reprocess, WindowIntent, WindowPlan

_PLAIN = (
    *("app", "app_uuid", "generation", "setting_aside", "next_window_id", "last_planned", "last_committed"),
    *("source", "directory", "roots", "redoing", "redone", "forgotten", "outputs"),
    *("last_done", "windows", "archived", "plan_totals", "totals", "decisions"),
)

KEPT_DECISIONS = 20
"""How many changes of partition counts are kept for people who ask; each window's plan has its own for ever."""


@dataclass(frozen=True, slots=True)
class PartitionCounts:
    """How many partitions a stage had: least, most, and in the last planned window."""

    min: int
    max: int
    last: int


@dataclass(slots=True)
class JournalState:
    """The fold of a log.

    Attributes:
        app: The app's name; "" before the first run, and after the journal was set aside.
        app_uuid: A name that no other checkpoint has.
        generation: How often the journal was set aside.
        setting_aside: The object that holds the old state while its files are being removed, or "".
        next_window_id: Id of the next window to plan.
        last_planned: Id of the newest planned window, 0 for none.
        last_committed: Id of the newest window with an intent, 0 for none.
        last_done: Id of the newest window of which all files are known to be published, 0 for none.
        windows: How many windows were committed.
        planned: Windows that were planned and have no intent.
        intents: Windows with an intent whose files may not all be published.
        control_state: Of the newest plan.
        state: Of the newest intent.
        plan_totals: Sums of the plans' counters over committed windows.
        totals: Sums of the intents' counters.
        partitions: Partition counts by stage head.
        finished: Done windows that are not in the archive yet, encoded for it.
        archived: Id of the newest window in the archive, 0 for none.
        committing: Plans of the windows in intents.
        source: The app file of the newest run, or "".
        directory: The working directory of that run, which relative locations in the app are relative to, or "".
        roots: Where its named roots were, each as `name=location`.
        redoing: What is being put in the place of windows that were done, by window id as text.
        redone: The objects that say what windows did when they were replayed, by window id as text.
        forgotten: Id of the newest window that is not kept any more, 0 for none.
        outputs: Locations that operators have taken to publish into.
        decisions: The newest decisions of the plans, each after the id of its window.
    """

    app: str = ""
    app_uuid: str = ""
    generation: int = 0
    setting_aside: str = ""
    next_window_id: int = 1
    last_planned: int = 0
    last_committed: int = 0
    last_done: int = 0
    windows: int = 0
    planned: dict[int, WindowPlan] = field(default_factory=dict)
    intents: dict[int, WindowIntent] = field(default_factory=dict)
    control_state: bytes = b""
    state: bytes = b""
    plan_totals: Counter[str] = field(default_factory=Counter)
    totals: Counter[str] = field(default_factory=Counter)
    partitions: dict[str, PartitionCounts] = field(default_factory=dict)
    finished: dict[int, bytes] = field(default_factory=dict)
    archived: int = 0
    committing: dict[int, WindowPlan] = field(default_factory=dict)
    source: str = ""
    directory: str = ""
    roots: list[str] = field(default_factory=list)
    redoing: dict[str, Any] = field(default_factory=dict)
    redone: dict[str, str] = field(default_factory=dict)
    forgotten: int = 0
    outputs: list[str] = field(default_factory=list)
    decisions: list[list[Any]] = field(default_factory=list)

    def apply(self, event: Event) -> None:
        """Fold one event in.

        Raises:
            ValueError: No driver that keeps the protocol says this here.
        """
        match event.kind:
            case "FENCE":
                self.source = event.value.get("source") or self.source
                self.directory = event.value.get("directory") or self.directory
                self.roots = event.value.get("roots", self.roots)
            case "START":
                self.app = event.value["app"]
                self.app_uuid = self.app_uuid or event.value["uuid"]
            case "PLAN":
                self._plan(WindowPlan.from_json(event.value))
            case "INTENT":
                self._commit(WindowIntent.from_json(event.value))
            case "DONE":
                self._done(event.value)
            case "REDO":
                self._redo(event.value)
            case "REDONE":
                self._redone(event.value["window_id"], event.value["name"])
            case "OUTPUTS":
                self.outputs = sorted({*self.outputs, *event.value})
            case "ASIDE":
                self._set_aside(event.value)
            case "CLEARED":
                self.setting_aside = ""
            case _:
                raise ValueError(f"event {event.kind!r} is unknown")

    def _plan(self, plan: WindowPlan) -> None:
        if plan.window_id != self.next_window_id:
            raise ValueError(f"window {plan.window_id} is planned where window {self.next_window_id} is due")
        self.planned[plan.window_id] = plan
        self.last_planned = plan.window_id
        self.next_window_id = plan.window_id + 1
        self.control_state = plan.control_state
        self.decisions += [[plan.window_id, *decision] for decision in plan.decisions]
        del self.decisions[:-KEPT_DECISIONS]
        for name, count in plan.partitions.items():
            known = self.partitions.get(name, PartitionCounts(count, count, count))
            self.partitions[name] = PartitionCounts(min(known.min, count), max(known.max, count), count)

    def _commit(self, intent: WindowIntent) -> None:
        if intent.window_id != self.last_committed + 1 or intent.window_id not in self.planned:
            raise ValueError(
                f"window {intent.window_id} is committed after window {self.last_committed}; "
                f"planned are {sorted(self.planned)}"
            )
        plan = self.planned.pop(intent.window_id)
        self.committing[intent.window_id] = plan.without_state()
        self.intents[intent.window_id] = intent
        self.last_committed = intent.window_id
        self.windows += 1
        self.state = intent.state
        self.plan_totals.update(plan.counters)
        self.totals.update(intent.counters)

    def _done(self, window_id: int) -> None:
        if window_id not in self.intents:
            raise ValueError(f"window {window_id} is done without an intent")
        # The archive is a sequence of ranges; a window that came later would be passed over by its readers.
        if window_id != self.last_done + 1:
            raise ValueError(f"window {window_id} is done before window {self.last_done + 1}")
        plan, intent = self.committing.pop(window_id), self.intents.pop(window_id)
        self.last_done = window_id
        self.finished[window_id] = encode([plan.to_json(), intent.without_state().to_json()])

    @property
    def reprocessing(self) -> dict[int, Reprocess]:
        """The replays that are decided, and of which not all files are known to be in their places, by window id."""
        return {int(text): Reprocess.from_json(self.redoing[text]) for text in sorted(self.redoing, key=int)}

    def awaited_files(self) -> Iterator[dict[str, Any]]:
        """PendingFile.to_json() of every file that is decided, and perhaps not in its place yet."""
        for intent in [*self.intents.values(), *(redo.intent for redo in self.reprocessing.values())]:
            yield from intent.files

    def _redo(self, value: dict[str, Any]) -> None:
        intent = WindowIntent.from_json(value["intent"])
        if not 0 < intent.window_id <= self.last_done:
            raise ValueError(f"window {intent.window_id} is replayed, but windows 1 to {self.last_done} are done")
        # A replay whose files were lost before they were in their places is decided anew.
        self.redoing[str(intent.window_id)] = value
        self.totals.subtract(value["before"])
        self.totals.update(intent.counters)

    def _redone(self, window_id: int, name: str) -> None:
        if self.redoing.pop(str(window_id), None) is None:
            raise ValueError(f"window {window_id} is replayed without having been begun")
        self.redone[str(window_id)] = name

    def _set_aside(self, name: str) -> None:
        fresh = JournalState(app_uuid=self.app_uuid, generation=self.generation + 1, setting_aside=name)
        for each in JournalState.__slots__:
            setattr(self, each, getattr(fresh, each))

    def to_json(self) -> dict[str, Any]:
        """The state as JSON values; finished windows are left to the archive.

        Raises:
            ValueError: There are finished windows that are not in the archive.
        """
        if self.finished:
            raise ValueError(f"windows {sorted(self.finished)} are not in the archive yet")
        return {
            **{name: getattr(self, name) for name in _PLAIN},
            "planned": [plan.to_json() for plan in self.planned.values()],
            "committing": [plan.to_json() for plan in self.committing.values()],
            "intents": [intent.to_json() for intent in self.intents.values()],
            "control_state": base64.b64encode(self.control_state).decode("ascii"),
            "state": base64.b64encode(self.state).decode("ascii"),
            "partitions": {name: [known.min, known.max, known.last] for name, known in self.partitions.items()},
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> JournalState:
        """The state that to_json() described."""
        plans = {name: map(WindowPlan.from_json, value[name]) for name in ("planned", "committing")}
        intents = map(WindowIntent.from_json, value["intents"])
        special: dict[str, Any] = {
            **{name: {plan.window_id: plan for plan in some} for name, some in plans.items()},
            "intents": {intent.window_id: intent for intent in intents},
            "control_state": base64.b64decode(value["control_state"]),
            "state": base64.b64decode(value["state"]),
            "plan_totals": Counter(value["plan_totals"]),
            "totals": Counter(value["totals"]),
            "partitions": {name: PartitionCounts(*counts) for name, counts in value["partitions"].items()},
        }
        return cls(**{**value, **special})
