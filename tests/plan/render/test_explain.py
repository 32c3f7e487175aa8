"""What is shown is the very plan that would run, in every format."""

from __future__ import annotations

import itertools
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagflow.plan.load import load_app
from dagflow.plan.logical import LogicalPlan
from dagflow.plan.placement import place
from dagflow.plan.render.drawing import drawing_of
from dagflow.plan.render.explain import FORMATS, Format, explain
from dagflow.plan.render.layered_layout import Box, LayeredLayout
from tests.plan.dags import Head, Work, plan_of
from tests.spec.apps import VALID
from tests.strategies import logical_plans


def test_the_text_names_stages_partitions_exchanges_and_estimate(tmp_path: Path) -> None:
    """Everything that the physical plan holds, in a few lines."""
    (tmp_path / "app.yaml").write_text(VALID)
    logical = load_app(tmp_path / "app.yaml")
    estimate = "all input: 1 file, 12 blocks"
    text = explain(logical, place(logical), partitions={"reader": "1 to 16"}, estimate=estimate)
    assert "  step (Step, partition: parallel)\n    output -> sink.input    kept: records\n" in text
    assert "  driver: source\n" in text
    assert "  stage 0 (level 0), 1 to 16 partitions: reader, step, sink\n" in text
    assert "    takes in  pieces: source.pieces -> reader.pieces, assigned by the driver\n" in text
    assert "    inside    kept: step.output -> sink.input\n" in text
    assert text.endswith("estimate\n  all input: 1 file, 12 blocks\n")


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_shows_a_fixed_and_an_open_number_of_partitions(format: Format) -> None:
    """Without counts a stage is said to decide for itself; without an estimate there is none."""
    logical = plan_of([Head, Work, Work], [None, None, 1], [(0, 1), (1, 2)])
    text = explain(logical, place(logical), format=format).replace("&#x27;", "'")
    assert "partitions decided by 'op1'" in text and "1 partition, fixed" in text
    assert "shuffle, round robin" in text and "assigned by the driver" in text


@settings(max_examples=60)
@given(logical_plans(), st.sampled_from(FORMATS[1:]))
def test_every_drawing_shows_every_operator_and_every_stream(logical: LogicalPlan, format: Format) -> None:
    """Nothing is left out, whatever the DAG."""
    text = explain(logical, place(logical), format=format)
    for name in logical.operators:
        assert re.search(rf"\b{name}\b", text)
    for edge in logical.edges:
        assert re.search(rf"\b{edge.stream}\b", text)
    if format == "svg":
        ElementTree.fromstring(text)


def _apart(one: Box, other: Box) -> bool:
    return (
        one.x + one.width <= other.x
        or other.x + other.width <= one.x
        or one.y + one.height <= other.y
        or other.y + other.height <= one.y
    )


def _within(inner: Box, outer: Box) -> bool:
    right, bottom = inner.x + inner.width, inner.y + inner.height
    return (
        outer.x <= inner.x
        and outer.y <= inner.y
        and right <= outer.x + outer.width
        and bottom <= outer.y + outer.height
    )


@settings(max_examples=100)
@given(logical_plans())
def test_no_box_and_no_frame_lies_on_another(logical: LogicalPlan) -> None:
    """Boxes are apart and inside of their frames, frames are apart, and arrows run from left to right."""
    picture = drawing_of(logical, place(logical), {}, "")
    layout = LayeredLayout(picture, 11.5).compute()
    assert all(_apart(one, other) for one, other in itertools.combinations(layout.boxes.values(), 2))
    assert all(_apart(one, other) for one, other in itertools.combinations(layout.frames, 2))
    for frame, box in zip(picture.frames, layout.frames, strict=True):
        assert all(_within(layout.boxes[name], box) for name in frame.operators)
        assert box.x >= 0 and box.y >= 0 and box.x + box.width <= layout.width and box.y + box.height <= layout.height
    for route in layout.routes:
        xs = [x for x, _ in route.points]
        assert xs == sorted(xs)


def test_names_cannot_break_out_of_a_drawing() -> None:
    """What means something to a language of drawings is written as text."""
    logical = plan_of([Head, Work], [None, None], [(0, 1)])
    counts = {"op1": 'a"b<c>&\\'}
    for format in FORMATS[1:]:
        text = explain(logical, place(logical), format=format, partitions=counts)
        assert 'a"b<c>' not in text
    ElementTree.fromstring(explain(logical, place(logical), format="svg", partitions=counts))
