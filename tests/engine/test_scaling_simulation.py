"""A trace plays through a policy as a run would play through it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dagflow.api.partitioning import BacklogStats
from dagflow.cli.commands.plan import WIDTH, chart, decisions
from dagflow.engine.scaling import read_trace, simulate
from dagflow.errors import AppError
from operators.deadline import DeadlinePartitioner
from operators.reader.block_reader import BlockReader

CSV = "millis,backlog,bytes\n0,0,0\n1000,3,300\n2000,20,2000\n3000,1,100\n"
EXPECTED = [
    BacklogStats(0, 0, 0, 0, 7.0),
    BacklogStats(1000, 0, 3, 300, 7.0),
    BacklogStats(2000, 0, 20, 2000, 7.0),
    BacklogStats(3000, 0, 1, 100, 7.0),
]


def rows() -> list[dict[str, float]]:
    """The trace as objects."""
    return [{"millis": s.now_millis, "backlog": s.backlog, "bytes": s.backlog_bytes} for s in EXPECTED]


@pytest.mark.parametrize("text", [CSV, json.dumps(rows()), "\n".join(map(json.dumps, rows())), CSV.replace(",", ", ")])
def test_traces_are_csv_or_json(tmp_path: Path, text: str) -> None:
    """A header with rows, a list, or an object in each line."""
    (tmp_path / "trace").write_text(text)
    assert read_trace(str(tmp_path / "trace"), 7.0) == EXPECTED


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "the trace is empty"),
        ("[1", "the trace is not JSON"),
        ("millis,backlog\n1,2\n", "trace:2:1: expected numbers for millis, backlog, bytes"),
        ("millis,backlog,bytes\n1,2,x\n", "trace:2:1: expected numbers"),
        ("millis,backlog,bytes\n1,2,3\n\n0,2,3\n", "trace:4:1: time goes back, from 1 to 0"),
        ("millis,backlog,bytes\n1,-2,3\n", "trace:2:1: expected no negative numbers"),
        ("[3]", "trace:1:1: expected numbers"),
        ('[{"millis": 1, "backlog": 2, "bytes": 1e999}]', "trace:1:1: expected numbers"),
        ("millis,backlog,bytes,bytes_per_second\n1,2,3,nan\n", "trace:2:1: bytes_per_second is not a finite number"),
        ("[" * 100_000, "the trace is not JSON"),
        (f"millis,backlog,bytes\n1,2,{'3' * 200_000}\n", "the trace is not CSV: field larger than"),
    ],
)
def test_a_broken_trace_is_reported_with_its_line(tmp_path: Path, text: str, expected: str) -> None:
    """What was found and what was expected."""
    (tmp_path / "trace").write_text(text)
    with pytest.raises(AppError, match=expected):
        read_trace(str(tmp_path / "trace"))
    with pytest.raises(AppError, match="cannot be read"):
        read_trace(str(tmp_path / "none"))


def test_a_trace_without_end_is_refused() -> None:
    """Before it takes all memory."""
    with pytest.raises(AppError, match="/dev/zero: the trace is longer than 64 MiB"):
        read_trace("/dev/zero")


def test_the_published_table_comes_out_of_the_reader() -> None:
    """Backlogs of 0 to 20 blocks for 1 to 16 readers, as they are published."""
    trace = [BacklogStats(1000 * backlog, 0, backlog, 0) for backlog in range(21)]
    moments = simulate("reader", BlockReader(), trace)
    assert [moment.partitions for moment in moments] == [1, 1, 2, 2, *[4] * 4, *[8] * 8, *[16] * 5]
    changes = [moment.decision for moment in moments if moment.decision]
    assert [(change.before, change.after) for change in changes] == [(0, 1), (1, 2), (2, 4), (4, 8), (8, 16)]
    assert "backlog of 8 blocks, 1 to 16 readers: 4 to 8" in changes[3].reason


def test_a_followed_log_does_not_rescale_with_each_window() -> None:
    """Windows of one block and of two in turn need two readers, until ten seconds have passed without two blocks."""
    trace = [BacklogStats(500 * number, 0, 1 + number % 2, 0) for number in range(60)]
    quiet = [BacklogStats(30_000 + 500 * number, 0, 1, 0) for number in range(30)]
    changes = [moment for moment in simulate("reader", BlockReader(), [*trace, *quiet]) if moment.decision]
    assert [(moment.millis, moment.partitions) for moment in changes] == [(0, 1), (500, 2), (39_500, 1)]


def test_a_change_in_the_first_sample_is_seen() -> None:
    """The start is one moment, what the first sample calls for is another."""
    moments = simulate("s", DeadlinePartitioner(**{"target_millis": 1000}), [BacklogStats(5, 0, 1, 4000, 1000.0)])
    assert [(moment.millis, moment.partitions) for moment in moments] == [(5, 1), (5, 2)]


def test_the_drawing_shows_each_count_as_long_as_it_held() -> None:
    """Half of the time one partition, then four, then one again."""
    trace = [
        BacklogStats(0, 0, 1, 0),
        BacklogStats(32_000, 0, 4, 0),
        BacklogStats(48_000, 0, 1, 0),
        BacklogStats(64_000, 0, 0, 0),
    ]
    moments = simulate("reader", BlockReader(), trace)
    top, bottom, axis, times = chart(moments).splitlines()
    assert top == "     4 |" + " " * 32 + "█" * 17
    assert bottom == "     1 |" + "█" * WIDTH
    assert axis.count("-") == WIDTH and times.strip().startswith("0") and times.endswith("1:04")
    assert [when for when, _ in decisions(moments)] == ["0.0 s", "32.0 s", "48.0 s"]
