"""When a group of windows is due, and what is made of its fragments."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from dagflow.api.context import ControlServices, OperatorContext
from dagflow.storage.pending import FileFacts, HeldFile, PendingFile
from operators.sink.columns.table_columns import schema_text
from operators.sink.tables.table_groups import MergeJob, TableGroups, merge_jobs

MIB = 1 << 20


@dataclass
class GrouperServices:
    """What a driver offers to a grouper."""

    follow: bool = True
    held_files: list[HeldFile] = field(default_factory=list)


def held(
    window_id: int, *pieces: tuple[str, int], columns: str = "n", held_ms: int = 0, begins: Sequence[bool] = ()
) -> HeldFile:
    """A fragment with pieces of some lengths, by the value of the partition column; each begins a file of the input."""
    ends = [sum(length for _, length in pieces[: number + 1]) for number in range(len(pieces))]
    parts = [
        [[value], end - length, end, 100 * window_id + end, is_begin, round(length * 0.65)]
        for (value, length), end, is_begin in zip(pieces, ends, begins or itertools.repeat(True), strict=False)
    ]
    schema = schema_text(pa.schema([(name, pa.int64()) for name in columns]))
    facts = FileFacts("table", schema, {"day": None}, held=parts)
    file = PendingFile(f"/out/fragment-{window_id}", f"/out/.pending/{window_id}", ends[-1], 1, facts=facts)
    return HeldFile(window_id, held_ms, file)


def ranges(job: MergeJob) -> list[tuple[str, int, int]]:
    """The pieces of a job, one by one."""
    return [(Path(url).name, start, end) for url, each in job.pieces for start, end, _ in each]


def test_a_partition_becomes_as_few_files_of_equal_length_as_possible() -> None:
    """Every piece is in one job, in the order of windows; other partitions have jobs of their own."""
    files = [held(window_id, ("a", 10 * MIB), ("b", MIB)) for window_id in range(1, 21)]
    jobs = merge_jobs(files, 65 * MIB)
    assert [job.size_bytes // MIB for job in jobs] == [100, 100, 20]
    assert ranges(jobs[0]) + ranges(jobs[1]) == [(f"{n}", 0, 10 * MIB) for n in range(1, 21)]
    assert ranges(jobs[2]) == [(f"{n}", 10 * MIB, 11 * MIB) for n in range(1, 21)]
    assert {job.operator for job in jobs} == {"table"}


def test_a_data_file_ends_with_a_file_of_the_input() -> None:
    """So a corrected one concerns a data file, and not those around it; a long one has data files of its own."""
    tails = [held(number, ("a", 8 * MIB), ("a", 2 * MIB), begins=[True, False]) for number in range(1, 21)]
    jobs = merge_jobs(tails, 26 * MIB)
    assert [job.size_bytes // MIB for job in jobs] == [40] * 5
    assert all(ranges(job)[0][1] == 0 for job in jobs)
    long = [held(8, ("a", 8 * MIB), begins=[True]), *(held(9 + n, ("a", 8 * MIB), begins=[False]) for n in range(11))]
    jobs = merge_jobs([*tails[:3], *long, tails[-1]], 26 * MIB)
    owners = [{name for name, _, _ in ranges(job)} for job in jobs]
    assert [len(names) for names in owners] == [3, 6, 6, 1] and sum(map(len, owners)) == len(set().union(*owners))


def test_a_job_reports_the_checksums_of_its_pieces() -> None:
    """Each job has the checksums of its own pieces, by fragment."""
    one, two = merge_jobs([held(1, ("a", 1), ("b", 2)), held(2, ("a", 1))], MIB)
    assert one.pieces == (("/out/.pending/1", ((0, 1, 101),)), ("/out/.pending/2", ((0, 1, 201),)))
    assert two.pieces == (("/out/.pending/1", ((1, 3, 103),)),)


def test_files_have_the_columns_of_all_fragments() -> None:
    """Columns of later windows come behind those of earlier ones."""
    (job,) = merge_jobs([held(1, ("a", 1), columns="nm"), held(2, ("a", 1), columns="nx")], MIB)
    assert job.columns == ("n", "m", "x")


def grouper(monkeypatch: pytest.MonkeyPatch, now_s: float, services: GrouperServices, **limits: Any) -> TableGroups:
    """A grouper at a time."""
    monkeypatch.setattr(TableGroups, "clock", lambda: now_s)
    groups = TableGroups(**limits)
    groups.setup(OperatorContext(control=cast(ControlServices, services)))
    return groups


@pytest.mark.parametrize(
    ("follow", "limits", "now_s", "length", "is_due"),
    [
        (True, {}, 59.0, 1, False),
        (True, {}, 60.0, 1, True),
        (True, {}, 1.0, 512 * MIB, True),
        (False, {}, 1e6, 2047 * MIB, False),
        (False, {}, 1.0, 2048 * MIB, True),
        (False, {"every_millis": 5000}, 5.0, 1, True),
        (True, {"every_millis": 5000}, 4.9, 1, False),
        (True, {"bytes": 10}, 0.0, 10, True),
        (True, {"every_millis": 0}, 0.0, 1, True),
    ],
)
def test_a_group_is_due_by_time_or_by_bytes(
    monkeypatch: pytest.MonkeyPatch, follow: bool, limits: dict[str, int], now_s: float, length: int, is_due: bool
) -> None:
    """As the app says; otherwise a minute or 512 MiB while following, and 2 GiB in a run that has an end."""
    groups = grouper(monkeypatch, now_s, GrouperServices(follow, [held(1, ("a", length))]), **limits)
    assert groups._is_due(groups._waiting()) == is_due


def test_what_was_emitted_is_not_emitted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as the window is not planned, the journal still says that the files are held."""
    services = GrouperServices(held_files=[held(1, ("a", 1)), held(2, ("a", 1))])
    groups = grouper(monkeypatch, 60.0, services)
    groups._taken_through = 1
    assert [each.window_id for each in groups._waiting()] == [2]
    assert groups.taken_through == 1
