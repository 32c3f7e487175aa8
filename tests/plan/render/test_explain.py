"""What is shown is the very plan that would run, in every format."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagflow.plan.logical import LogicalPlan
from dagflow.plan.placement import place
from dagflow.plan.render.explain import FORMATS, Format, explain
from tests.nightly import examples
from tests.plan.dags import Head, Work, plan_of
from tests.strategies import logical_plans


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_shows_a_fixed_and_an_open_number_of_partitions(format: Format) -> None:
    """Without counts a stage is said to decide for itself; without an estimate there is none."""
    logical = plan_of([Head, Work, Work], [None, None, 1], [(0, 1), (1, 2)])
    text = explain(logical, place(logical), format=format).replace("&#x27;", "'")
    text = re.sub(r"</text>\n<text[^>]*>", " ", text)
    assert "partitions decided by 'op1'" in text and "1 partition, fixed" in text
    assert "round robin" in text and "assigned by the driver" in text


@settings(max_examples=examples(60))
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


def test_names_cannot_break_out_of_a_drawing() -> None:
    """What means something to a language of drawings is written as text."""
    logical = plan_of([Head, Work], [None, None], [(0, 1)])
    counts = {"op1": 'a"b<c>&\\'}
    for format in FORMATS[1:]:
        text = explain(logical, place(logical), format=format, partitions=counts)
        assert 'a"b<c>' not in text
    ElementTree.fromstring(explain(logical, place(logical), format="svg", partitions=counts))
