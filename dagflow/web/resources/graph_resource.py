"""The graph of an app as its newest run had it, with what passed each stream and where the time went."""

from __future__ import annotations

import functools
import itertools
import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from dagflow.journal.reader import newest_windows
from dagflow.journal.saved_state import AppFacts, without_checksums
from dagflow.journal.windows import Window
from dagflow.metrics import names
from dagflow.metrics.counters import Counters
from dagflow.plan.logical import fuse, own_stages
from dagflow.plan.physical import PortRef
from dagflow.plan.render.drawing import columns_of
from dagflow.plan.render.layout import Group, Parts, place
from dagflow.plan.render.svg import MAX_WIDTH
from dagflow.report.own_figures import OwnFigures, edges_of, own_sums
from dagflow.report.snapshot import OperatorFigures, RunSnapshot
from dagflow.web.checkpoints import SOON_S, AppFile, Checkpoint
from dagflow.web.resources.fleet_resource import published_until
from dagflow.web.resources.windows_resource import counters_of

WINDOWS = 50
"""How many of the newest windows the times of tasks and the rates of records are taken from."""

BOTTLENECK = 0.4
"""Share of the time of all tasks from which on an operator is called the bottleneck."""

CARD, FIGURES, LANE = (172.0, 80.0), (92.0, 44.0), (0.0, 0.0)
"""The width and the height of an operator on the page, of the figures of a stream, and of one without figures."""

PAD, TITLE = 14.0, 20.0
"""Pixels between a stage's frame and its operators, and for its title."""


def graph(checkpoint: Checkpoint, app: AppFile) -> dict[str, Any]:
    """The operators, stages and streams of the newest run; empty where no run has recorded them."""
    snapshot = checkpoint.read().snapshot or RunSnapshot(checkpoint.id)
    store, state = checkpoint.journal()
    if state.facts is None:
        return {"bottleneck": None, "stages": [], "nodes": [], "edges": [], "layouts": [], "windows": 0}
    windows = [each for each in itertools.islice(newest_windows(store, state), WINDOWS) if each.intent is not None]
    return _Graph(state.facts, snapshot, windows, app).to_json()


