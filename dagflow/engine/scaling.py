"""Decides how many partitions each stage has, window after window."""

from __future__ import annotations

import operator
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

from dagflow.api.partitioning import MAX_PARTITIONS, BacklogStats, Partitioner
from dagflow.engine.window_sizing import PartitionSpeeds
from dagflow.errors import OperatorError, text_of
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
