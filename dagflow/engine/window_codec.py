"""Windows between memory and journal: a planned window is written as JSON and read back as the same task."""

from __future__ import annotations

import hashlib
import itertools
import json
import pickle
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from typing import Any

from pydantic import PydanticUserError
from pydantic_core import PydanticSerializationError

from dagflow.api.operator import Operator
from dagflow.engine.control_graph import Emission
from dagflow.engine.scaling import Decision
from dagflow.errors import DagflowError, JournalError
from dagflow.execution.messages import WindowTask
from dagflow.execution.routing import assigned_shares
from dagflow.journal import ControlState, LateTuples, PartitionDecision, PlannedTuples, SavedState, WindowPlan
from dagflow.journal.journal import now_ms
from dagflow.journal.planned_tuples import cut, decode_tuples, encode_tuples, kind_name
from dagflow.plan.physical import Exchange, PhysicalPlan, PortRef
from dagflow.storage.pending import PendingFile


class WindowCodec:
    """Turns emissions into plans, and plans into tasks.

    Args:
        plan: The physical plan.
        operators: All operators by name.
        tag: Unique to this driver; part of every pending name.
    """

    def __init__(self, plan: PhysicalPlan, operators: Mapping[str, Operator], tag: str) -> None:
        self._plan = plan
        self._operators = operators
        self._tag = tag
        shape = [
            [stage.operators, [f"{e.edge} {e.routing} {e.codec}" for e in stage.inputs], [str(e) for e in stage.edges]]
            for stage in plan.stages
        ]
        classes = [f"{name}:{type(operators[name]).__qualname__}" for stage in plan.stages for name in stage.operators]
        self.config_hash = hashlib.sha256(json.dumps([shape, classes]).encode()).hexdigest()[:16]

    def _kind(self, target: PortRef) -> type:
        return self._operators[target.operator].input_ports[target.port].type

    def _assigned(self, target: PortRef) -> Exchange:
        inputs = self._plan.stage_of(target.operator).inputs
        return next(exchange for exchange in inputs if exchange.is_assigned and exchange.edge.target == target)

    def plan_of(
        self,
        emission: Emission,
        prescans: Mapping[str, SavedState],
        operator_index: Mapping[str, int],
        counts: Mapping[str, int],
        decisions: Sequence[Decision],
    ) -> WindowPlan:
        """Decide which partition gets what, in a form that the journal keeps.

        Args:
            emission: What the control operators emitted.
            prescans: What the pre-scans must know of the windows so far, by operator.
            operator_index: The operators' index.
            counts: Partitions of each stage, by its head.
            decisions: Why the counts changed.
        """
        inputs: dict[str, PlannedTuples] = {}
        for target, items in emission.tuples.items():
            kind, exchange = self._kind(target), self._assigned(target)
            if exchange.routing == "assigned_to_all":
                inputs[str(target)] = PlannedTuples(kind_name(kind), encode_tuples(kind, list(items)), None)
            else:
                shares = assigned_shares(exchange, items, counts[self._plan.stage_of(target.operator).head])
                encoded = encode_tuples(kind, [item for share in shares for item in share])
                inputs[str(target)] = PlannedTuples(kind_name(kind), encoded, [len(share) for share in shares])
        return WindowPlan(
            window_id=emission.window_id,
            config_hash=self.config_hash,
            inputs=inputs,
            partitions=dict(counts),
            decisions=[PartitionDecision(emission.window_id, *astuple(decision)) for decision in decisions],
            control_state=ControlState(
                operators=dict(emission.states),
                prescans=dict(prescans),
                late=[self._encode_late(target, items) for target, items in emission.late],
                operator_index=dict(operator_index),
            ),
            counters=emission.counters,
            emitted_ms=emission.emitted_ms,
            planned_ms=now_ms(),
        )

    def late_tuples(self, planned: WindowPlan) -> list[tuple[PortRef, list[Any]]]:
        """The tuples of a planned window that wait for its results, by input port, in order."""
        late = [(PortRef(*each.port.split(".")), each) for each in planned.control_state.late]
        return [
            (target, pickle.loads(each.pickled) if each.pickled else decode_tuples(self._kind(target), each.tuples))
            for target, each in late
        ]

    def _encode_late(self, target: PortRef, items: list[Any]) -> LateTuples:
        try:
            return LateTuples(str(target), encode_tuples(self._kind(target), items))
        except (PydanticUserError, PydanticSerializationError):
            # Between operators of the driver an author may send objects of any class.
            return LateTuples(str(target), pickled=pickle.dumps(items, protocol=5))

    def task_of(self, planned: WindowPlan, states: Mapping[tuple[str, int], SavedState]) -> WindowTask:
        """The work of a planned window: the same blocks in the same partitions, however often it is asked for.

        Raises:
            JournalError: The window was planned by an app of another shape.
        """
        if planned.config_hash != self.config_hash:
            raise JournalError(
                f"window {planned.window_id} was planned and not committed, by an app with other operators or streams",
                url="journal",
                hint="finish it with the app as it was, or start over with --fresh",
            )
        assigned: dict[str, list[list[tuple[PortRef, list[Any]]]]] = {
            stage.head: [[] for _ in range(planned.partitions[stage.head])]
            for stage in self._plan.stages
            if stage.takes_from_driver
        }
        for name, given in planned.inputs.items():
            target = PortRef(*name.split("."))
            shares = assigned[self._plan.stage_of(target.operator).head]
            items = decode_tuples(self._kind(target), given.tuples)
            parts = itertools.repeat(items) if given.lengths is None else cut(items, given.lengths)
            for share, part in zip(shares, parts, strict=given.lengths is not None):
                if part:
                    share.append((target, part))
        return WindowTask(
            window_id=planned.window_id,
            tag=self._tag,
            partitions=dict(planned.partitions),
            assigned=assigned,
            states=states,
        )


def require_names_apart(files: Sequence[PendingFile]) -> None:
    """Refuse a window in which two tasks wrote what would be published under one name.

    Raises:
        DagflowError: Nothing of the window may be published.
    """
    url, count = next(iter(Counter(file.final_url for file in files).most_common(1)), ("", 0))
    if count > 1:
        raise DagflowError(
            f"{count} tasks wrote a file of the name {url}",
            hint="a writer with file_name: block needs whole blocks: join it to its reader with partition: parallel",
        )
