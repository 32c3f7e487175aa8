"""Simulates a policy on a backlog, without running anything."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

from dagflow.api.partitioning import BacklogStats, Partitioner
from dagflow.engine.scaling import defined, repartitioned
from dagflow.errors import AppError, Problem
from dagflow.frozen import frozen
from dagflow.journal.windows import PartitionDecision

_NEEDED = ("millis", "backlog", "bytes")
_RATE = "bytes_per_second"

MAX_TRACE_BYTES = 64 << 20
"""More than a million steps."""


@frozen
class TraceSample:
    """One moment of a trace.

    Attributes:
        bytes_per_second: Speed of one partition, 0.0 where it is not known.
    """

    millis: int
    backlog: int
    size_bytes: int
    bytes_per_second: float = 0.0


@frozen
class SimulationStep:
    millis: int
    partitions: int
    decision: PartitionDecision | None = None


def simulate(stage: str, decider: Partitioner, trace: Sequence[TraceSample]) -> list[SimulationStep]:
    """Let a policy decide at each moment of a trace, as it would in a run.

    Args:
        decider: The policy; its state changes, so it cannot be used again.
    """
    first = trace[0]
    current = defined(stage, decider, BacklogStats(first.millis, 0, 0))
    steps = [SimulationStep(first.millis, current, PartitionDecision(0, stage, 0, 0, current, "start"))]
    processed = 0
    for index, sample in enumerate(trace):
        # A trace does not show what was processed while more arrived; a fall of the backlog counts as processed.
        processed += max(trace[index - 1].size_bytes - sample.size_bytes, 0) if index else 0
        stats = BacklogStats(
            now_millis=sample.millis,
            partitions=current,
            backlog=sample.backlog,
            backlog_bytes=sample.size_bytes,
            bytes_per_second=sample.bytes_per_second,
            processed_bytes=processed,
        )
        change = repartitioned(stage, decider, stats)
        decision = None
        if change is not None and change[0] != current:
            decision = PartitionDecision(0, stage, sample.backlog, current, *change)
            current = change[0]
        if decision is not None or index:
            steps.append(SimulationStep(sample.millis, current, decision))
    return steps


def read_trace(path: str, bytes_per_second: float = 0.0) -> list[TraceSample]:
    """Read a trace.

    Args:
        path: CSV with a header, a JSON list of objects, or JSON lines; with `millis`, `backlog` and `bytes`, and
            perhaps `bytes_per_second`, the speed of one partition.

    Raises:
        AppError: A row is wrong, or its time lies before that of the row above; the error names its line, and line 1
            for all rows of a JSON list. Or the whole trace is unreadable, empty or longer than MAX_TRACE_BYTES: line 0.
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
    samples: list[TraceSample] = []
    for line, row in _rows(path, text):
        sample = _sample(path, line, row, bytes_per_second)
        if samples and sample.millis < samples[-1].millis:
            raise AppError([Problem(path, line, 1, f"time goes back, from {samples[-1].millis} to {sample.millis}")])
        samples.append(sample)
    if not samples:
        raise AppError([Problem(path, 0, 0, f"the trace is empty; it has {', '.join(_NEEDED)}")])
    return samples


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


def _sample(path: str, line: int, row: Any, bytes_per_second: float) -> TraceSample:
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
    return TraceSample(millis, backlog, size_bytes, rate)
