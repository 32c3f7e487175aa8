"""What counts as read of what is listed as left out."""

from __future__ import annotations

from dagflow.api.context import Skipped
from dagflow.engine.left_out import recovered_by_replay
from dagflow.journal.saved_state import LeftOut
from dagflow.journal.windows import WindowIntent


def test_a_replay_recovers_older_versions_that_could_not_be_read_either() -> None:
    """Not newer ones, nor what was gone, nor what lies behind what it has read, nor what it has left out again."""

    def unreadable(start: int, end: int, size: int, mtime_ns: int) -> Skipped:
        return Skipped("/in/a", start, end, "storage: denied", "unreadable", size, mtime_ns)

    old, newer = [unreadable(0, 8, 20, 1), unreadable(16, 20, 20, 1)], [unreadable(0, 8, 20, 3)]
    lost = Skipped("/in/a", 0, 8, "missing", "deleted", 20, 1)
    own = [unreadable(0, 8, 24, 2), unreadable(16, 24, 24, 2)]
    left_out = LeftOut().after([*old, lost, *own, *newer], [])
    before = WindowIntent(2, skipped=own)
    assert recovered_by_replay(left_out, before, []) == [*old, *own]
    assert recovered_by_replay(left_out, before, own[1:]) == [old[0], own[0]]
    unfinished = WindowIntent(2, skipped=own[1:], recovered=[old[0], own[0]])
    assert recovered_by_replay(left_out, unfinished, []) == [*old, *own]
