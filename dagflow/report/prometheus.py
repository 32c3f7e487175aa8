"""Checkpoints as metrics, in the text format of Prometheus (version 0.0.4)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from dagflow.metrics import names
from dagflow.report import metric_names as metrics
from dagflow.report.metric_names import METRICS, Metric
from dagflow.report.reading import CheckpointReading
from dagflow.report.snapshot import RunSnapshot

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Sample = tuple[Metric, str, tuple[str, ...], float]
"""A metric, the ending of the sample's name, the values of the metric's own labels, and the value."""

_ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_SURROGATES = re.compile("[\ud800-\udfff]")


def metrics_text(readings: Sequence[CheckpointReading]) -> str:
    """The metrics of some checkpoints, each of which is there once.

    Counters are sums over all runs on a checkpoint, so a restart does not reset them; they rise when a window is
    committed. Only `--fresh`, a replay, or a repair lowers them, and Prometheus takes that for a restart.

    Returns:
        The text; it ends with a newline. A checkpoint that cannot be read has `dagflow_checkpoint_readable 0` alone.
    """
    lines_by_metric: dict[Metric, list[str]] = {metric: [] for metric in METRICS}
    for reading in readings:
        app = "" if reading.snapshot is None else reading.snapshot.app
        for metric, ending, values, number in _samples(reading):
            labels = zip((*metrics.LABELS, *metric.labels), (app, reading.checkpoint, *values), strict=True)
            shown = ",".join(f'{name}="{_label(value)}"' for name, value in labels)
            lines_by_metric[metric].append(f"{metric.name}{ending}{{{shown}}} {_number(number)}")
    parts = (
        [f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {metric.type}", *lines]
        for metric, lines in lines_by_metric.items()
        if lines
    )
    return "".join(f"{line}\n" for part in parts for line in part)


def _samples(reading: CheckpointReading) -> Iterator[Sample]:
    snapshot = reading.snapshot
    yield metrics.READABLE, "", (), float(snapshot is not None)
    if snapshot is None:
        return
    for state in metrics.STATES:
        yield metrics.STATE, "", (state,), float(snapshot.standing == state)
    if snapshot.driver is not None:
        yield metrics.STARTED, "", (), snapshot.driver.since_ms / 1000
        yield metrics.LAST_BEAT, "", (), snapshot.driver.last_beat_ms / 1000
        yield metrics.STALLS, "", (), len(snapshot.driver.stalls)
    yield from _window_samples(snapshot)
    yield metrics.BACKLOG, "", (), snapshot.backlog_bytes
    yield metrics.OLDEST, "", (), reading.oldest_unpublished_s
    yield from _input_samples(snapshot)
    yield from _operator_samples(snapshot)
    for name, receipt in snapshot.targets.items():
        yield metrics.TABLE_WINDOW, "", (name,), receipt.window_id
    for name, (windows, seconds) in reading.table_lags().items():
        yield metrics.TABLE_LAG_WINDOWS, "", (name,), windows
        yield metrics.TABLE_LAG, "", (name,), seconds


def _window_samples(snapshot: RunSnapshot) -> Iterator[Sample]:
    yield metrics.PLANNED, "", (), snapshot.last_planned
    yield metrics.COMMITTED, "", (), snapshot.last_committed
    yield metrics.PUBLISHED, "", (), snapshot.last_published
    yield metrics.LAST_COMMIT, "", (), snapshot.last_committed_ms / 1000
    yield metrics.LAST_PUBLICATION, "", (), snapshot.last_published_ms / 1000
    for phase, seconds in snapshot.phase_s.items():
        yield metrics.WINDOW, "_sum", (phase,), seconds
        yield metrics.WINDOW, "_count", (phase,), snapshot.last_published


def _input_samples(snapshot: RunSnapshot) -> Iterator[Sample]:
    yield metrics.FILES, "", (), snapshot.files
    yield metrics.IN_PROGRESS, "", (), snapshot.files_in_progress
    yield metrics.BLOCKS, "", (), snapshot.blocks
    yield metrics.BYTES, "", (), snapshot.bytes
    accounting = snapshot.byte_accounting()
    # Bytes that wait for the end of their record are taken up again later, and would lower a counter: they are a gauge.
    accounting["skipped"] -= snapshot.waiting_bytes
    yield metrics.CONTENT, "", (), accounting.pop("bytes") - snapshot.waiting_bytes
    for part, size_bytes in accounting.items():
        yield metrics.ACCOUNTED, "", (part,), size_bytes
    yield metrics.LEFT_OUT, "", (), snapshot.left_out.bytes
    yield metrics.WAITING, "", (), snapshot.waiting_bytes


def _operator_samples(snapshot: RunSnapshot) -> Iterator[Sample]:
    for each in snapshot.operators:
        for port in each.ports:
            yield metrics.RECORDS, "", (each.name, port.name), port.records
        rejected = each.counts.get(names.REJECTED, 0)
        # A series that begins with the first reject would hide it from rate(): each operator that emits records has
        # one.
        if each.ports or rejected:
            yield metrics.REJECTS, "", (each.name,), rejected
            yield metrics.REJECTED_BYTES, "", (each.name,), each.counts.get(names.REJECTED_BYTES, 0)
        if each.busy_s:
            yield metrics.BUSY, "", (each.name,), each.busy_s
    for stage, counts in snapshot.partitions.items():
        yield metrics.PARTITIONS, "", (stage,), counts.last


def _label(value: str) -> str:
    # The names of files may hold bytes that are no text.
    return _SURROGATES.sub("\ufffd", value).translate(_ESCAPED)


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(round(value, 6))
