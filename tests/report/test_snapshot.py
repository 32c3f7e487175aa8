"""The summary of a run."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from dagflow.metrics import names
from dagflow.report.snapshot import OperatorFigures, RunSnapshot
from tests.cli.samples import summary

SIZES = st.integers(0, 1000)


@given(records=SIZES, waiting=SIZES, resumed=SIZES)
@example(records=30, waiting=0, resumed=10)  # a run that reads the rest of a record that an earlier run let wait
def test_the_byte_accounting_adds_up_without_negatives(records: int, waiting: int, resumed: int) -> None:
    """Whatever waited before the run, and waits after it."""
    counts = {names.CONTENT_BYTES: records + 3, names.RECORD_BYTES: records, names.DELIMITER_BYTES: 2}
    counts |= {names.SKIPPED_BYTES: 1, names.WAITING_BYTES: waiting, names.RESUMED_BYTES: resumed}
    accounting = RunSnapshot("app", operators=(OperatorFigures("reader", counts=counts),)).byte_accounting()
    assert accounting.pop("bytes") == sum(accounting.values())
    assert min(accounting.values()) >= 0
    assert accounting["skipped"] == 1 + max(waiting - resumed, 0)


def test_counters_are_named_by_operator_without_names_to_be_split() -> None:
    """All that `counts` has under joined names, and what the figures of the run add up."""
    counts = {names.CONTENT_BYTES: 9, names.BLOCKS: 2, "failed a:b": 1}
    reader = OperatorFigures("reader", "reader", {"messages": 5}, {"messages": 50}, counts, 1.25)
    said = RunSnapshot("app", operators=(reader, OperatorFigures("filter", "reader"))).status_json()
    assert said["operators"] == {
        "filter": {"records": {}, "counters": {}, "busy_seconds": 0.0},
        "reader": {"records": {"messages": 5}, "counters": counts, "busy_seconds": 1.25},
    }
    assert said["counts"] == {"reader:content_bytes": 9, "reader:failed a:b": 1}
    assert said["records"] == {"reader.messages": 5}


def test_only_a_run_at_work_has_windows_that_run() -> None:
    """What a run that has failed or ended had in hand is no progress."""
    at_work = summary(6.0)
    assert at_work.progress is not None
    assert at_work.to_json()["running"] == at_work.progress.to_json()
    for state in ("completed", "stopped", "failed", "stalled"):
        assert summary(6.0, state=state).to_json()["running"] is None
    assert RunSnapshot("app").to_json()["running"] is None
