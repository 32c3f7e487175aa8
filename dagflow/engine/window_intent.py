"""What a window did, from the results of its tasks: its files, counters, left-out ranges, and times."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from dagflow.api.sources import encode_sources
from dagflow.api.transactions import TargetDecision
from dagflow.execution.messages import TaskResult
from dagflow.journal.journal import now_ms
from dagflow.journal.windows import ProducedFiles, RefusedPart, WindowIntent, WindowPlan
from dagflow.metrics.counters import Counters
from dagflow.plan.physical import PhysicalPlan
from dagflow.storage.pending import PendingFile


def intent_of(
    planned: WindowPlan,
    plan: PhysicalPlan,
    results: Sequence[TaskResult],
    control_busy_s: Mapping[str, float] = MappingProxyType({}),
    taken: Mapping[str, Sequence[PendingFile]] = MappingProxyType({}),
    decisions: Mapping[str, TargetDecision] = MappingProxyType({}),
) -> WindowIntent:
    """The intent of a window: its files and where these come from, its counters, and what it left out.

    Args:
        control_busy_s: Seconds that each control operator worked since the window before was committed.
        taken: Files that stand for those that an operator has made, except files that wait for a later window.
    """
    heads = {stage.index: stage.head for stage in plan.stages}
    counters = Counters()
    for result in results:
        counters.add(result.counters)
    counters.add(Counters.of_counts({operator: decision.counts for operator, decision in decisions.items()}))
    texts = {operator: decision.text for operator, decision in decisions.items() if decision.changes}
    files: list[PendingFile] = []
    produced: list[ProducedFiles] = []
    for result in results:
        made = zip(result.files, result.sources, strict=True)
        own = [(file, each) for file, each in made if not is_held(file) and file.target not in taken]
        if own:
            sources = encode_sources([each for _, each in own])
            produced.append(ProducedFiles(heads[result.stage], result.partition, len(own), sources))
            files += [_decided(file, texts) for file, _ in own]
    for operator, others in taken.items():
        # Which partition wrote each of these files, and from what, is not known any more.
        head = next((stage.head for stage in plan.stages if operator in stage.operators), "")
        produced.append(ProducedFiles(head, 0, len(others)))
        files += others
    started_ms, finished_ms = _ran_ms(planned, results)
    return WindowIntent(
        window_id=planned.window_id,
        files=files,
        counters=counters,
        skipped=[skipped for result in results for skipped in result.skipped],
        produced=produced,
        refused=[RefusedPart(name, records) for r in results for name, records in r.refused.items()],
        held=[_decided(file, texts) for result in results for file in result.files if is_held(file)],
        task_ms=_task_ms(heads, results),
        accounting=_booked(results),
        busy_s=_busy_s(control_busy_s, results),
        started_ms=started_ms,
        finished_ms=finished_ms,
    )


def _task_ms(heads: Mapping[int, str], results: Sequence[TaskResult]) -> dict[str, list[int]]:
    """How long each task took, in milliseconds, by head of its stage and then by partition; 0 where there was none."""
    task_ms: dict[str, list[int]] = {}
    for result in sorted(results, key=lambda result: (result.stage, result.partition)):
        own = task_ms.setdefault(heads[result.stage], [])
        own += [0] * (result.partition - len(own))
        own.append(round(result.busy_s * 1000))
    return task_ms


def _booked(results: Sequence[TaskResult]) -> dict[str, dict[str, int]]:
    """The sums that all tasks together have booked into the byte accounting, without those that are zero."""
    sums: dict[str, Counter[str]] = defaultdict(Counter)
    for result in results:
        for name, booked in result.accounting.items():
            sums[name].update(booked)
    left = {name: {key: value for key, value in own.items() if value} for name, own in sums.items()}
    return {name: own for name, own in left.items() if own}


def _decided(file: PendingFile, texts: dict[str, str]) -> PendingFile:
    """A file about which its target has decided; the first one of a target gets the text."""
    if file.facts is None:
        return file
    return replace(file, facts=replace(file.facts, proposal=None, decided=texts.pop(file.target, "")))


def is_held(file: PendingFile) -> bool:
    """Whether a file waits for a later window, and is not published with its own."""
    return file.facts is not None and file.facts.held is not None


def _busy_s(control: Mapping[str, float], results: Sequence[TaskResult]) -> dict[str, float]:
    sums = dict(control)
    for result in results:
        for name, seconds in result.operator_busy_s.items():
            sums[name] = sums.get(name, 0.0) + seconds
    return sums


def _ran_ms(planned: WindowPlan, results: Sequence[TaskResult]) -> tuple[int, int]:
    """When the first task of a window began and the last one ended, in milliseconds since 1970.

    Tasks report times by the clocks of their hosts; they are clamped between the window's planning and now.
    """
    now = now_ms()
    started = min((result.started_ms for result in results), default=now)
    finished = max((result.started_ms + int(result.busy_s * 1000) for result in results), default=now)
    return min(max(started, planned.planned_ms), now), min(max(finished, planned.planned_ms), now)
