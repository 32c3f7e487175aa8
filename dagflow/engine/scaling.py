"""Decides how many partitions each stage has, window after window."""

from __future__ import annotations

import csv
import io
import json
import math
import operator
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from types import MappingProxyType
from typing import Any

from dagflow.api.partitioning import MAX_PARTITIONS, BacklogStats, Partitioner
from dagflow.engine.window_sizing import PartitionSpeeds
from dagflow.errors import AppError, OperatorError, Problem, text_of
from dagflow.frozen import frozen
from dagflow.journal.windows import PartitionDecision
from dagflow.plan.physical import PhysicalPlan

IN_PARALLEL = "tasks that run at the same time"


@contextmanager
def _errors_of(stage: str, decider: object, method: str) -> Iterator[None]:
    """Turn what an author's policy raises into an OperatorError."""
    try:
        yield
    except Exception as error:
        text = f"{type(decider).__name__}.{method}() raised {type(error).__name__}({text_of(error)})"
        raise OperatorError(text, operator=stage, trace=traceback.format_exc()) from error


def asked_for(stage: str, decider: Partitioner, stats: BacklogStats) -> int:
    """The partition count that a policy defines, at least 1; it may be more than can be planned."""
    with _errors_of(stage, decider, "define_partitions"):
        answer = decider.define_partitions(stats)
        count = operator.index(answer)
    if isinstance(answer, bool) or count < 1:
        raise _wrong_count(stage, decider, answer)
    return count


def defined(stage: str, decider: Partitioner, stats: BacklogStats) -> int:
    count = asked_for(stage, decider, stats)
    if count > MAX_PARTITIONS:
        raise _wrong_count(stage, decider, count)
    return count


def _wrong_count(stage: str, decider: Partitioner, answer: object) -> OperatorError:
    text = f"{type(decider).__name__}.define_partitions() returned {answer!r}, and not a whole number from 1 to"
    return OperatorError(f"{text} {MAX_PARTITIONS:,}", operator=stage)


def repartitioned(stage: str, decider: object, stats: BacklogStats) -> tuple[int, str] | None:
    """The partition count that a policy changes to, and the reason; None for no change."""
    if not isinstance(decider, Partitioner):
        return None
    with _errors_of(stage, decider, "process_stats"):
        response = decider.process_stats(stats)
        is_asked, reason = response.repartition, response.reason
    return (defined(stage, decider, stats), reason) if is_asked else None


class Scaling:
    """Keeps the partition count of each stage.

    Args:
        deciders: Who may decide for a stage, by its head: the policy that the app names, otherwise the operator itself.
            Only a Partitioner decides.
        parallelism: Tasks that run at the same time: the count of stages for which no policy decides.
        fixed: Heads of stages whose count must not change, because they have state that cannot be moved, each with
            the count that it has, if it has one.
    """

    def __init__(
        self,
        plan: PhysicalPlan,
        deciders: Mapping[str, object],
        parallelism: int,
        fixed: Mapping[str, int | None] = MappingProxyType({}),
    ) -> None:
        self._deciders = deciders
        self._decisions: list[PartitionDecision] = []
        self._elastic: list[str] = []
        self._undecided: list[str] = []
        self.counts: dict[str, int] = {}
        for stage in plan.stages:
            head = deciders[stage.head]
            if stage.fixed_partitions is not None:
                self._set(stage.head, 0, stage.fixed_partitions, "set by the app")
            elif known := fixed.get(stage.head):
                self._set(stage.head, 0, known, "as many as there are states")
            elif isinstance(head, Partitioner):
                count = defined(stage.head, head, BacklogStats(_now_millis(), 0, 0))
                self._set(stage.head, 0, count, "start")
                if stage.head not in fixed:
                    self._elastic.append(stage.head)
            else:
                self._set(stage.head, 0, parallelism, IN_PARALLEL)
                if stage.head not in fixed:
                    self._undecided.append(stage.head)

    def _set(self, stage: str, backlog: int, count: int, reason: str) -> None:
        before = self.counts.get(stage, 0)
        if count != before:
            self.counts[stage] = count
            self._decisions.append(PartitionDecision(0, stage, backlog, before, count, reason))

    def widen(self, parallelism: int) -> None:
        """Let stages without a deciding policy use a cluster that is larger than was known, or has grown.

        Counts never shrink here: lost executors come back when tasks wait for them.
        """
        for stage in self._undecided:
            if parallelism > self.counts[stage]:
                self._set(stage, 0, parallelism, IN_PARALLEL)

    def scaled_by_speed(self) -> dict[str, int]:
        """The partition counts of the stages whose policies decide by speed, by stage head."""
        deciders = {stage: self._deciders[stage] for stage in self._elastic}
        by_speed = [s for s, each in deciders.items() if isinstance(each, Partitioner) and each.steers_by_speed]
        return {stage: self.counts[stage] for stage in by_speed}

    def observe(
        self, backlogs: Mapping[str, tuple[int, int]], speeds: PartitionSpeeds, unemitted: Mapping[str, int]
    ) -> None:
        """Pass the stats listeners their backlog, and repartition where a listener requests it."""
        bytes_per_s, processed = speeds.bytes_per_s, speeds.processed_bytes
        for stage in self._elastic:
            backlog, size_bytes = backlogs.get(stage, (0, 0))
            current, speed = self.counts[stage], bytes_per_s.get(stage, 0.0)
            beyond = unemitted.get(stage, 0), processed.get(stage, 0)
            stats = BacklogStats(_now_millis(), current, backlog, size_bytes, speed, *beyond)
            change = repartitioned(stage, self._deciders[stage], stats)
            if change is not None:
                self._set(stage, backlog, *change)

    def take_decisions(self) -> list[PartitionDecision]:
        """The decisions since the last call, for the plan of the next window."""
        decisions, self._decisions = self._decisions, []
        return decisions


