"""Whether operators that keep state by key get all records of a key in one partition."""

from __future__ import annotations

from collections.abc import Mapping

from dagflow.api.keyed_state import KeyedOperator
from dagflow.api.partitioning import ByName
from dagflow.api.properties import property_model
from dagflow.spec.app_spec import AppSpec, KeyedPartition, OperatorSpec
from dagflow.spec.problems import Problems


def check_keyed(spec: AppSpec, heads: Mapping[str, str], problems: Problems) -> None:
    """Report operators whose state by key would be wrong where they are placed.

    Args:
        spec: The app.
        heads: The head of each partitioned operator's stage.
        problems: Takes the mistakes.
    """
    for name, head in heads.items():
        operator = spec.operators[name]
        if operator.operator_class is None or not issubclass(operator.operator_class, KeyedOperator):
            continue
        partition = spec.operators[head].partition
        if partition == 1:
            continue
        key = _key_of(operator)
        if not isinstance(partition, KeyedPartition):
            advice = f"give operator '{head}' partition: {{by: {key or '…'}}}, or partition: 1"
            problems.add(
                operator.partition_place,
                f"operator '{name}' keeps state by key, and records of one key reach several partitions\n    {advice}",
            )
        elif key is not None and isinstance(partition.codec, ByName) and partition.codec.name != key:
            problems.add(
                operator.partition_place,
                f"operator '{name}' keeps state by the key '{key}', and its partitions are by '{partition.codec}'",
            )


def _key_of(operator: OperatorSpec) -> str | None:
    """The column that the operator's property `key` names; None where it has no such property."""
    assert operator.operator_class is not None  # the caller has looked
    field = property_model(operator.operator_class).model_fields.get("key")
    return None if field is None else str(operator.properties.get("key", field.default))
