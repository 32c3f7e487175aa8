"""Partitions that got nothing cost no Spark task of their own."""

from __future__ import annotations

from dagflow.runtime.slots import group_slots


def test_idle_slots_go_with_the_last_busy_one() -> None:
    """Each slot is run once, and a busy one is never behind another."""
    assert group_slots([["a"], [], ["b"], []]) == [[(0, ["a"])], [(2, ["b"]), (1, []), (3, [])]]


def test_slots_that_all_got_nothing_run_side_by_side() -> None:
    """Operators that make something out of nothing keep their partitions."""
    assert group_slots([[], []]) == [[(0, [])], [(1, [])]]


def test_slots_that_a_window_puts_together_run_in_one_task() -> None:
    """In their order, idle ones too."""
    assert group_slots([["a"], [], ["b"]], [[0, 1], [2]]) == [[(0, ["a"]), (1, [])], [(2, ["b"])]]