def _now_millis() -> int:
    return time.monotonic_ns() // 1_000_000


_NEEDED = ("millis", "backlog", "bytes")
_RATE = "bytes_per_second"

MAX_TRACE_BYTES = 64 << 20
"""More than a million steps."""


@frozen
class SimulationStep:
    millis: int
    partitions: int
    decision: PartitionDecision | None = None


def simulate(stage: str, decider: Partitioner, trace: Sequence[BacklogStats]) -> list[SimulationStep]:
    """Let a policy decide at each moment of a trace, as it would in a run, which changes its state."""
    millis = trace[0].now_millis
    current = defined(stage, decider, BacklogStats(millis, 0, 0))
    steps = [SimulationStep(millis, current, PartitionDecision(0, stage, 0, 0, current, "start"))]
    processed = 0
    for before, moment in pairwise((trace[0], *trace)):
        # A trace does not show what was processed while more arrived; a fall of the backlog counts as processed.
        processed += max(before.backlog_bytes - moment.backlog_bytes, 0)
        change = repartitioned(stage, decider, replace(moment, partitions=current, processed_bytes=processed))
        decision = None
        if change is not None and change[0] != current:
            decision = PartitionDecision(0, stage, moment.backlog, current, *change)
            current = change[0]
        if decision is not None or before is not moment:
            steps.append(SimulationStep(moment.now_millis, current, decision))
    return steps


def read_trace(path: str, bytes_per_second: float = 0.0) -> list[BacklogStats]:
    """Read a trace: the load at its moments, without partitions.

    Args:
        path: CSV with a header, a JSON list of objects, or JSON lines; with `millis`, `backlog` and `bytes`, and
            perhaps `bytes_per_second`, the speed of one partition.

    Raises:
        AppError: A row is wrong, or the whole trace is unreadable, empty or longer than MAX_TRACE_BYTES.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_TRACE_BYTES + 1)
        text = data.decode()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise AppError([Problem(path, 0, 0, f"the trace cannot be read: {reason}")]) from error
    if len(data) > MAX_TRACE_BYTES:
        raise AppError([Problem(path, 0, 0, f"the trace is longer than {MAX_TRACE_BYTES >> 20} MiB; simulate a part")])
    trace: list[BacklogStats] = []
    for line, row in _rows(path, text):
        moment = _moment(path, line, row, bytes_per_second)
        if trace and (before := trace[-1].now_millis) > moment.now_millis:
            raise AppError([Problem(path, line, 1, f"time goes back, from {before} to {moment.now_millis}")])
        trace.append(moment)
    if not trace:
        raise AppError([Problem(path, 0, 0, f"the trace is empty; it has {', '.join(_NEEDED)}")])
    return trace


def _rows(path: str, text: str) -> Iterable[tuple[int, Any]]:
    try:
        if text.lstrip().startswith("["):
            return [(1, row) for row in json.loads(text)]
        if text.lstrip().startswith("{"):
            lines = enumerate(text.splitlines(), 1)
            return [(number, json.loads(line)) for number, line in lines if line.strip()]
    except (ValueError, RecursionError) as error:
        raise AppError([Problem(path, 0, 0, f"the trace is not JSON: {error}")]) from error
    reader = csv.DictReader(io.StringIO(text), skipinitialspace=True)
    try:
        return [(reader.line_num, row) for row in reader]
    except csv.Error as error:
        raise AppError([Problem(path, reader.line_num, 1, f"the trace is not CSV: {error}")]) from error


def _moment(path: str, line: int, row: Any, bytes_per_second: float) -> BacklogStats:
    try:
        millis, backlog, size_bytes = (int(row[name]) for name in _NEEDED)
        rate = float(row.get(_RATE) or bytes_per_second)
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        needs = f"expected numbers for {', '.join(_NEEDED)}, and perhaps {_RATE}"
        raise AppError([Problem(path, line, 1, f"{needs}; got {row}")]) from error
    if not math.isfinite(rate):
        raise AppError([Problem(path, line, 1, f"{_RATE} is not a finite number: {row}")])
    if min(millis, backlog, size_bytes, rate) < 0:
        raise AppError([Problem(path, line, 1, f"expected no negative numbers; got {row}")])
    return BacklogStats(millis, 0, backlog, size_bytes, rate)
