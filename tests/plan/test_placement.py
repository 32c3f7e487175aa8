"""Every operator runs in one place, and every edge is kept."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings

from dagflow.plan.logical import LogicalPlan
from dagflow.plan.physical import Edge
from dagflow.plan.placement import place
from tests.nightly import examples
from tests.plan.dags import Control, Head, Work, plan_of
from tests.strategies import logical_plans


@settings(max_examples=examples(200))
@given(logical_plans())
def test_each_edge_is_in_exactly_one_place(logical: LogicalPlan) -> None:
    """Between control operators, inside a stage, into a stage, or a report: one of them, once."""
    physical = place(logical)
    found: list[Edge] = list(physical.control_edges)
    for stage in physical.stages:
        found += [*stage.edges, *(exchange.edge for exchange in stage.inputs), *stage.reports]
    assert Counter(found) == Counter(logical.edges)
    exchanged = [
        exchange.edge for stage in physical.stages for exchange in stage.inputs if exchange.routing == "round_robin"
    ]
    assert Counter(exchanged) == Counter(edge for stage in physical.stages for edge in stage.outputs)


@settings(max_examples=examples(200))
@given(logical_plans())
def test_each_operator_runs_in_exactly_one_place_upstream_first(logical: LogicalPlan) -> None:
    """Control operators in the driver, the others in one stage each; no edge leads backwards."""
    physical = place(logical)
    runs = [*physical.control, *(name for stage in physical.stages for name in stage.operators)]
    assert sorted(runs) == sorted(logical.operators)
    assert set(physical.control) == {name for name, node in logical.operators.items() if node.is_control}
    for order, edges in [
        (physical.control, physical.control_edges),
        *((stage.operators, stage.edges) for stage in physical.stages),
    ]:
        assert all(order.index(edge.source.operator) < order.index(edge.target.operator) for edge in edges)


@settings(max_examples=examples(200))
@given(logical_plans())
def test_levels_ascend_along_every_exchange(logical: LogicalPlan) -> None:
    """A stage stands exactly one level above the highest that it takes in; stages are numbered by level."""
    physical = place(logical)
    assert [stage.index for stage in physical.stages] == list(range(len(physical.stages)))
    assert [stage.level for stage in physical.stages] == sorted(stage.level for stage in physical.stages)
    for stage in physical.stages:
        sources = [
            physical.stage_of(exchange.edge.source.operator).level
            for exchange in stage.inputs
            if exchange.routing == "round_robin"
        ]
        assert stage.level == max(sources, default=-1) + 1
        assert all(exchange.edge.target.operator == stage.head for exchange in stage.inputs)


@settings(max_examples=examples(200))
@given(logical_plans())
def test_what_is_parallel_runs_with_its_upstream(logical: LogicalPlan) -> None:
    """Whatever stands behind the head of a stage is parallel, and takes in from that stage alone."""
    physical = place(logical)
    for stage in physical.stages:
        partition = logical.operators[stage.head].partition
        assert partition != "parallel" and stage.fixed_partitions == partition
        for name in stage.operators[1:]:
            assert logical.operators[name].partition == "parallel"
            sources = {edge.source.operator for edge in logical.edges if edge.target.operator == name}
            assert sources and sources <= set(stage.operators)


def test_a_chain_of_parallel_operators_is_one_stage() -> None:
    """The example of the README: one stage, assigned by the driver, nothing shuffled."""
    arcs = [(0, 1), (1, 2), (2, 3)]
    physical = place(plan_of([Head, Work, Work, Work], [None, None, "parallel", "parallel"], arcs))
    (stage,) = physical.stages
    assert stage.operators == ("op1", "op2", "op3") and [e.routing for e in stage.inputs] == ["assigned"]
    assert (physical.control, stage.outputs, stage.reports) == (("op0",), (), ())


def test_a_diamond_of_stages_has_three_levels() -> None:
    """Stages of one level stand side by side; a report goes to the driver."""
    arcs = [(0, 1), (1, 2), (1, 3), (2, 4), (3, 4), (4, 5)]
    physical = place(plan_of([Head, Work, Work, Work, Work, Control], [None, None, 2, None, None, None], arcs))
    assert [(stage.level, stage.operators) for stage in physical.stages] == [
        (0, ("op1",)),
        (1, ("op2",)),
        (1, ("op3",)),
        (2, ("op4",)),
    ]
    assert physical.partitions_by_level({"op1": 4, "op2": 2, "op3": 5, "op4": 1}) == [4, 7, 1]
    assert [edge.target.operator for edge in physical.stages[3].reports] == ["op5"]
