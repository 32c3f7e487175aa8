"""Hypothesis strategies of the property tests."""

from __future__ import annotations

from hypothesis import strategies as st

from dagflow.plan.logical import LogicalPlan
from dagflow.spec.app_spec import KeyedPartition, Partition
from tests.engine.dags import DagStep, RandomDag
from tests.execution.sample_operators import FirstByte
from tests.plan.dags import Control, Head, Work, plan_of


@st.composite
def logical_plans(draw: st.DrawFn) -> LogicalPlan:
    """Draw any DAG of input, control and partitioned operators; several edges may join the same two.

    Operators that cannot be fused are not parallel, as the check of the wiring requires.
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
    refused = plan_of(classes, wanted, arcs).fusion().refused
    partitions = [None if f"op{index}" in refused else partition for index, partition in enumerate(wanted)]
    order = draw(st.permutations(range(len(classes))))
    place = {old: new for new, old in enumerate(order)}
    return plan_of(
        [classes[old] for old in order],
        [partitions[old] for old in order],
        [(place[source], place[target]) for source, target in arcs],
    )


@st.composite
def running_dags(draw: st.DrawFn) -> RandomDag:
    """Draw any DAG that runs, with unions, fan-out and diamonds; fused, round robin, by key and broadcast."""
    words = st.lists(st.sampled_from([b"a", b"bb", b"#c", b"dd", b"e"]), max_size=4).map(b" ".join)
    texts = draw(st.lists(st.lists(words, min_size=1, max_size=5).map(tuple), min_size=1, max_size=2))
    counts = st.none() | st.integers(1, 3)
    steps: list[DagStep] = []
    heads: list[int] = []  # of the stage of each step
    for index in range(draw(st.integers(1, 2))):
        sources = draw(st.sets(st.integers(0, len(texts) - 1), min_size=1))
        steps.append(DagStep("lines", draw(counts), tuple(sorted(sources))))
        heads.append(index)
    for kind in [*draw(st.lists(st.sampled_from(["suffix", "drop", "repeat", "write"]), max_size=6)), "write"]:
        emitting = [index for index, step in enumerate(steps) if step.kind != "write"]
        sources = draw(st.sets(st.sampled_from(emitting), min_size=1, max_size=3))
        can_fuse = len({heads[source] for source in sources}) == 1
        if can_fuse and draw(st.booleans()):
            steps.append(DagStep(kind, "parallel", tuple(sorted(sources))))
            heads.append(heads[min(sources)])
            continue
        count = draw(counts)
        partition: Partition = KeyedPartition(FirstByte(), count) if draw(st.booleans()) else count
        broadcast = draw(st.sets(st.sampled_from(sorted(sources)), max_size=1)) if draw(st.booleans()) else set()
        steps.append(DagStep(kind, partition, tuple(sorted(sources)), frozenset(broadcast)))
        heads.append(len(steps) - 1)
    return RandomDag(tuple(texts), draw(st.integers(1, 3)), tuple(steps))
