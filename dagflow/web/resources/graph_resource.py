"""The graph of an app as its newest run had it, with what passed each stream and where the time went."""

from __future__ import annotations

import functools
import itertools
import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dagflow.journal.app_facts import AppFacts, OperatorFacts, without_checksums
from dagflow.journal.retention import newest_windows
from dagflow.journal.windows import Window
from dagflow.metrics import names
from dagflow.plan.logical import Fusion, fuse, own_stages
from dagflow.plan.physical import Edge, PortRef
from dagflow.plan.render.drawing import columns_of
from dagflow.plan.render.layout import Group, Parts, place
from dagflow.plan.render.svg import MAX_WIDTH
from dagflow.report.own_figures import OwnFigures, edges_of, own_sums
from dagflow.report.snapshot import OperatorFigures, PortFigures, RunSnapshot
from dagflow.web.app_files import AppFile
from dagflow.web.checkpoints import Checkpoint
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


@dataclass(frozen=True)
class _Times:
    """How the time of tasks was spent in some windows, in seconds.

    Attributes:
        busy: Time that each operator worked, in tasks or in the driver.
        in_tasks: The same of operators that run in tasks.
        waiting: Time that the partitions of each stage did not work while a window ran.
    """

    busy: Mapping[str, float]
    in_tasks: Mapping[str, float]
    waiting: Mapping[str, float]


def graph(checkpoint: Checkpoint, app: AppFile) -> dict[str, Any]:
    """The operators, stages and streams of the newest run; empty where no run has recorded them."""
    snapshot = checkpoint.read().snapshot or RunSnapshot(checkpoint.id)
    store, state = checkpoint.journal()
    if state.facts is None:
        return {"bottleneck": None, "stages": [], "nodes": [], "edges": [], "layouts": [], "windows": 0}
    windows = [each for each in itertools.islice(newest_windows(store, state), WINDOWS) if each.intent is not None]
    own = OwnFigures(state.facts)
    parts = edges_of(state.facts)
    edges = own.edges(parts)
    all_parts = _fusion(state.facts, parts)
    fusion = _own_fusion(all_parts, own)
    figures = {each.name: each for each in snapshot.operators}
    times = _times_of(windows, all_parts, own)
    details = app.operators()
    rates = _rates(windows, own)
    streams = [_shown_edge(each, fusion, figures, edges, rates, app.streams()) for each in edges]
    partitions = {stage: held.last for stage, held in snapshot.partitions.items()}
    nodes = [
        _node(name, state.facts, partitions, fusion, figures, times, edges, details.get(name, {}))
        for name in fusion.ordered
    ]
    heads = {own.stage(head): head for head in reversed(all_parts.heads.values())}
    return {
        "bottleneck": _bottleneck(times),
        "windows": len(windows),
        "stages": [
            {
                "name": head,
                "partitions": partitions.get(head),
                "operators": [name for name in fusion.ordered if fusion.heads.get(name) == head],
                "waiting_seconds": round(times.waiting.get(head, 0.0), 3),
                "partition_times": partition_times(windows, heads[head]),
            }
            for head in dict.fromkeys(fusion.heads[name] for name in fusion.ordered if name in fusion.heads)
        ],
        "nodes": nodes,
        "edges": streams,
        "layouts": _layouts(
            tuple((name, fusion.heads.get(name, "")) for name in fusion.ordered),
            tuple(
                (edge.source.operator, edge.target.operator, shown["records"] is not None)
                for edge, shown in zip(edges, streams, strict=True)
            ),
        ),
    }


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


def _fusion(facts: AppFacts, edges: Sequence[Edge]) -> Fusion:
    control = {name for name, each in facts.operators.items() if each.is_control}
    parallel = {name for name, each in facts.operators.items() if each.partition.split(" ")[0] == "parallel"}
    return fuse(list(facts.operators), edges, control, parallel)


def _own_fusion(parts: Fusion, own: OwnFigures) -> Fusion:
    """The stages of the app's operators, each of which is where its first part is."""
    stages = own_stages({name: parts.heads.get(name, "") for name in parts.ordered})
    return Fusion(list(stages), {name: own.stage(head) for name, head in stages.items() if head}, {})


