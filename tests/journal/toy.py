"""A small engine: numbers in, files of numbers out, and whatever a journal must cope with."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import fsspec

from dagflow.journal.journal import Journal
from dagflow.journal.reader import JournalRetention
from dagflow.journal.saved_state import CommittedState, ControlState
from dagflow.journal.windows import PlannedTuples, WindowIntent, WindowPlan
from dagflow.storage.base import ObjectStore
from dagflow.storage.context import StorageContext
from dagflow.storage.location import join
from dagflow.storage.pending import PendingFile, pending_tag
from tests.faulty import Faults, FaultyStore, counted_calls
from tests.journal.samples import PORT, counted, emitted

STORAGE = StorageContext.default()
PER_WINDOW = 3
RETENTION = JournalRetention(finished_windows=2, records=8)
_HIDDEN = re.compile(r"(^|/)\.")


@dataclass
class Toy:
    """Copies the numbers below a limit into files, each once, and keeps their sum as operator state.

    Args:
        store: The checkpoint.
        out: URL of the output directory.
        numbers: How many there are.
        cores: Into how many files a window's numbers are split, when it is planned here.
        faults: Counts durable calls and may end in one.
        retention: When the journal is made smaller.
    """

    store: ObjectStore
    out: str
    numbers: int = 9
    cores: int = 2
    faults: Faults | None = None
    retention: JournalRetention = RETENTION

    def run(self) -> Journal:
        """Work until all is published; return the journal, open."""
        faults = self.faults or Faults()
        self._publish: Callable[[PendingFile], None] = counted_calls(
            faults, lambda file: STORAGE.backend(file.final_url).pending.publish(file)
        )
        self._journal = Journal.open(FaultyStore(self.store, faults), app="toy", retention=self.retention)
        self._tidy(self._journal.epoch)
        self._recover()
        self._work()
        self._journal.flush()
        self._tidy(self._journal.epoch + 1)
        return self._journal

    def _tidy(self, before_epoch: int) -> None:
        keep = {file.pending_url for file in self._journal.state.unpublished_files()}
        journal = self._journal
        STORAGE.backend(self.out).pending.sweep(
            self.out,
            owner=journal.state.app_uuid,
            before_epoch=before_epoch,
            require_right=journal.check_epoch,
            keep=keep,
        )

    def _recover(self) -> None:
        state = self._journal.state
        for window_id in sorted(state.intents):
            self._finish(state.intents[window_id])
        for window_id in sorted(state.planned):
            self._execute(state.planned[window_id])

    def _work(self) -> None:
        start = self._journal.state.control_state.operator_index.get("next", 0)
        plans: list[WindowPlan] = []
        while start < self.numbers or plans:
            # One window is planned ahead of the one that runs.
            while start < self.numbers and len(plans) < 2:
                end = min(start + PER_WINDOW, self.numbers)
                plans.append(self._plan(start, end))
                start = end
            self._execute(plans.pop(0))

    def _plan(self, start: int, end: int) -> WindowPlan:
        plan = WindowPlan(
            self._journal.state.next_window_id,
            inputs={PORT: PlannedTuples("builtins:int", list(range(start, end)), None)},
            partitions={"copy": self.cores},
            control_state=ControlState(operator_index={"next": end}),
            counters=counted("source", "numbers", end - start),
        )
        self._journal.append(plan)
        return plan

    def _execute(self, plan: WindowPlan) -> None:
        files = []
        cores = plan.partitions["copy"]
        numbers: list[int] = plan.inputs[PORT].tuples
        for core in range(cores):
            share = numbers[core::cores]
            tag = pending_tag(self._journal.state.app_uuid, self._journal.epoch)
            writer = STORAGE.open_pending(join(self.out, f"w{plan.window_id}-{core}"), tag=tag)
            writer.write(json.dumps(share).encode())
            files.append(writer.close(records=len(share)))
        total = self._journal.state.committed_state.byte_accounting.get("sum", 0) + sum(numbers)
        count = emitted("copy", "output", len(numbers))
        state = CommittedState(byte_accounting={"sum": total})
        intent = WindowIntent(plan.window_id, files=files, counters=count, state=state)
        self._journal.append(intent)
        self._finish(intent)
        self._journal.maintain()

    def _finish(self, intent: WindowIntent) -> None:
        for file in intent.files:
            self._publish(file)
        self._journal.mark_done(intent.window_id)


def files_below(root: str) -> dict[str, bytes]:
    """All files, hidden ones too, by their names below a root."""
    filesystem, path = fsspec.core.url_to_fs(root, use_listings_cache=False)
    return {name.removeprefix(path).lstrip("/"): filesystem.cat_file(name) for name in filesystem.find(path)}


def published_numbers(out: str) -> Counter[int]:
    """How often each number was published: what a reader sees who lists the directory."""
    return Counter(
        number for name, data in files_below(out).items() if not _HIDDEN.search(name) for number in json.loads(data)
    )


def require_partial(out: str, numbers: int) -> None:
    """Every number at most once, and none that is not in the input."""
    found = published_numbers(out)
    assert set(found) <= set(range(numbers))
    assert set(found.values()) <= {1}


def require_complete(store: ObjectStore, out: str, numbers: int) -> None:
    """Every number once, nothing pending, the account right, and a further run with nothing to do."""
    assert published_numbers(out) == Counter(range(numbers))
    assert [name for name in files_below(out) if _HIDDEN.search(name)] == []
    before = files_below(out)
    journal = Toy(store, out, numbers).run()
    assert files_below(out) == before
    state = journal.state
    assert (state.planned, state.intents) == ({}, {})
    assert state.committed_state.byte_accounting == {"sum": sum(range(numbers))}
    assert state.totals.operators["copy"].records == {"output": numbers}
    assert state.totals.operators["source"].counts == {"numbers": numbers}
    assert sorted(journal.published()) == sorted(join(out, name) for name in before)
