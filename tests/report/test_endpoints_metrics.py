"""The metrics of checkpoints as Prometheus reads them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.errors import DagflowError
from dagflow.journal.state import PartitionCounts
from dagflow.journal.windows import Receipt
from dagflow.report.endpoints import METRICS, STATES, metrics_text
from dagflow.report.reading import CheckpointReading, LiveSource, read_checkpoint
from dagflow.report.snapshot import HeldGroup, OperatorFigures, RunSnapshot
from dagflow.runtime.local import InlineRuntime
from dagflow.storage.context import StorageContext
from tests.engine.sample_app import app_of
from tests.engine.test_driver import RecordingObserver, crashing

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def samples(text: str) -> Samples:
    """The samples by name and labels, as the reference parser of Prometheus reads them."""
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in found
            found[key] = sample.value
    return found


def of_names(text: str) -> dict[str, float]:
    """The samples of a text by name and the labels that are not of all samples."""
    common = "app", "checkpoint"
    return {
        name + "".join(f" {value}" for key, value in sorted(labels) if key not in common): value
        for (name, labels), value in samples(text).items()
    }


def test_a_finished_run_is_known_by_its_journal(tmp_path: Path) -> None:
    """Windows, records and input of all runs together; nothing waits."""
    run(app_of(tmp_path, [b"one two", b"three", b"four"]), runtime=InlineRuntime)
    found = of_names(metrics_text([read_checkpoint(str(tmp_path / "journal"), StorageContext.default())]))
    assert found["dagflow_checkpoint_readable"] == 1
    assert {state: found[f"dagflow_run_state {state}"] for state in STATES} == {
        **dict.fromkeys(STATES, 0),
        "completed": 1,
    }
    assert found["dagflow_windows_planned_total"] == found["dagflow_windows_published_total"] == 2
    assert found["dagflow_window_seconds_count run"] == 2
    assert found["dagflow_records_total lines records"] == 4
    assert found["dagflow_backlog_bytes"] == found["dagflow_oldest_unpublished_seconds"] == 0
    assert found["dagflow_last_commit_timestamp_seconds"] > 1e9


def test_a_run_that_died_shows_what_waits(tmp_path: Path) -> None:
    """The window that was planned and not published ages until a run publishes it."""
    with pytest.raises(DagflowError, match="the lights went out"):
        run(app_of(tmp_path, [b"one", b"two", b"three"]), runtime=crashing(2))
    url = str(tmp_path / "journal")
    died = read_checkpoint(url, StorageContext.default())
    assert died.oldest_unpublished_s > 0
    later = CheckpointReading(died.checkpoint, died.snapshot, now_s=died.now_s + 60)
    assert later.oldest_unpublished_s == pytest.approx(died.oldest_unpublished_s + 60)
    assert of_names(metrics_text([later]))["dagflow_run_state failed"] == 1
    run(app_of(tmp_path, [b"one", b"two", b"three"]), runtime=InlineRuntime)
    assert read_checkpoint(url, StorageContext.default()).oldest_unpublished_s == 0


def test_a_live_run_reports_the_same_from_memory_as_its_journal(tmp_path: Path) -> None:
    """Also of the windows of earlier runs: a restart resets no counter."""
    with pytest.raises(DagflowError, match="the lights went out"):
        run(app_of(tmp_path, [b"one", b"two", b"three"]), runtime=crashing(2))
    url, storage = str(tmp_path / "journal"), StorageContext.default()
    live, seen = LiveSource(url, storage), []

    def look(snapshot: RunSnapshot) -> None:
        live.progress(snapshot)
        live_snapshot = live().snapshot
        assert live_snapshot is not None and live_snapshot.progress == snapshot.progress
        seen.append((of_names(metrics_text([live()])), of_names(metrics_text([read_checkpoint(url, storage)]))))

    run(app_of(tmp_path, [b"one", b"two", b"three"]), RunOptions(), RecordingObserver(look), runtime=InlineRuntime)
    assert seen
    for in_memory, in_journal in seen:
        # What rides on the next record is not in the journal yet.
        for name in set(in_memory) - {name for name in in_memory if "publi" in name or "window_seconds" in name}:
            assert in_memory[name] == pytest.approx(in_journal[name]), name
    assert seen[-1][0]["dagflow_records_total lines records"] == 3


def test_a_checkpoint_without_a_journal_is_reported_as_unreadable(tmp_path: Path) -> None:
    """The metrics of the others are shown all the same."""
    run(app_of(tmp_path, [b"one"]), runtime=InlineRuntime)
    storage = StorageContext.default()
    readings = [read_checkpoint(str(tmp_path / name), storage) for name in ("journal", "gone")]
    readable = {
        dict(labels)["checkpoint"]: value
        for (name, labels), value in samples(metrics_text(readings)).items()
        if name == "dagflow_checkpoint_readable"
    }
    assert readable == {str(tmp_path / "journal"): 1, str(tmp_path / "gone"): 0}


def full(name: str) -> RunSnapshot:
    """A snapshot that has a sample of every metric, with one name everywhere."""
    return RunSnapshot(
        app="app",
        operators=(OperatorFigures(name, records={name: 3}, bytes={name: 30}, counts={"rejected": 2}, busy_s=0.25),),
        partitions={name: PartitionCounts(1, 4, 2)},
        targets={name: Receipt(7, "version 7")},
        groups={name: HeldGroup(6, 2, 3, 100, 10, since_ms=1_000)},
        phase_s={"run": 1.5},
        last_published=3,
    )


@given(name=st.text(min_size=1))
def test_any_name_survives_the_text_format(name: str) -> None:
    """Quotes, backslashes, ends of lines, and bytes that are no text."""
    found = samples(metrics_text([CheckpointReading(f"/{name}", full(name), now_s=11.0)]))
    read = {value for (metric, labels), value in found.items() if metric == "dagflow_records_total"}
    assert read == {3}
    shown = {dict(labels).get("operator") for (metric, labels), _ in found.items()} - {None}
    assert shown == {"".join("\ufffd" if "\ud800" <= char <= "\udfff" else char for char in name)}


def test_windows_that_wait_to_be_merged_are_the_lag_of_a_table() -> None:
    """A table that waits for nothing has none, however long ago it got its last rows."""
    reading = CheckpointReading("/c", full("table"), now_s=11.0)
    assert reading.table_lags() == {"table": (2, 10.0)}
    assert CheckpointReading("/c", RunSnapshot("app", targets={"table": Receipt(7, "")})).table_lags() == {
        "table": (0, 0.0)
    }


def test_only_documented_names_are_exported() -> None:
    """Each with its type and meaning, and counters alone end in _total."""
    text = metrics_text([CheckpointReading("/c", full("x"))])
    assert {name for name, _ in samples(text)} <= {name for metric in METRICS for name in metric.samples}
    assert all(metric.name.endswith("_total") == (metric.type == "counter") for metric in METRICS)
    documented = Path(__file__).parents[2].joinpath("docs", "monitoring.md").read_text()
    for metric in METRICS:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        assert f"| `{metric.name}` | {metric.type} | {labels} | {metric.help} |" in documented
