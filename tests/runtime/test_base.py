"""Which slots a task of the lowest level runs, and what the driver gives to each."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from dagflow.execution.messages import PART, Program, ShuffleItem, WindowJob
from dagflow.plan.physical import PortRef
from dagflow.runtime.base import driver_inputs, group_slots
from tests.runtime.runtime_contract import TEXTS, exchanging_plan, operators_of, window


def test_each_slot_has_a_task_where_a_window_does_not_say() -> None:
    """With its input."""
    assert group_slots([["a"], [], ["b"]], ()) == [[(0, ["a"])], [(1, [])], [(2, ["b"])]]


def test_slots_that_a_window_puts_together_run_in_one_task() -> None:
    """In their order, idle ones too."""
    assert group_slots([["a"], [], ["b"]], [[0, 1], [2]]) == [[(0, ["a"]), (1, [])], [(2, ["b"])]]


def test_parts_come_first_at_the_first_partition_of_their_operator(tmp_path: Path) -> None:
    """Above the lowest level they are items, which go with slot 0."""
    program = Program.of("app", exchanging_plan(), operators_of(tmp_path))
    job = replace(window(TEXTS), parts={"lines": [b"first", b"second"], "total": [b"third"]})
    first, second = driver_inputs(program, job)
    lines, total = PortRef("lines", PART), PortRef("total", PART)
    assert first[:2] == [(lines, b"first"), (lines, b"second")]
    assert [item.target for item in first if isinstance(item, ShuffleItem)] == [total]
    assert first[-1] == ShuffleItem(2, 0, (-1, 0), total, b"third")
    assert [target.port for target, _ in second] == ["samples"]


def test_a_window_that_only_publishes_has_a_slot_for_each_part(tmp_path: Path) -> None:
    """Spark would hold all of one task's at once."""
    program = Program.of("app", exchanging_plan(), operators_of(tmp_path))
    job = WindowJob(8, "tag", {"lines": 0, "filter": 0, "total": 1}, {"lines": []}, parts={"total": [b"a", b"b"]})
    slots = driver_inputs(program, job)
    assert [[item.payload for item in slot] for slot in slots] == [[b"a"], [b"b"]]
    assert [slot for task in group_slots(slots, job.together) for slot, _ in task] == [0, 1]