def _times_of(windows: Sequence[Window], fusion: Fusion, own: OwnFigures) -> _Times:
    busy: dict[str, float] = defaultdict(float)
    waiting: dict[str, float] = defaultdict(float)
    for window in windows:
        intent = window.intent
        if intent is None:
            continue
        ran_s = max(intent.finished_ms - intent.started_ms, 0) / 1000
        worked: dict[str, float] = defaultdict(float)
        for name, seconds in intent.busy_s.items():
            busy[name] += seconds
            worked[fusion.heads.get(name, "")] += seconds
        for head, count in window.plan.partitions.items():
            waiting[head] += max(ran_s * count - worked[head], 0.0)
    in_tasks = {name: seconds for name, seconds in busy.items() if name in fusion.heads}
    return _Times(own_sums(busy), own_sums(in_tasks), own_sums(waiting, own.stage))


def _node(
    name: str,
    app: AppFacts,
    partitions: Mapping[str, int],
    fusion: Fusion,
    known: Mapping[str, OperatorFigures],
    times: _Times,
    edges: Sequence[Edge],
    details: Mapping[str, Any],
) -> dict[str, Any]:
    facts, figures, head = app.own_operators[name], known.get(name), fusion.heads.get(name, "")
    ports = {port.name: port for port in figures.ports} if figures is not None else {}
    outputs = list(dict.fromkeys([*ports, *(each.source.port for each in edges if each.source.operator == name)]))
    inputs = list(dict.fromkeys(each.target.port for each in edges if each.target.operator == name))
    part = _part_of(figures, outputs, facts)
    seconds = dict.fromkeys(("reading", "computing", "writing", "waiting"), 0.0)
    seconds[part] = round(times.busy.get(name, 0.0), 3)
    if head == name:
        seconds["waiting"] = round(times.waiting.get(name, 0.0), 3)
    types = details.get("ports", {})
    return {
        "name": name,
        "class": facts.kind.rpartition(".")[2],
        "module": facts.kind.rpartition(".")[0],
        "doc": details.get("doc", ""),
        "line": details.get("line"),
        "stage": head,
        "partitions": partitions.get(head, 1),
        "seconds": seconds,
        "records_out": sum(port.records for port in ports.values()) if ports else None,
        "ports": [
            *(_port("input", each, types, _arrived(name, each, edges, known)) for each in inputs),
            *(_port("output", each, types, ports.get(each)) for each in outputs),
        ],
        "properties": _properties(facts, details.get("properties", {})),
        "counts": {} if figures is None else {key: n for key, n in figures.counts.items() if key not in names.TOTALS},
        "rejected": 0 if figures is None else figures.counts.get(names.REJECTED, 0),
    }


def _part_of(figures: OperatorFigures | None, outputs: Sequence[str], facts: OperatorFacts) -> str:
    """Whether what an operator does is reading, computing or writing."""
    if figures is not None and names.BLOCKS in figures.counts:
        return "reading"
    return "computing" if outputs or facts.is_control else "writing"


def _port(direction: str, name: str, types: Mapping[str, Any], figures: Any) -> dict[str, Any]:
    records = None if figures is None else figures.records
    size_bytes = None if figures is None else figures.bytes
    return {"direction": direction, "name": name, "type": types.get(name, ""), "records": records, "bytes": size_bytes}


def _arrived(name: str, port: str, edges: Sequence[Edge], known: Mapping[str, OperatorFigures]) -> PortFigures | None:
    """Records and bytes that all streams have brought to an input port; None where none of them counts records."""
    passed = _passed(known)
    arrived = [passed[edge.source] for edge in edges if edge.target == PortRef(name, port) and edge.source in passed]
    total = PortFigures(port, sum(each.records for each in arrived), sum(each.bytes for each in arrived))
    return total if arrived else None


def _passed(known: Mapping[str, OperatorFigures]) -> dict[PortRef, PortFigures]:
    """What has left each output port."""
    return {PortRef(name, port.name): port for name, each in known.items() for port in each.ports}


