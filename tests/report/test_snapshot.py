"""The summary of a run."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from dagflow.metrics import names
from dagflow.report.snapshot import OperatorFigures, RunSnapshot

SIZES = st.integers(0, 1000)


@given(records=SIZES, waiting=SIZES, resumed=SIZES)
@example(records=30, waiting=0, resumed=10)  # a run that reads the rest of a record that an earlier run let wait
def test_an_account_adds_up_and_nothing_in_it_is_negative(records: int, waiting: int, resumed: int) -> None:
    """Whatever waited before the run, and waits after it."""
    counts = {names.CONTENT_BYTES: records + 3, names.RECORD_BYTES: records, names.DELIMITER_BYTES: 2}
    counts |= {names.SKIPPED_BYTES: 1, names.WAITING_BYTES: waiting, names.RESUMED_BYTES: resumed}
    account = RunSnapshot("app", operators=(OperatorFigures("reader", counts=counts),)).account()
    assert account.pop("bytes") == sum(account.values())
    assert min(account.values()) >= 0
    assert account["skipped"] == 1 + max(waiting - resumed, 0)