class _Graph:
    """The graph, and how the time of tasks was spent in some windows, in seconds."""

    def __init__(self, facts: AppFacts, snapshot: RunSnapshot, windows: Sequence[Window], app: AppFile) -> None:
        self._facts, self._windows = facts, windows
        self._own = OwnFigures(facts)
        parts = edges_of(facts)
        self._edges = self._own.edges(parts)
        control = {name for name, each in facts.operators.items() if each.is_control}
        parallel = {name for name, each in facts.operators.items() if each.partition.split(" ")[0] == "parallel"}
        self._parts = fuse(list(facts.operators), parts, control, parallel)
        # The stages of the app's operators, each of which is where its first part is.
        stages = own_stages({name: self._parts.heads.get(name, "") for name in self._parts.ordered})
        self._stages = {name: self._own.stage(head) if head else "" for name, head in stages.items()}
        self._figures = {each.name: each for each in snapshot.operators}
        # Records and their bytes.
        self._passed = {
            PortRef(name, port): (number, each.bytes.get(port, 0))
            for name, each in self._figures.items()
            for port, number in each.records.items()
        }
        self._partitions = {stage: held.last for stage, held in snapshot.partitions.items()}
        known = app.look(SOON_S)
        self._details, self._streams = known.get("operators", {}), known.get("streams", {})
        busy: dict[str, float] = defaultdict(float)
        waiting: dict[str, float] = defaultdict(float)
        for intent, counts in ((each.intent, each.plan.partitions) for each in windows):
            assert intent is not None
            worked: dict[str, float] = defaultdict(float)
            for name, seconds in intent.busy_s.items():
                busy[name] += seconds
                worked[self._parts.heads.get(name, "")] += seconds
            ran_s = max(intent.finished_ms - intent.started_ms, 0) / 1000
            for head, count in counts.items():
                waiting[head] += max(ran_s * count - worked[head], 0.0)
        self._busy_s, self._waiting_s = own_sums(busy), own_sums(waiting, self._own.stage)
        # The driver works beside the tasks; waiting shows which partitions had nothing to do.
        self._in_tasks_s = own_sums({name: s for name, s in busy.items() if name in self._parts.heads})

    def to_json(self) -> dict[str, Any]:
        first_parts = {self._own.stage(head): head for head in reversed(self._parts.heads.values())}
        edges = self._shown_edges()
        between = [each.arc for each in self._edges]
        return {
            "bottleneck": self._bottleneck(),
            "windows": len(self._windows),
            "stages": [
                {
                    "name": head,
                    "partitions": self._partitions.get(head),
                    "operators": [name for name, stage in self._stages.items() if stage == head],
                    "waiting_seconds": round(self._waiting_s.get(head, 0.0), 3),
                    "partition_times": partition_times(self._windows, first_parts[head]),
                }
                for head in dict.fromkeys(filter(None, self._stages.values()))
            ],
            "nodes": [self._node(name, stage) for name, stage in self._stages.items()],
            "edges": edges,
            "layouts": _layouts(
                tuple(self._stages.items()),
                tuple((*ends, each["records"] is not None) for ends, each in zip(between, edges, strict=True)),
            ),
        }

    def _node(self, name: str, stage: str) -> dict[str, Any]:
        facts, figures = self._facts.own_operators[name], self._figures.get(name, OperatorFigures(name))
        details = self._details.get(name, {})
        types, written = details.get("ports", {}), details.get("properties", {})
        emitting = (each.source.port for each in self._edges if each.source.operator == name)
        outputs = list(dict.fromkeys([*figures.records, *emitting]))
        arrived: dict[str, list[PortRef]] = {}
        for edge in self._edges:
            if edge.target.operator == name:
                arrived.setdefault(edge.target.port, []).append(edge.source)
        part = "computing" if outputs or facts.is_control else "writing"
        seconds = dict.fromkeys(("reading", "computing", "writing", "waiting"), 0.0)
        seconds["reading" if names.BLOCKS in figures.counts else part] = round(self._busy_s.get(name, 0.0), 3)
        if stage == name:
            seconds["waiting"] = round(self._waiting_s.get(name, 0.0), 3)
        properties = [
            {"name": key, "value": _text(value), "default": False, "line": written.get(key, {}).get("line")}
            for key, value in facts.properties.items()
        ]
        return {
            "name": name,
            "class": facts.kind.rpartition(".")[2],
            "module": facts.kind.rpartition(".")[0],
            "doc": details.get("doc", ""),
            "line": details.get("line"),
            "stage": stage,
            "partitions": self._partitions.get(stage, 1),
            "seconds": seconds,
            "records_out": sum(figures.records.values()) if figures.records else None,
            "ports": [
                *(self._port("input", port, types, sources) for port, sources in arrived.items()),
                *(self._port("output", port, types, [PortRef(name, port)]) for port in outputs),
            ],
            "properties": properties
            + [
                {"name": key, "value": each["value"], "default": True, "line": None}
                for key, each in written.items()
                if key not in facts.properties
            ],
            "counts": {key: number for key, number in figures.counts.items() if key not in names.TOTALS},
            "rejected": figures.counts.get(names.REJECTED, 0),
        }

    def _port(self, direction: str, name: str, types: Mapping[str, Any], sources: Sequence[PortRef]) -> dict[str, Any]:
        """A port with what has passed it from output ports; without figures where none of them counts records."""
        passed = [self._passed[each] for each in sources if each in self._passed]
        records, size_bytes = map(sum, zip(*passed, strict=True)) if passed else (None, None)
        figures = {"records": records, "bytes": size_bytes}
        return {"direction": direction, "name": name, "type": types.get(name, ""), **figures}

    def _shown_edges(self) -> list[dict[str, Any]]:
        """The streams, with what leaves their ports in a second: by the windows of the minute until the newest one."""
        recent, taken_s = published_until(self._windows, max((each.published_ms for each in self._windows), default=0))
        counters = Counters()
        for window in recent:
            counters.add(self._own.counters(counters_of(window)))
        shown = []
        for edge in self._edges:
            source, target = edge.source, edge.target
            (records, size_bytes), recently = self._passed.get(source, (None, None)), counters.of(source.operator)
            arrived = [
                self._passed[each.source][0]
                for each in self._edges
                if each.target.operator == source.operator and each.source in self._passed
            ]
            key = f"{source} -> {target}"
            per_second = 1 / max(taken_s, 0.001)
            shown.append(
                {
                    "stream": self._streams.get(key, key),
                    "from": str(source),
                    "to": str(target),
                    "is_exchange": self._stages[source.operator] != self._stages[target.operator],
                    "is_broadcast": edge.is_broadcast,
                    "records": records,
                    "bytes": size_bytes,
                    "rows_per_second": round(recently.records.get(source.port, 0) * per_second, 1),
                    "bytes_per_second": round(recently.bytes.get(source.port, 0) * per_second, 1),
                    "records_in": sum(arrived) if arrived else None,
                }
            )
        return shown

    def _bottleneck(self) -> dict[str, str] | None:
        """The operator that most of the tasks' time goes to, in words."""
        waiting_s = sum(self._waiting_s.values())
        total_s = sum(self._in_tasks_s.values()) + waiting_s
        if not self._in_tasks_s or total_s <= 0:
            return None
        name, seconds = max(self._in_tasks_s.items(), key=lambda item: item[1])
        share = f"{name} takes {100 * seconds / total_s:.0f} % of the tasks' time"
        if waiting_s / total_s > 0.5:
            return {"operator": "", "sentence": f"Tasks wait {100 * waiting_s / total_s:.0f} % of their time; {share}."}
        if seconds / total_s < BOTTLENECK:
            return {"operator": "", "sentence": f"No operator is a bottleneck: {share}."}
        return {"operator": name, "sentence": f"The bottleneck is {name}: {share}."}


