"""Which partitioned operators share a stage: the rule of `partition: parallel`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence


def in_topological_order(names: Sequence[str], arcs: Iterable[tuple[str, str]]) -> list[str]:
    """The operators upstream first; of those that are free to go next, the first of the file.

    Operators on a cycle, and what comes after them, are left out.
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


def fuse(
    ordered: Iterable[str],
    upstream: Mapping[str, Collection[str]],
    control: Collection[str],
    parallel: Collection[str],
) -> tuple[dict[str, str], dict[str, str]]:
    """Give each partitioned operator the stage that it runs in.

    Args:
        ordered: Names, upstream first.
        upstream: For each operator those that it takes in from.
        control: The operators that run in the driver.
        parallel: The operators that shall live in the partitions of their upstream.

    Returns:
        For each partitioned operator the head of its stage; and for each parallel operator that cannot be
        fused the reason. Such an operator heads a stage of its own.
    """
    heads: dict[str, str] = {}
    refused: dict[str, str] = {}
    for name in ordered:
        if name in control:
            continue
        heads[name] = name
        if name not in parallel:
            continue
        sources = sorted(upstream.get(name, ()))
        from_driver = [source for source in sources if source in control]
        stages = {heads[source] for source in sources if source in heads}
        if not stages:
            refused[name] = "needs an upstream operator that has partitions, and has none"
        elif from_driver:
            refused[name] = f"takes in from the driver as well, from '{from_driver[0]}'; it cannot live in two places"
        elif len(stages) > 1:
            words = " and ".join(f"'{head}'" for head in sorted(stages))
            refused[name] = f"takes in from different stages, those of {words}; leave partition out to exchange records"
        else:
            heads[name] = stages.pop()
    return heads, refused
