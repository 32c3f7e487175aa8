"""Which partitioned operators share a stage: the rule of `partition: parallel`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from dagflow.errors import own_name
from dagflow.plan.physical import Edge


def in_topological_order(names: Sequence[str], arcs: Iterable[tuple[str, str]]) -> list[str]:
    """The operators upstream first; among those that may go next, the first of the file.

    Operators on a cycle, and all after them, are left out.
    """
    downstream: dict[str, list[str]] = {name: [] for name in names}
    missing = dict.fromkeys(names, 0)
    for source, target in arcs:
        downstream[source].append(target)
        missing[target] += 1
    ordered: list[str] = []
    waiting = {name: None for name in names if not missing[name]}
    while waiting:
        name = next(iter(waiting))
        del waiting[name]
        ordered.append(name)
        for target in downstream[name]:
            missing[target] -= 1
            if not missing[target]:
                waiting[target] = None
    return ordered


@dataclass(frozen=True, slots=True)
class Fusion:
    """Which operators share a stage.

    Attributes:
        ordered: All operators, upstream first; without operators on a cycle, and all after them.
        refused: The reason for each parallel operator that cannot be fused. It heads a stage of its own.
    """

    ordered: list[str]
    heads: dict[str, str]
    refused: dict[str, str]


def fuse(names: Sequence[str], edges: Iterable[Edge], control: Collection[str], parallel: Collection[str]) -> Fusion:
    arcs = [(edge.source.operator, edge.target.operator) for edge in edges]
    upstream: dict[str, set[str]] = {name: set() for name in names}
    for source, target in arcs:
        upstream[target].add(source)
    fusion = Fusion(in_topological_order(names, arcs), {}, {})
    for name in fusion.ordered:
        if name in control:
            continue
        head, reason = _head_of(sorted(upstream[name]), fusion.heads, control) if name in parallel else (name, "")
        fusion.heads[name] = head or name
        if reason:
            fusion.refused[name] = reason
    return fusion


def _head_of(sources: Sequence[str], heads: Mapping[str, str], control: Collection[str]) -> tuple[str, str]:
    """The stage that a parallel operator joins; or "", and why it cannot join one."""
    from_driver = [source for source in sources if source in control]
    stages = sorted({heads[source] for source in sources if source in heads})
    if not stages:
        return "", "needs an upstream operator that has partitions, and has none"
    if from_driver:
        return "", f"takes in from the driver as well, from '{own_name(from_driver[0])}'; it cannot run in two places"
    if len(stages) > 1:
        words = " and ".join(f"'{own_name(head)}'" for head in stages)
        return "", f"takes in from different stages, those of {words}; leave partition out to exchange records"
    return stages[0], ""
