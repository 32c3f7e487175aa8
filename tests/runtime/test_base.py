"""Which slots a task of the lowest level runs."""

from __future__ import annotations

from dagflow.runtime.base import group_slots


def test_each_slot_has_a_task_where_a_window_does_not_say() -> None:
    """With its input."""
    assert group_slots([["a"], [], ["b"]], ()) == [[(0, ["a"])], [(1, [])], [(2, ["b"])]]


def test_slots_that_a_window_puts_together_run_in_one_task() -> None:
    """In their order, idle ones too."""
    assert group_slots([["a"], [], ["b"]], [[0, 1], [2]]) == [[(0, ["a"]), (1, [])], [(2, ["b"])]]
