"""Answers of HTTP servers to Prometheus and to health checks, from readings of checkpoints.

Every server of dagflow mounts the functions of ENDPOINTS, so that the answers of `dagflow ui` and of `dagflow run
--metrics` cannot differ. The metrics, their types and meanings do not change. Their names follow the conventions of
Prometheus: base units, the unit in the name, `_total` behind counters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

from dagflow.frozen import frozen
from dagflow.metrics import names
from dagflow.report.reading import CheckpointReading

LABELS = ("app", "checkpoint")
"""Labels of every sample, beside the labels of its metric."""

STATES = ("running", "stalled", "completed", "stopped", "killed", "failed")
"""Possible states of the newest run on a checkpoint, see RunSnapshot.standing."""


@frozen
class Metric:
    name: str
    help: str
    labels: tuple[str, ...] = ()

    @property
    def type(self) -> Literal["counter", "gauge", "summary"]:
        if self.name.endswith("_total"):
            return "counter"
        return "summary" if self.labels == ("phase",) else "gauge"

    @property
    def samples(self) -> Sequence[str]:
        """The names of its samples: what an expression of Prometheus may ask for."""
        return [f"{self.name}_sum", f"{self.name}_count"] if self.type == "summary" else [self.name]


_READABLE = "dagflow_checkpoint_readable"
_OPERATOR = ("operator",)

METRICS: tuple[Metric, ...] = (
    Metric(_READABLE, "Whether the journal can be read (1) or not (0); without it, app is empty."),
    Metric("dagflow_run_state", "1 for the state of the newest run on the checkpoint, 0 for all others.", ("state",)),
    Metric("dagflow_run_started_timestamp_seconds", "When the newest run began, by its clock."),
    Metric("dagflow_run_last_beat_timestamp_seconds", "When the newest run last wrote its heartbeat."),
    Metric("dagflow_run_stalls", "Stalled tasks, and stalled work of the driver."),
    Metric("dagflow_windows_planned_total", "Windows that were planned."),
    Metric("dagflow_windows_committed_total", "Windows that were committed."),
    Metric("dagflow_windows_published_total", "Windows that were published."),
    Metric("dagflow_last_commit_timestamp_seconds", "When the last window was committed; 0 before the first."),
    Metric("dagflow_last_publication_timestamp_seconds", "When the last window was published; 0 before the first."),
    Metric(
        "dagflow_window_seconds",
        "How long published windows took, by phase: plan, queue (wait for a task), run, commit (with the wait for "
        "earlier windows), publish.",
        ("phase",),
    ),
    Metric("dagflow_backlog_bytes", "Input that is known and not committed."),
    Metric("dagflow_oldest_unpublished_seconds", "Age of the oldest input that is planned and not published, or 0."),
    Metric("dagflow_input_files_total", "Files that committed windows began."),
    Metric("dagflow_input_files_in_progress", "Files that were begun and are not cut to their end."),
    Metric("dagflow_input_blocks_total", "Blocks that committed windows read."),
    Metric("dagflow_input_bytes_total", "Bytes of these blocks as they are stored, compressed or not."),
    Metric(
        "dagflow_content_bytes_total",
        "Bytes that must be accounted for, decompressed: equals the sum of dagflow_accounted_bytes_total.",
    ),
    Metric(
        "dagflow_accounted_bytes_total",
        "What became of these bytes: records, delimiters, skipped, rejected.",
        ("part",),
    ),
    Metric("dagflow_left_out_bytes", "Input that was left out, and no later window has read."),
    Metric("dagflow_waiting_bytes", "Bytes of records that wait for their end in files that may grow."),
    Metric("dagflow_records_total", "Records that left an output port in committed windows.", ("operator", "port")),
    Metric("dagflow_rejects_total", "Records that an operator refused.", _OPERATOR),
    Metric("dagflow_rejected_bytes_total", "Bytes in what an operator refused.", _OPERATOR),
    Metric("dagflow_corrected_files_total", "Files whose later version took the place of an earlier one.", _OPERATOR),
    Metric(
        "dagflow_corrected_rows_total",
        "Rows of earlier versions that left a table (out), and rows of later ones that took their place (in).",
        ("operator", "direction"),
    ),
    Metric("dagflow_operator_busy_seconds_total", "Seconds that an operator worked, over all tasks.", _OPERATOR),
    Metric("dagflow_partitions", "Partitions of a stage in the last planned window.", ("stage",)),
    Metric("dagflow_table_window", "The newest window that has added something to a table.", _OPERATOR),
    Metric("dagflow_table_lag_windows", "Committed windows whose records a table does not show yet.", _OPERATOR),
    Metric("dagflow_table_lag_seconds", "Seconds since the oldest of these windows was committed, or 0.", _OPERATOR),
)

Values = float | Mapping[Any, float]
"""The value of a metric, or its values by its label, or labels."""


def _values(reading: CheckpointReading) -> dict[str, Values]:
    """The values by metric; the sum of a summary, whose count is that of published windows."""
    run = reading.snapshot
    if run is None:
        return {_READABLE: 0}
    accounting, lags = run.byte_accounting(), reading.table_lags()
    # Bytes that wait for the end of their record are taken up again later, and would lower a counter: they are a gauge.
    accounting["skipped"] -= run.waiting_bytes
    # A series that begins with the first reject would hide it from rate(): each operator that emits records has one.
    refusing = [each for each in run.operators if each.records or each.counts.get(names.REJECTED)]
    driver: dict[str, Values] = {}
    if run.driver is not None:
        driver = {
            "dagflow_run_started_timestamp_seconds": run.driver.heartbeat.since_ms / 1000,
            "dagflow_run_last_beat_timestamp_seconds": run.driver.heartbeat.beat_ms / 1000,
            "dagflow_run_stalls": len(run.driver.heartbeat.stalls),
        }
    return driver | {
        _READABLE: 1,
        "dagflow_run_state": {state: run.standing == state for state in STATES},
        "dagflow_windows_planned_total": run.last_planned,
        "dagflow_windows_committed_total": run.last_committed,
        "dagflow_windows_published_total": run.last_published,
        "dagflow_last_commit_timestamp_seconds": run.last_committed_ms / 1000,
        "dagflow_last_publication_timestamp_seconds": run.last_published_ms / 1000,
        "dagflow_window_seconds": run.phase_s,
        "dagflow_backlog_bytes": run.backlog_bytes,
        "dagflow_oldest_unpublished_seconds": reading.oldest_unpublished_s,
        "dagflow_input_files_total": run.files,
        "dagflow_input_files_in_progress": run.files_in_progress,
        "dagflow_input_blocks_total": run.blocks,
        "dagflow_input_bytes_total": run.bytes,
        "dagflow_content_bytes_total": accounting.pop("bytes") - run.waiting_bytes,
        "dagflow_accounted_bytes_total": accounting,
        "dagflow_left_out_bytes": run.left_out.bytes,
        "dagflow_waiting_bytes": run.waiting_bytes,
        "dagflow_records_total": {
            (each.name, port): number for each in run.operators for port, number in each.records.items()
        },
        "dagflow_rejects_total": {each.name: each.counts.get(names.REJECTED, 0) for each in refusing},
        "dagflow_rejected_bytes_total": {each.name: each.counts.get(names.REJECTED_BYTES, 0) for each in refusing},
        "dagflow_corrected_files_total": {
            each.name: each.counts[names.SUPERSEDED] for each in run.operators if names.SUPERSEDED in each.counts
        },
        "dagflow_corrected_rows_total": {
            (each.name, direction): each.counts.get(name, 0)
            for each in run.operators
            if each.name in run.targets
            for direction, name in (("out", names.SUPERSEDED_RECORDS), ("in", names.SUPERSEDING_RECORDS))
        },
        "dagflow_operator_busy_seconds_total": {each.name: each.busy_s for each in run.operators if each.busy_s},
        "dagflow_partitions": {stage: counts.last for stage, counts in run.partitions.items()},
        "dagflow_table_window": {name: receipt.window_id for name, receipt in run.targets.items()},
        "dagflow_table_lag_windows": {name: windows for name, (windows, _) in lags.items()},
        "dagflow_table_lag_seconds": {name: seconds for name, (_, seconds) in lags.items()},
    }


_ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_SURROGATES = re.compile("[\ud800-\udfff]")


def metrics_text(readings: Sequence[CheckpointReading]) -> str:
    """The metrics of some checkpoints, each of which is there once, in the text format of Prometheus (version 0.0.4).

    Counters are sums over all runs on a checkpoint, so a restart does not reset them; they rise when a window is
    committed. Only `--fresh`, a replay, or a repair lowers them, and Prometheus takes that for a restart.

    Returns:
        The text; it ends with a newline. A checkpoint that cannot be read has `dagflow_checkpoint_readable 0` alone.
    """
    found = [(reading, _values(reading)) for reading in readings]
    parts = []
    for metric in METRICS:
        lines = [line for reading, values in found for line in _lines(metric, reading, values.get(metric.name, {}))]
        if lines:
            parts += [f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {metric.type}", *lines]
    return "".join(f"{line}\n" for line in parts)


def _lines(metric: Metric, reading: CheckpointReading, values: Values) -> Iterator[str]:
    app, windows = ("", 0) if reading.snapshot is None else (reading.snapshot.app, reading.snapshot.last_published)
    for own, value in values.items() if isinstance(values, Mapping) else [((), values)]:
        labels = (app, reading.checkpoint, *((own,) if isinstance(own, str) else own))
        named = zip((*LABELS, *metric.labels), labels, strict=True)
        shown = ",".join(f'{name}="{_label(text)}"' for name, text in named)
        for name, number in zip(metric.samples, (value, windows), strict=False):
            yield f"{name}{{{shown}}} {_number(number)}"


def _label(value: str) -> str:
    # The names of files may hold bytes that are no text.
    return _SURROGATES.sub("\ufffd", value).translate(_ESCAPED)


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(round(value, 6))


_TEXT = "text/plain; charset=utf-8"


@frozen
class Answer:
    """The answer of a server, whose body is sent as UTF-8."""

    status: int
    content_type: str
    body: str


def metrics_answer(readings: Sequence[CheckpointReading]) -> Answer:
    """`/metrics`: the metrics of all checkpoints, in the text format of Prometheus."""
    return Answer(200, "text/plain; version=0.0.4; charset=utf-8", metrics_text(readings))


def health_answer(readings: Sequence[CheckpointReading]) -> Answer:
    """`/healthz`: the process is alive, whatever the checkpoints say."""
    return Answer(200, _TEXT, "alive\n")


def readiness_answer(readings: Sequence[CheckpointReading]) -> Answer:
    """`/readyz`: 200 where all journals can be read and no run is stalled, killed or failed; otherwise 503.

    The body has a line for each checkpoint, with the reason.
    """
    reasons = list(map(reason_against, readings))
    lines = (
        f"{each.checkpoint}: {reason or (each.snapshot.state if each.snapshot else '')}\n"
        for each, reason in zip(readings, reasons, strict=True)
    )
    return Answer(503 if any(reasons) else 200, _TEXT, "".join(lines))


ENDPOINTS: Final[Mapping[str, Callable[[Sequence[CheckpointReading]], Answer]]] = {
    "/metrics": metrics_answer,
    "/healthz": health_answer,
    "/readyz": readiness_answer,
}


def reason_against(reading: CheckpointReading) -> str:
    """Why a run is not well, in one line; "" where it is."""
    snapshot = reading.snapshot
    if snapshot is None:
        return f"not readable: {_first_line(reading.error)}"
    driver = snapshot.driver
    if driver is not None and driver.state in ("stalled", "killed", "failed"):
        return f"{driver.state}: {_first_line(driver.heartbeat.error)}" if driver.heartbeat.error else driver.state
    if snapshot.state in ("stalled", "failed"):
        return snapshot.state
    if driver is not None and driver.is_at_work and driver.heartbeat.stalls:
        return f"stalled: {_first_line(driver.heartbeat.stalls[0])}"
    return ""


def _first_line(text: str) -> str:
    return text.partition("\n")[0]
