"""The picture for a terminal fits it, and its rails lead where the plan's arrows lead."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings

from dagflow.plan.load import load_app
from dagflow.plan.logical import LogicalPlan
from dagflow.plan.placement import place
from dagflow.plan.render.drawing import drawing_of
from dagflow.plan.render.explain import NODE, RAILS, WIDTH, Rails, explain
from tests.nightly import examples
from tests.plan.dags import Head, Work, plan_of
from tests.spec.apps import VALID
from tests.strategies import logical_plans


def test_the_text_names_stages_partitions_exchanges_and_estimate(tmp_path: Path) -> None:
    """Everything that the physical plan holds, in a few lines."""
    (tmp_path / "app.yaml").write_text(VALID)
    logical = load_app(tmp_path / "app.yaml")
    estimate = "all input: 1 file, 12 blocks"
    assert explain(logical, place(logical), partitions={"reader": "1 to 16"}, estimate=estimate) == (
        "app 'sample'\n"
        "\n"
        "     driver\n"
        "  ●    source (PieceInput)\n"
        "  ┆      pieces: pieces -> reader.pieces, SmallPiece, assigned by the driver\n"
        "  ┆\n"
        "  ┆  stage 0: 1 to 16 partitions\n"
        "  ●    reader (Reader)\n"
        "  │      records: records -> step.left\n"
        "  ●    step (Step, partition: parallel)\n"
        "  │      kept: output -> sink.input\n"
        "  ●    sink (Sink, partition: parallel)\n"
        "\n"
        "estimate\n"
        "  all input: 1 file, 12 blocks\n"
    )


def test_rails_part_join_and_cross() -> None:
    """Where arrows fan out and in, across one that passes."""
    arcs = [(0, 1), (1, 2), (1, 3), (2, 4), (3, 4), (1, 4)]
    logical = plan_of([Head, *[Work] * 4], [None, None, "parallel", "parallel", "parallel"], arcs)
    lines = explain(logical, place(logical)).splitlines()
    assert [line[2:9].rstrip() for line in lines if any(char in line for char in "├●")] == [
        "●",
        "●",
        "├─╮",
        "├─┼─╮",
        "│ ● │",
        "│ │ ●",
        "├─┼─╯",
        "├─╯",
        "●",
    ]


@settings(max_examples=examples(100))
@given(logical_plans())
def test_every_line_fits_a_terminal(logical: LogicalPlan) -> None:
    """Text is wrapped beside the rails."""
    assert max(map(len, explain(logical, place(logical)).splitlines())) <= WIDTH


def joined_by(lines: list[str], names: list[str]) -> Counter[tuple[str, str]]:
    """The operators that rails join, as one finds out who follows them with a finger.

    Args:
        lines: The left parts of lines.
        names: The operators, in the order of their nodes.
    """
    found: Counter[tuple[str, str]] = Counter()
    waiting = iter(names)
    owner: dict[int, str] = {}  # of the arrow that runs down a column
    started: dict[int, str] = {}  # the operator that last stood in a column, and may send arrows yet
    arriving: dict[int, list[str]] = {}  # what has joined the rail in a column
    for line in lines:
        for column, char in enumerate(line):
            if char == NODE:
                name = next(waiting)
                sources = arriving.pop(column, []) + ([owner.pop(column)] if column in owner else [])
                found.update((source, name) for source in sources)
                started[column] = name
            elif char in "╮╯":
                begin = column
                while line[begin] != "├":
                    assert line[begin] == char or line[begin] in "─┼"
                    begin -= 1
                if char == "╮":
                    assert column not in owner
                    owner[column] = started[begin]
                else:
                    arriving.setdefault(begin, []).append(owner.pop(column))
            elif char in RAILS.values() and column not in owner:
                owner[column] = started[column]
        ended = [column for column in owner if column >= len(line) or line[column] == " "]
        assert not ended, f"a rail ends nowhere: {line}"
    assert not owner and not arriving
    return found


@settings(max_examples=examples(200))
@given(logical_plans())
def test_rails_join_what_arrows_join(logical: LogicalPlan) -> None:
    """Each arrow of the plan is found again in the characters, and no other."""
    drawing = drawing_of(logical, place(logical), {}, "")
    rails = Rails(drawing.arrows)
    lines: list[str] = []
    names = [name for frame in drawing.frames for name in frame.operators]
    for name in names:
        lines += rails.node(name)
        lines += [line for _, line in rails.leaving(name)]
        lines.append(rails.passing())
    arrows = Counter((arrow.edge.source.operator, arrow.edge.target.operator) for arrow in drawing.arrows)
    assert joined_by(lines, names) == arrows


@pytest.mark.parametrize("count", [3, 40])
def test_many_rails_leave_room_for_text(count: int) -> None:
    """Lines are longer where that cannot be helped."""
    fan = [(1, index) for index in range(2, count + 2)]
    logical = plan_of([Head, *[Work] * (count + 1)], [None] * (count + 2), [(0, 1), *fan])
    lines = explain(logical, place(logical)).splitlines()
    assert max(map(len, lines)) <= max(WIDTH, 2 * count + 40)
    assert all(any(f"op{index} (Work)" in line for line in lines) for index in range(1, count + 2))
