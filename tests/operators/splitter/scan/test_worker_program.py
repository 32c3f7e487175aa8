from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from dagflow.storage import fingerprint
from dagflow.storage.backends.local import disk
from operators.splitter.scan import worker_program


@given(st.integers(0, (1 << 64) - 1))
@example((1 << 63) - 1)
@example(1 << 63)
def test_a_worker_process_keeps_inode_numbers_as_readers_do(inode: int) -> None:
    """It has a function of its own, because it imports nothing, and a difference would be another file."""
    assert worker_program.file_id_of(inode) == fingerprint.file_id_of(inode)


@given(st.integers(-(1 << 70), 1 << 70))
@example(1 << 63)
@example(-(1 << 63) - 1)
def test_a_worker_process_keeps_times_as_readers_do(nanoseconds: int) -> None:
    """The same for times before 1677 and after 2262."""
    assert worker_program.bounded_ns(nanoseconds) == disk.bounded_ns(nanoseconds)
