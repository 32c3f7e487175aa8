"""Windows between memory and journal: a planned window is written as JSON and read back as the same task."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dagflow.api.operator import Operator
from dagflow.api.sources import discovered_ms_of
from dagflow.engine.control_graph import Emission
from dagflow.errors import DagflowError, JournalError, OperatorError
from dagflow.execution.messages import WindowJob
from dagflow.execution.routing import assigned_shares
from dagflow.journal.journal import now_ms
from dagflow.journal.saved_state import LateTuples, SavedState
from dagflow.journal.windows import (
    PlannedTuples,
    TupleError,
    WindowPlan,
    class_named,
    class_of,
    cut,
    decode_tuples,
    encode_tuples,
    kind_name,
    require_importable,
)
from dagflow.plan.physical import PhysicalPlan, PortRef
from dagflow.storage.pending import PendingFile


class WindowCodec:
    """Turns emissions into plans, and plans into tasks.

    Args:
        tag: Unique to this driver; part of every pending name.
        fingerprint: The app's fingerprint; part of every plan.
    """

    def __init__(self, plan: PhysicalPlan, operators: Mapping[str, Operator], tag: str, fingerprint: str = "") -> None:
        self._plan = plan
        self._operators = operators
        self._tag = tag
        self._fingerprint = fingerprint
        self._sources: dict[PortRef, list[str]] = {}
        for exchange in (exchange for stage in plan.stages for exchange in stage.inputs if exchange.is_assigned):
            self._sources.setdefault(exchange.edge.target, []).append(str(exchange.edge.source))
        self._control_sources: dict[PortRef, str] = {}
        for edge in plan.control_edges:
            self._control_sources.setdefault(edge.target, edge.source.operator)

    def _kind(self, target: PortRef) -> type:
        return self._operators[target.operator].input_ports[target.port].type

    def plan_of(self, emission: Emission, counts: Mapping[str, int]) -> WindowPlan:
        """Decide which partition gets which tuples, in a form that the journal keeps."""
        state = replace(emission.plan.control_state, late=list(self._encode_late(emission)))
        discovered_ms = (discovered_ms_of(item) for items in emission.tuples.values() for item in items)
        return replace(
            emission.plan,
            config_hash=self._fingerprint,
            inputs=self._inputs_of(emission, counts),
            partitions=dict(counts),
            control_state=state,
            planned_ms=now_ms(),
            discovered_ms=min(filter(None, discovered_ms), default=0),
        )

    def _inputs_of(self, emission: Emission, counts: Mapping[str, int]) -> dict[str, PlannedTuples]:
        """The tuples of an emission by input port, in the order of their partitions."""
        window_id = emission.plan.window_id
        inputs: dict[str, PlannedTuples] = {}
        for target, items in emission.tuples.items():
            kind, stage = self._kind(target), self._plan.stage_of(target.operator)
            exchange = next(each for each in stage.inputs if each.is_assigned and each.edge.target == target)
            if exchange.routing == "assigned_to_all":
                encoded, lengths = self._encoded(target, kind, list(items), window_id), None
            else:
                shares = assigned_shares(exchange, items, counts[stage.head])
                encoded = self._encoded(target, kind, [item for share in shares for item in share], window_id)
                lengths = [len(share) for share in shares]
            inputs[str(target)] = PlannedTuples(kind_name(kind), encoded, lengths, sorted(self._sources[target]))
        return inputs

    def _encode_late(self, emission: Emission) -> Iterator[LateTuples]:
        """The late tuples by their own class: a port of the driver may take tuples of any class."""
        for target, items in emission.late:
            for kind, group in itertools.groupby(items, class_of):
                encoded = self._encoded(target, kind, list(group), emission.plan.window_id)
                yield LateTuples(str(target), kind_name(kind), encoded)

    def _encoded(self, target: PortRef, kind: type, items: list[Any], window_id: int) -> Any:
        try:
            if kind is not self._kind(target):
                require_importable(kind)
            return encode_tuples(kind, items)
        except TupleError as error:
            sources = self._sources.get(target)
            raise OperatorError(
                f"has emitted tuples that the plan of a window cannot hold: {error}",
                operator=min(sources).partition(".")[0] if sources else self._control_sources[target],
                window_id=window_id,
                hint="a class of tuples is a frozen dataclass whose fields are text, numbers, flags, None, or lists, "
                "mappings and dataclasses of these, and have the values that their types say; other tuples are text, "
                "numbers, flags, or lists and mappings of these, with text as keys",
            ) from error

    def is_current(self, planned: WindowPlan) -> bool:
        return planned.config_hash == self._fingerprint

    def emission_of(self, planned: WindowPlan) -> Emission:
        """The tuples that were emitted for a planned window, for the input ports that the app has now.

        A port that is new in the app takes the tuples of one with the same upstream.

        Raises:
            JournalError: No port of the app takes some of the tuples.
        """
        taken: dict[PortRef, str] = {}
        for target, sources in self._sources.items():
            of_sources = [name for name, given in planned.inputs.items() if given.sources == sorted(sources)]
            names = [str(target)] if str(target) in planned.inputs else of_sources
            taken.update((target, name) for name in names[:1])
        require_takers(planned, taken.values())
        tuples = {
            target: decode_tuples(self._kind(target), planned.inputs[name].tuples) for target, name in taken.items()
        }
        late = [
            (target, items)
            for target, items in self.late_tuples(planned)
            if target.port in self._operators[target.operator].input_ports
        ]
        return Emission(planned, tuples, late)

    def late_tuples(self, planned: WindowPlan) -> list[tuple[PortRef, list[Any]]]:
        """The tuples of a planned window that wait for its results, by input port, in order.

        Raises:
            JournalError: The class of some of them is gone, or has other fields.
        """
        late = [(PortRef.parse(each.port), each) for each in planned.control_state.late]
        return [
            (target, decode_tuples(self._late_kind(target, each.kind), each.tuples))
            for target, each in late
            if target.operator in self._operators
        ]

    def _late_kind(self, target: PortRef, name: str) -> type:
        port = self._operators[target.operator].input_ports.get(target.port)
        if port is not None and kind_name(port.type) == name:
            return port.type
        return class_named(name, target.operator)

    def partitions_of(self, planned: WindowPlan) -> dict[str, int]:
        """How many partitions of each stage run in a planned window, by its head."""
        if not planned.closes:
            return dict(planned.partitions)
        behind = {stage.head for stage in self._plan.stages_behind(planned.closes)}
        return {head: count if head in behind else 0 for head, count in planned.partitions.items()}

    def job_of(
        self,
        planned: WindowPlan,
        states: Mapping[tuple[str, int], SavedState],
        parts: Mapping[str, Sequence[bytes]] | None = None,
    ) -> WindowJob:
        """The work of a planned window: the same blocks in the same partitions on each call."""
        partitions = self.partitions_of(planned)
        assigned: dict[str, list[list[tuple[PortRef, list[Any]]]]] = {
            stage.head: [[] for _ in range(partitions[stage.head])]
            for stage in self._plan.stages
            if stage.takes_from_driver
        }
        for name, given in planned.inputs.items():
            target = PortRef.parse(name)
            shares = assigned[self._plan.stage_of(target.operator).head]
            items = decode_tuples(self._kind(target), given.tuples)
            dealt = itertools.repeat(items) if given.lengths is None else cut(items, given.lengths)
            for share, part in zip(shares, dealt, strict=given.lengths is not None):
                if part:
                    share.append((target, part))
        return WindowJob(
            window_id=planned.window_id,
            tag=self._tag,
            partitions=partitions,
            assigned=assigned,
            states=states,
            holds=planned.holds,
            parts=parts or {},
            prescans=planned.control_state.prescans,
        )


def taking_ports(plan: PhysicalPlan) -> set[str]:
    """The input ports of an app that take tuples from other processes."""
    return {str(exchange.edge.target) for stage in plan.stages for exchange in stage.inputs}


def why_not_taken(planned: WindowPlan, ports: Iterable[str]) -> JournalError | None:
    """Why an app cannot run a plan: it has tuples for an input port that the app does not have."""
    unknown = sorted(set(planned.inputs) - set(ports))
    if not unknown:
        return None
    operator, _, port = unknown[0].rpartition(".")
    return JournalError(
        f"window {planned.window_id} has tuples for '{operator}', and the app has no such operator with an input "
        f"port '{port}'",
        hint=f"give the app an operator '{operator}' again, with the same upstream; nothing of the window is lost",
    )


def require_takers(planned: WindowPlan, ports: Iterable[str]) -> None:
    if obstacle := why_not_taken(planned, ports):
        raise obstacle


def require_names_apart(files: Sequence[PendingFile]) -> None:
    """Refuse a window in which two tasks wrote files of the same final name."""
    url, count = next(iter(Counter(file.final_url for file in files).most_common(1)), ("", 0))
    if count > 1:
        raise DagflowError(
            f"{count} tasks wrote a file of the name {url}",
            hint="a writer with file_name: block needs whole blocks: join it to its reader with partition: parallel",
        )
