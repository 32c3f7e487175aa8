"""Reads refused records again: windows that take over what earlier ones refused, in place of new input."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from dagflow.api.capabilities import TupleReader
from dagflow.api.context import OWN_ID_BITS, RETRY_ID_BITS
from dagflow.api.ports import TupleBatch
from dagflow.api.refused_records import RefusedRecords
from dagflow.api.transactions import targets_of
from dagflow.engine.control_graph import ControlGraph, Emission, index_operators
from dagflow.engine.held_results import HeldResults
from dagflow.errors import ANOTHER_TABLE, JournalError
from dagflow.journal.journal import now_ms
from dagflow.journal.saved_state import ControlState
from dagflow.journal.state import JournalState
from dagflow.journal.windows import WindowPlan
from dagflow.plan.accumulators import has_totals_alone
from dagflow.plan.physical import PortRef
from dagflow.plan.placement import PlacedApp
from dagflow.report.open_rejects import RejectChoice, WindowRejects, rejects_in
from dagflow.storage.objects import ObjectStore

WINDOW_RECORDS = 500_000
WINDOW_BLOCKS = 100_000
"""A window takes over the refused records of whole windows until it has this many: bounds its plan."""

INDEX_NAME = "(rejects)"
"""Stands for the retry among the operators that give ids; no operator of an app can have this name."""


class RejectRetry:
    """Emits refused records in place of the tuples of an app's control operators.

    Guarantee: each refused record is taken over by at most one window; once that window is committed, the record is
    either published or refused by it. Records that the app as it is now has refused are not tried again.

    Raises:
        JournalError: A target of the app cannot take late records, or a result over the run is open.
    """

    def __init__(
        self,
        control: ControlGraph,
        app: PlacedApp,
        store: ObjectStore,
        state: Callable[[], JournalState],
        choice: RejectChoice,
        held: HeldResults,
    ) -> None:
        if (obstacle := why_no_late_records(app)) is not None:
            raise obstacle
        if (name := held.over_unfinished_run(state().planned.values())) is not None:
            raise JournalError(
                f"the result of operator '{name}' is over the run, which is not finished: the end of the replay would "
                "publish a part of it",
                hint="run the app to its end with dagflow run, and replay the refused records then",
            )
        self._control = control
        self._app = app
        self._store = store
        self._state = state
        self._choice = choice
        self._windows: Iterator[list[WindowRejects]] | None = None
        self.operator_index: Mapping[str, int] = index_operators([INDEX_NAME], control.operator_index)

    def emit(self, window_id: int) -> Emission | None:
        # Not earlier: a planned window takes over records when it is committed.
        self._windows = self._windows or _by_window(rejects_in(self._store))
        index = self.operator_index[INDEX_NAME] << OWN_ID_BITS
        first_id = 1 + index + (window_id % (1 << OWN_ID_BITS - RETRY_ID_BITS) << RETRY_ID_BITS)
        tuples: dict[PortRef, list[Any]] = defaultdict(list)
        retries: list[int] = []
        records = blocks = 0
        for found in self._windows:
            window = [rejects for rejects in found if rejects.can_be_read_again]
            tried = [self._is_tried(rejects) for rejects in window]
            if not any(mask.any() for mask in tried):
                continue
            retries.append(window[0].window_id)
            # All records of the window: those that are not tried stay refused.
            for rejects, is_tried in zip(window, tried, strict=True):
                batch = self._read_again(rejects, is_tried, first_id + blocks)
                tuples[PortRef.parse(rejects.port)].append(batch)
                records += len(rejects.records)
                blocks += len(batch)
            if records >= WINDOW_RECORDS or blocks >= WINDOW_BLOCKS:
                break
        if not tuples:
            return None
        plan = WindowPlan(
            window_id,
            control_state=ControlState(operators=self._state().control_state.operators),
            emitted_ms=now_ms(),
            retries=retries,
            keeps_states=True,
        )
        return Emission(plan, dict(tuples))

    def emit_rest(self, window_id: int) -> Emission | None:
        """The files that windows have held back; see ControlGraph."""
        return self._control.emit_rest(window_id)

    def _is_tried(self, rejects: WindowRejects) -> npt.NDArray[np.bool_]:
        """Which records to read again: the chosen ones, without those that the app as it is now has refused."""
        current = self._app.facts.fingerprint
        by_other_app = rejects.records.matches("app", lambda app: app != current)
        is_tried: npt.NDArray[np.bool_] = np.logical_and(self._choice.mask(rejects), by_other_app)
        return is_tried

    def _read_again(self, rejects: WindowRejects, is_tried: npt.NDArray[np.bool_], first_id: int) -> TupleBatch:
        """The records as a tuple for the operator that has refused them."""
        operator: object = self._app.operators.get(rejects.operator)
        ports = {str(each.edge.target) for stage in self._app.plan.stages for each in stage.inputs if each.is_assigned}
        batch = None
        if isinstance(operator, TupleReader) and rejects.port in ports:
            batch = operator.retry_batch(rejects.blocks, rejects.records, is_tried, first_id)
        if batch is None:
            raise JournalError(
                f"window {rejects.window_id} has refused records of operator '{rejects.operator}', and the app has no "
                "such operator that reads them",
                hint=f"call the reader '{rejects.operator}' again, as it was called when they were refused",
            )
        return batch

    def unemitted_bytes(self) -> dict[str, int]:
        """Empty: how much is still to come is not known."""
        return {}

    def at_work(self) -> str:
        """The operator that works now; see ControlGraph."""
        return self._control.at_work()

    def scan_now(self) -> None:
        """Do nothing: there is no input to scan."""


def why_no_late_records(app: PlacedApp) -> JournalError | None:
    """Why an app cannot take in refused records: its target keeps the newest records, and these would count as new."""
    for name, target in targets_of(app.operators, app.storage).items():
        if (why := target.why_no_late_records) and not has_totals_alone(app.plan, app.operators, name):
            return JournalError(
                f"operator '{name}' writes to {target.name}: {why}",
                hint="put those that no newer record has replaced, corrected, into a new file of the input; or, for "
                f"all of them in the order of the input, {ANOTHER_TABLE}",
            )
    return None


def _by_window(rejects: Iterable[WindowRejects]) -> Iterator[list[WindowRejects]]:
    """For each window what each of its operators refused, whose parts are made one."""
    for _, parts in itertools.groupby(rejects, lambda each: each.window_id):
        window: list[WindowRejects] = []
        for _, own in itertools.groupby(parts, lambda each: each.operator):
            first, *others = own
            records = RefusedRecords.concatenated([part.records for part in (first, *others)])
            window.append(replace(first, records=records))
        yield window