def _properties(facts: OperatorFacts, written: Mapping[str, Any]) -> list[dict[str, Any]]:
    shown = [
        {"name": name, "value": _text(value), "default": False, "line": written.get(name, {}).get("line")}
        for name, value in facts.properties.items()
    ]
    others = (item for item in written.items() if item[0] not in facts.properties)
    return shown + [{"name": name, "value": each["value"], "default": True, "line": None} for name, each in others]


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return without_checksums(text)


@dataclass(frozen=True)
class _Rates:
    records: Mapping[PortRef, float]
    bytes: Mapping[PortRef, float]


def _rates(windows: Sequence[Window], own: OwnFigures) -> _Rates:
    """Records and bytes that leave each port in a second, of the windows that were published in the last minute.

    That is the minute until the newest of them was published.
    """
    last_ms = max((each.published_ms for each in windows), default=0)
    recent, taken_s = published_until(windows, last_ms)
    seconds = max(taken_s, 0.001)
    records: dict[PortRef, float] = defaultdict(float)
    size_bytes: dict[PortRef, float] = defaultdict(float)
    for window in recent:
        for name, counters in own.counters(counters_of(window)).operators.items():
            for port, count in counters.records.items():
                records[PortRef(name, port)] += count / seconds
                size_bytes[PortRef(name, port)] += counters.bytes.get(port, 0) / seconds
    return _Rates(records, size_bytes)


def _shown_edge(
    edge: Edge,
    fusion: Fusion,
    figures: Mapping[str, OperatorFigures],
    edges: Sequence[Edge],
    rates: _Rates,
    streams: Mapping[str, str],
) -> dict[str, Any]:
    source, target = edge.source, edge.target
    passed = _passed(figures)
    own = passed.get(source)
    arrived = [
        passed[each.source].records
        for each in edges
        if each.target.operator == source.operator and each.source in passed
    ]
    key = f"{source} -> {target}"
    return {
        "stream": streams.get(key, key),
        "from": str(source),
        "to": str(target),
        "is_exchange": fusion.heads.get(source.operator) != fusion.heads.get(target.operator),
        "is_broadcast": edge.is_broadcast,
        "records": None if own is None else own.records,
        "bytes": None if own is None else own.bytes,
        "rows_per_second": round(rates.records.get(source, 0.0), 1),
        "bytes_per_second": round(rates.bytes.get(source, 0.0), 1),
        "records_in": sum(arrived) if arrived else None,
    }


def _bottleneck(times: _Times) -> dict[str, str] | None:
    """The operator that most of the tasks' time goes to, in words."""
    # The driver works beside the tasks; waiting shows which partitions had nothing to do.
    total = sum(times.in_tasks.values()) + sum(times.waiting.values())
    if not times.in_tasks or total <= 0:
        return None
    name, seconds = max(times.in_tasks.items(), key=lambda item: item[1])
    waiting = sum(times.waiting.values()) / total
    share = f"{name} takes {100 * seconds / total:.0f} % of the tasks' time"
    if waiting > 0.5:
        return {"operator": "", "sentence": f"Tasks wait {100 * waiting:.0f} % of their time; {share}."}
    if seconds / total < BOTTLENECK:
        return {"operator": "", "sentence": f"No operator is a bottleneck: {share}."}
    return {"operator": name, "sentence": f"The bottleneck is {name}: {share}."}


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
    rows = [
        {"partition": number, "working_seconds": round(each, 3), "waiting_seconds": round(max(ran_s - each, 0.0), 3)}
        for number, each in enumerate(working[:MANY_PARTITIONS])
    ]
    return {"count": len(working), "times": rows, "sentence": _sentence(working)}


def _sentence(working: Sequence[float]) -> str:
    if len(working) < 2 or sum(working) <= 0:
        return ""
    most, mean = max(working), sum(working) / len(working)
    if most < UNEVEN * mean:
        return f"The {len(working)} partitions work about as long as each other."
    return f"Partition {working.index(most)} works {most / mean:.1f} times as long as the mean of {len(working)}."
