"""The grammar of the suite's property tests."""

from __future__ import annotations

from hypothesis import strategies as st

from dagflow.plan.fusing import fuse, in_topological_order
from dagflow.plan.logical import LogicalPlan
from dagflow.spec.app import Partition
from tests.plan.dags import Control, Head, Work, plan_of


@st.composite
def logical_plans(draw: st.DrawFn) -> LogicalPlan:
    """Any DAG of input, control and partitioned operators; several edges may join the same two.

    Operators that cannot be fused are not parallel, as a check of the wiring would have it.
    """
    count = draw(st.integers(1, 9))
    classes = [
        Head,
        *draw(st.lists(st.sampled_from([Head, Control, Work, Work, Work]), min_size=count, max_size=count)),
    ]
    targets = [index for index, cls in enumerate(classes) if cls is not Head]
    pairs = [(source, target) for target in targets for source in range(target)]
    arcs = draw(st.lists(st.sampled_from(pairs), max_size=14)) if pairs else []
    wanted: list[Partition] = [
        draw(st.sampled_from(["parallel", "parallel", 3, None])) if cls is Work else None for cls in classes
    ]
    names = [f"op{index}" for index in range(len(classes))]
    upstream: dict[str, set[str]] = {name: set() for name in names}
    for source, target in arcs:
        upstream[names[target]].add(names[source])
    control = {name for name, cls in zip(names, classes, strict=True) if cls is not Work}
    parallel = {name for name, partition in zip(names, wanted, strict=True) if partition == "parallel"}
    ordered = in_topological_order(names, [(names[source], names[target]) for source, target in arcs])
    refused = fuse(ordered, upstream, control, parallel)[1]
    partitions = [None if name in refused else partition for name, partition in zip(names, wanted, strict=True)]
    order = draw(st.permutations(range(len(classes))))
    place = {old: new for new, old in enumerate(order)}
    return plan_of(
        [classes[old] for old in order],
        [partitions[old] for old in order],
        [(place[source], place[target]) for source, target in arcs],
    )
