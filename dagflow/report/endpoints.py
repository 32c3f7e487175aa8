"""Answers of HTTP servers to Prometheus and to health checks.

Every server of dagflow mounts the same functions: `ENDPOINTS["/metrics"](readings)` gives status, content type and
body, where `readings` is what `read_checkpoint` or a `LiveSource` (`dagflow/report/reading.py`) gave for each
checkpoint. The page of `dagflow ui` and `dagflow run --metrics` both do this, so their answers cannot differ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dagflow.report.prometheus import CONTENT_TYPE, metrics_text
from dagflow.report.reading import CheckpointReading

_TEXT = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a server.

    Attributes:
        body: Text, which is sent as UTF-8.
    """

    status: int
    content_type: str
    body: str


def metrics_answer(readings: Sequence[CheckpointReading]) -> Answer:
    """`/metrics`: the metrics of all checkpoints, in the text format of Prometheus."""
    return Answer(200, CONTENT_TYPE, metrics_text(readings))


def health_answer(readings: Sequence[CheckpointReading]) -> Answer:
    """`/healthz`: the process is alive, whatever the checkpoints say."""
    return Answer(200, _TEXT, "alive\n")


def readiness_answer(readings: Sequence[CheckpointReading]) -> Answer:
    """`/readyz`: 200 where all journals can be read and no run is stalled, killed or failed; otherwise 503.

    The body has a line for each checkpoint, with the reason.
    """
    reasons = [(each, reason_against(each)) for each in readings]
    lines = (f"{each.checkpoint}: {reason or _state(each)}\n" for each, reason in reasons)
    return Answer(503 if any(reason for _, reason in reasons) else 200, _TEXT, "".join(lines))


ENDPOINTS: Final[Mapping[str, Callable[[Sequence[CheckpointReading]], Answer]]] = {
    "/metrics": metrics_answer,
    "/healthz": health_answer,
    "/readyz": readiness_answer,
}
"""The functions that answer requests, by path."""


def reason_against(reading: CheckpointReading) -> str:
    """Why a run is not well, in one line; "" where it is."""
    snapshot = reading.snapshot
    if snapshot is None:
        return f"not readable: {_first_line(reading.error)}"
    driver = snapshot.driver
    if driver is not None and driver.state in ("stalled", "killed", "failed"):
        return f"{driver.state}: {_first_line(driver.error)}" if driver.error else driver.state
    if snapshot.state in ("stalled", "failed"):
        return snapshot.state
    if driver is not None and driver.is_at_work and driver.stalls:
        return f"stalled: {_first_line(driver.stalls[0])}"
    return ""


def _state(reading: CheckpointReading) -> str:
    return "" if reading.snapshot is None else reading.snapshot.state


def _first_line(text: str) -> str:
    return text.partition("\n")[0]
