"""Windows between memory and journal: a planned window is written as JSON and read back as the same task."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from dagflow.api.operator import Operator
from dagflow.engine.control_graph import Emission
from dagflow.engine.scaling import Decision
from dagflow.errors import DagflowError, JournalError
from dagflow.execution.messages import WindowTask
from dagflow.execution.routing import assigned_shares
from dagflow.journal import WindowPlan
from dagflow.journal.planned_tuples import ALL_PARTITIONS, cut, decode_tuples, encode_tuples, kind_name
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

    def plan_of(self, emission: Emission, counts: Mapping[str, int], decisions: Sequence[Decision]) -> WindowPlan:
        """Decide which partition gets what, in a form that the journal keeps."""
        tuples: dict[str, Any] = {}
        assignments: dict[str, Any] = {}
        for target, items in emission.tuples.items():
            partitions = counts[self._plan.stage_of(target.operator).head]
            exchange = self._assigned(target)
            if exchange.routing == "assigned_to_all":
                tuples[str(target)] = encode_tuples(self._kind(target), list(items))
                assignments[str(target)] = ALL_PARTITIONS
            else:
                shares = assigned_shares(exchange, items, partitions)
                tuples[str(target)] = encode_tuples(self._kind(target), [item for share in shares for item in share])
                assignments[str(target)] = [len(share) for share in shares]
        return WindowPlan(
            window_id=emission.window_id,
            config_hash=self.config_hash,
            tuples=tuples,
            assignments=assignments,
            partitions=dict(counts),
            decisions=[decision.to_json() for decision in decisions],
            control_state=emission.state,
            counters=dict(emission.counters),
            kinds={str(target): kind_name(self._kind(target)) for target in emission.tuples},
        )

    def task_of(self, planned: WindowPlan, states: Mapping[tuple[str, int], bytes]) -> WindowTask:
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
        for name, packed in planned.tuples.items():
            target = PortRef(*name.split("."))
            shares = assigned[self._plan.stage_of(target.operator).head]
            items = decode_tuples(self._kind(target), packed)
            lengths = planned.assignments[name]
            dealt = itertools.repeat(items) if lengths == ALL_PARTITIONS else cut(items, lengths)
            for share, part in zip(shares, dealt, strict=lengths != ALL_PARTITIONS):
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
