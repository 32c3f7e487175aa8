"""Pictures of any plan are as wide as a page, and nothing in them lies on anything else."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Iterator
from html import unescape
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagflow.plan.logical import LogicalPlan
from dagflow.plan.placement import place
from dagflow.plan.render.drawing import Drawing, drawing_of
from dagflow.plan.render.layout import Box, Layout, layout_of, spread, total
from dagflow.plan.render.svg import (
    CLASS,
    LABEL,
    MAX_WIDTH,
    NAME,
    SUBTITLE,
    parts_of,
    svg_lines,
    text_width,
    title_lines,
)
from dagflow.spec.app_spec import Partition
from tests.nightly import examples
from tests.plan.dags import Head, Work, plan_of
from tests.strategies import logical_plans


def svg(drawing: Drawing) -> str:
    return "\n".join(svg_lines(drawing))


ROOM = MAX_WIDTH - 48


def drawing(logical: LogicalPlan) -> Drawing:
    """The drawing of a plan, with a caption."""
    return drawing_of(logical, place(logical), {}, "all input: 3 files, 12 blocks, 21 KB")


def laid_out(picture: Drawing, room: float = ROOM) -> Layout:
    """The layout of a drawing's parts."""
    return layout_of(lambda is_downward: parts_of(picture, is_downward), room)


def apart(one: Box, other: Box) -> bool:
    """Whether two boxes have no point in common, but for rounding."""
    return (
        one.x + one.width <= other.x + 0.01
        or other.x + other.width <= one.x + 0.01
        or one.y + one.height <= other.y + 0.01
        or other.y + other.height <= one.y + 0.01
    )


def within(inner: Box, outer: Box) -> bool:
    """Whether a box lies in another one."""
    return (
        outer.x <= inner.x + 0.01
        and outer.y <= inner.y + 0.01
        and inner.x + inner.width <= outer.x + outer.width + 0.01
        and inner.y + inner.height <= outer.y + outer.height + 0.01
    )


def titles(picture: Drawing, layout: Layout) -> Iterator[Box]:
    """Where the titles of the frames are."""
    for lines, frame in zip(map(title_lines, picture.frames), layout.frames, strict=True):
        width = max(text_width(lines[0], 14, is_bold=True), *(text_width(line, SUBTITLE) for line in lines[1:]), 0)
        yield Box(frame.x + 20, frame.y + 7, width, 16.0 * len(lines))


def require_clear(picture: Drawing, layout: Layout) -> None:
    """Check that each part of a picture has its place for itself."""
    solid = [*layout.boxes.values(), *layout.labels, *titles(picture, layout)]
    assert all(apart(one, other) for one, other in itertools.combinations(solid, 2))
    assert all(apart(one, other) for one, other in itertools.combinations(layout.frames, 2))
    canvas = Box(0, 0, layout.width, layout.height)
    assert all(within(part, canvas) for part in [*solid, *layout.frames])
    for frame, box in zip(picture.frames, layout.frames, strict=True):
        own = [layout.boxes[name] for name in frame.operators]
        assert all(within(each, box) for each in own)
        others = [each for each in layout.boxes.values() if each not in own]
        assert all(apart(each, box) for each in others)
        # A label is in a frame or outside of it; its border crosses none.
        assert all(apart(label, box) or within(label, box) for label in layout.labels)
    for line in layout.lines:
        along = [y if layout.is_downward else x for x, y in line]
        assert along == sorted(along)
        assert all(-0.01 <= x <= layout.width + 0.01 and -0.01 <= y <= layout.height + 0.01 for x, y in line)


@settings(max_examples=examples(150))
@given(logical_plans())
def test_nothing_lies_on_anything_else(logical: LogicalPlan) -> None:
    """Boxes, labels, titles and frames are apart and on the canvas, which is as wide as a page."""
    picture = drawing(logical)
    layout = laid_out(picture)
    require_clear(picture, layout)
    assert layout.width <= ROOM


@settings(max_examples=examples(60))
@given(logical_plans(), st.floats(250, 700))
def test_a_narrow_picture_is_clear_too(logical: LogicalPlan, room: float) -> None:
    """Rows of operators, labels and frames are broken."""
    picture = drawing(logical)
    require_clear(picture, laid_out(picture, room))


@settings(max_examples=examples(60))
@given(logical_plans())
def test_arrows_pass_no_box_but_those_that_they_join(logical: LogicalPlan) -> None:
    """Where an arrow runs straight past a row, there is nothing of that row."""
    picture = drawing(logical)
    layout = laid_out(picture)
    for index, arrow in enumerate(picture.arrows):
        ends = {arrow.edge.source.operator, arrow.edge.target.operator}
        others = [box for name, box in layout.boxes.items() if name not in ends]
        others += [label for other, label in enumerate(layout.labels) if other != index]
        inner = layout.lines[index][1:-1]
        for (x, y), (next_x, next_y) in zip(inner[::2], inner[1::2], strict=True):
            line = Box(min(x, next_x), min(y, next_y), abs(next_x - x), abs(next_y - y))
            assert all(apart(line, box) for box in others)


def wide(count: int) -> LogicalPlan:
    """A reader, whose records go to many operators in its stage, which all give to one more."""
    partitions: list[Partition] = [None, None, *parallel(count), 1]
    fan_out = [(1, index) for index in range(2, count + 2)]
    fan_in = [(index, count + 2) for index in range(2, count + 2)]
    return plan_of([Head, *[Work] * (count + 2)], partitions, [(0, 1), *fan_out, *fan_in])


