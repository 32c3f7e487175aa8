"""Checks the partitions of an app's operators: their number, who decides it, and which keys they keep together."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence

from dagflow.api.control import ControlOperator
from dagflow.api.keyed_state import KeyedOperator
from dagflow.api.partitioning import ByName
from dagflow.plan.fusing import fuse
from dagflow.plan.physical import Edge
from dagflow.spec.app_spec import AppSpec, KeyedPartition, OperatorSpec
from dagflow.spec.problems import Problems
from dagflow.suggestions import did_you_mean


def check_partitions(spec: AppSpec, edges: Sequence[Edge], doubtful: Collection[str], problems: Problems) -> None:
    """Report partitions, partitioners and keys that do not fit their operators.

    Args:
        spec: The app as far as it was understood.
        edges: Its edges.
        doubtful: Operators whose inputs are not known, because a stream to them is broken.
        problems: Takes the mistakes.
    """
    control: set[str] = set()
    parallel: set[str] = set()
    for operator in spec.operators.values():
        cls = operator.operator_class
        if cls is not None and issubclass(cls, ControlOperator):
            control.add(operator.name)
            if operator.partition is not None:
                who = f"operator '{operator.name}' ({cls.__name__})"
                problems.add(operator.partition_place, f"{who} runs in the driver, once; it takes no partition")
        elif operator.partition == "parallel":
            parallel.add(operator.name)
        _check_partitioner(operator, problems)
    fusion = fuse(list(spec.operators), edges, control, parallel)
    fed = {edge.target.operator for edge in edges}
    for name, reason in fusion.refused.items():
        # An operator without any upstream was already reported as unreachable.
        if name in fed and name not in doubtful:
            operator = spec.operators[name]
            problems.add(operator.partition_place, f"partition: parallel of operator '{name}' {reason}")
    shared = {edge.target.operator for edge in edges if not edge.is_broadcast}
    _check_keyed_state(spec, fusion.heads, fed - shared - set(doubtful), problems)
    for edge in edges:
        _check_key(spec, edge, problems)


def _check_partitioner(operator: OperatorSpec, problems: Problems) -> None:
    """Report a policy that cannot decide the number of partitions, because the app or the upstream does."""
    policy, partition, cls = operator.partitioner, operator.partition, operator.operator_class
    if policy is None:
        return
    who = f"operator '{operator.name}'"
    if cls is not None and issubclass(cls, ControlOperator):
        problems.add(policy.place, f"{who} runs in the driver, once; it takes no partitioner")
    elif partition == "parallel":
        why = f"{who} runs where its upstream does; name the partitioner at the operator that begins the stage"
        problems.add(policy.place, why)
    elif partition is not None and (not isinstance(partition, KeyedPartition) or partition.count is not None):
        problems.add(policy.place, f"{who} has a fixed number of partitions and a partitioner; give one")


def _check_key(spec: AppSpec, edge: Edge, problems: Problems) -> None:
    """Report a key that is no attribute of the tuples."""
    operator = spec.operators[edge.target.operator]
    cls, partition = operator.operator_class, operator.partition
    if cls is None or edge.is_broadcast or not isinstance(partition, KeyedPartition):
        return
    source = spec.operators[edge.source.operator].operator_class
    kind = source.output_ports[edge.source.port].type if source is not None else None
    if kind is None or not isinstance(partition.codec, ByName) or not dataclasses.is_dataclass(kind):
        return
    name, names = partition.codec.name, [item.name for item in dataclasses.fields(kind)]
    if name not in names and not hasattr(kind, name):
        message = f"stream '{edge.stream}' carries {kind.__name__}, which has no '{name}' to partition by"
        hint = did_you_mean(name, names)
        problems.add(operator.partition_place, f"operator '{operator.name}': {message}{hint}")


def _check_keyed_state(
    spec: AppSpec, heads: Mapping[str, str], broadcast_only: Collection[str], problems: Problems
) -> None:
    """Report operators whose state by key would be wrong where they are placed.

    Args:
        spec: The app.
        heads: The head of each partitioned operator's stage.
        broadcast_only: Operators that only broadcasts reach.
        problems: Takes the mistakes.
    """
    for name, head in heads.items():
        operator = spec.operators[name]
        if operator.operator_class is None or not issubclass(operator.operator_class, KeyedOperator):
            continue
        partition = spec.operators[head].partition
        if partition == 1:
            continue
        key = operator.key_column
        if not isinstance(partition, KeyedPartition):
            # Not the head of its stage, which may take in other records than those with the key.
            advice = f"give operator '{name}' partition: {{by: {key or '…'}}}, or partition: 1"
            problems.add(
                operator.partition_place,
                f"operator '{name}' keeps state by key, and records of one key reach several partitions\n    {advice}",
            )
        elif key is not None and isinstance(partition.codec, ByName) and partition.codec.name != key:
            problems.add(
                operator.partition_place,
                f"operator '{name}' keeps state by the key '{key}', and its partitions are by '{partition.codec}'",
            )
        elif head in broadcast_only and partition.count != 1:
            problems.add(
                operator.partition_place,
                f"operator '{name}' keeps state by key, and broadcasts bring the records of a key to all partitions\n"
                f"    let a stream to operator '{head}' be no broadcast, or give it partition: 1",
            )