def _text(value: Any) -> str:
    return without_checksums(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


@functools.lru_cache(maxsize=64)
def _layouts(nodes: tuple[tuple[str, str], ...], edges: tuple[tuple[str, str, bool], ...]) -> list[dict[str, Any]]:
    """Where a page draws the graph: from left to right, and from top to bottom.

    Args:
        nodes: Each operator with the head of its stage, upstream first; operators in the driver have no frame.
        edges: The source and the target of each stream, and whether it has figures.
    """
    frame_of = {name: ("stage", head) if head else ("driver", name) for name, head in nodes}
    between = [(source, target, 1) for source, target, _ in edges if frame_of[source] != frame_of[target]]
    columns = columns_of(frame_of, between)
    layouts = []
    for is_downward in (False, True):
        sizes = [(width, height) if not is_downward else (height, width) for width, height in (CARD, FIGURES, LANE)]
        parts = Parts(
            groups=[
                Group([name for name in frame_of if frame_of[name] == frame], column, 0 if is_downward else TITLE)
                for frame, column in columns.items()
            ],
            arrows=[(source, target) for source, target, _ in edges],
            operators=dict.fromkeys(frame_of, sizes[0]),
            labels=[sizes[1 if has_figures else 2] for _, _, has_figures in edges],
            pad=PAD + TITLE * is_downward,
            is_downward=is_downward,
        )
        layout = place(parts, MAX_WIDTH if is_downward else math.inf)
        frames = zip(columns, layout.frames, strict=True)
        layouts.append(
            {
                "width": layout.width,
                "height": layout.height,
                "nodes": layout.boxes,
                "stages": {name: box for (kind, name), box in frames if kind == "stage"},
                "edges": [
                    {"path": layout.path(index), "label": [box.x + box.width / 2, box.y + box.height / 2]}
                    for index, box in enumerate(layout.labels)
                ],
            }
        )
    return layouts


MANY_PARTITIONS = 64
"""Number of partitions of one stage that are shown; the sentence is about all."""

UNEVEN = 1.5
"""A partition is named if it works this many times as long as the mean."""


def partition_times(windows: Sequence[Window], head: str) -> dict[str, Any]:
    """How long the partitions of a stage worked and waited in some windows.

    Args:
        windows: The windows, newest first; those from before the partition count changed last do not count.

    Returns:
        Working and waiting seconds by partition, how many partitions there are, and what is to be said of them; none
        where the windows do not record it.
    """
    working: list[float] = []
    ran_s = 0.0
    for window in windows:
        intent = window.intent
        if intent is None or head not in intent.task_ms:
            continue
        own = intent.task_ms[head] + [0] * (window.plan.partitions.get(head, 0) - len(intent.task_ms[head]))
        if working and len(own) != len(working):
            break
        working = [before + ms / 1000 for before, ms in zip(working or [0.0] * len(own), own, strict=True)]
        ran_s += max(intent.finished_ms - intent.started_ms, *own, 0) / 1000
    sentence, mean = "", sum(working) / max(len(working), 1)
    if len(working) > 1 and mean > 0:
        most = max(working)
        sentence = f"The {len(working)} partitions work about as long as each other."
        if most >= UNEVEN * mean:
            times = f"{most / mean:.1f} times as long as the mean of {len(working)}"
            sentence = f"Partition {working.index(most)} works {times}."
    rows = [
        {"partition": number, "working_seconds": round(each, 3), "waiting_seconds": round(max(ran_s - each, 0.0), 3)}
        for number, each in enumerate(working[:MANY_PARTITIONS])
    ]
    return {"count": len(working), "times": rows, "sentence": sentence}