def parallel(count: int) -> list[Partition]:
    """Partitions of operators that stay in the tasks of those before them."""
    return ["parallel" for _ in range(count)]


@pytest.mark.parametrize("count", [2, 8, 12, 30])
def test_a_wide_plan_is_broken_into_rows(count: int) -> None:
    """However many operators stand side by side."""
    picture = drawing(wide(count))
    layout = laid_out(picture)
    require_clear(picture, layout)
    assert layout.width <= ROOM


def test_a_long_plan_runs_downward_and_a_short_one_to_the_right() -> None:
    """A picture is no wider than a page, and no taller than it must be."""
    short = plan_of([Head, Work, Work], [None, None, "parallel"], [(0, 1), (1, 2)])
    long = plan_of([Head, *[Work] * 12], [None] * 13, [(index, index + 1) for index in range(12)])
    assert not laid_out(drawing(short)).is_downward
    assert laid_out(drawing(long)).is_downward


def test_a_picture_of_a_hundred_operators_is_drawn_in_seconds() -> None:
    """Modules make such plans."""
    arcs = [(index // 2, index) for index in range(1, 100)]
    partitions = [partition for _ in range(33) for partition in (None, *parallel(2))]
    picture = drawing(plan_of([Head, *[Work] * 99], [None, *partitions], arcs))
    start = time.process_time()
    layout = laid_out(picture)
    assert time.process_time() - start < 10
    require_clear(picture, layout)


@settings(max_examples=examples(40))
@given(st.text(st.characters(min_codepoint=33, max_codepoint=0x2FA1D), min_size=1, max_size=120))
def test_no_text_is_wider_than_its_box(name: str) -> None:
    """Names of any length and any script; what is clipped is whole where a pointer rests on it."""
    picture = drawing(plan_of([Head, Work], [None, None], [(0, 1)]))
    long = Drawing(name, dict.fromkeys(picture.classes, name), picture.frames, picture.arrows, name)
    layout = laid_out(long)
    require_clear(long, layout)
    text = svg(long)
    shown = {unescape(each) for each in re.findall(r'<text class="class"[^>]*>([^<]*)</text>', text)}
    assert all(text_width(each, CLASS) <= box.width for each in shown for box in layout.boxes.values())
    width = re.search(r'width="(\d+)"', text)
    assert width and int(width[1]) <= MAX_WIDTH
    if name not in shown:
        whole = {unescape(each) for each in re.findall("<title>([^<]*)</title>", text)}
        assert {f"op0: {name}", f"op1: {name}"} <= whole


def test_the_picture_says_what_its_lines_and_frames_mean() -> None:
    """In a legend, of those alone that it has; and it is dark for readers who prefer that."""
    fused = svg(drawing(plan_of([Head, Work], [None, None], [(0, 1)])))
    assert "assigned by the driver" in fused and "shuffled between tasks" not in fused
    shuffled = svg(drawing(plan_of([Head, Work, Work], [None, None, None], [(0, 1), (1, 2)])))
    assert "shuffled between tasks" in shuffled and "reported to the driver" not in shuffled
    assert "@media (prefers-color-scheme: dark)" in fused


def test_the_style_of_a_picture_touches_nothing_else_on_a_page() -> None:
    """A notebook shows it within its own page."""
    text = svg(drawing(plan_of([Head, Work], [None, None], [(0, 1)])))
    style = text.partition("<style>")[2].partition("</style>")[0]
    rules = [rule.partition("{")[0] for rule in style.splitlines() if "{" in rule and "@" not in rule]
    selectors = [selector for rule in rules for selector in rule.split(",")]
    assert len(selectors) > 20
    assert all(selector.strip().startswith(".dagflow-plan ") for selector in selectors)


def test_labels_and_names_are_as_large_as_the_layout_takes_them_for() -> None:
    """The sizes of text are said once for the layout, and once in the style sheet."""
    text = svg(drawing(plan_of([Head, Work], [None, None], [(0, 1)])))
    for kind, size in {"name": NAME, "class": CLASS, "label": LABEL, "subtitle": SUBTITLE}.items():
        assert f".dagflow-plan .{kind} {{ font-size: {size:g}px" in text


INTERVALS = st.lists(
    st.tuples(st.floats(-500, 1500), st.floats(1, 200), st.floats(0, 30)), min_size=1, max_size=12
).map(lambda found: tuple(map(list, zip(*found, strict=True))))


@given(INTERVALS, st.floats(0, 500))
def test_intervals_are_apart_and_within_bounds(intervals: tuple[list[float], ...], more: float) -> None:
    """Whatever they want, if there is room."""
    wanted, sizes, gaps = intervals
    end = total(sizes, gaps) + more
    middles = spread(wanted, sizes, gaps, 0.0, end)
    spans = [(middle - size / 2, middle + size / 2) for middle, size in zip(middles, sizes, strict=True)]
    assert spans[0][0] >= -1e-6 and spans[-1][1] <= end + 1e-6
    for (one, other), (gap, next_gap) in zip(pairwise(spans), pairwise(gaps), strict=True):
        assert other[0] - one[1] >= (gap + next_gap) / 2 - 1e-6


def test_what_has_room_gets_what_it_wants() -> None:
    """Nothing is moved without need."""
    assert spread([10, 50, 90], [10, 10, 10], [4, 4, 4], 0, 100) == [10, 50, 90]


def test_neighbours_that_want_the_same_place_share_the_way() -> None:
    """Both are moved as far."""
    assert spread([50, 50], [10, 10], [2, 2], 0, 100) == pytest.approx([44, 56])
