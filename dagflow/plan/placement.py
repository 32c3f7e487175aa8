"""Decides where each operator of a logical plan runs, what is exchanged, and what the journal keeps of the app."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel

from dagflow.api.capabilities import SelectsRows, SkipsRows, WantedRows
from dagflow.api.operator import Operator
from dagflow.api.properties import Limit, Tuning, marked, property_model
from dagflow.frozen import frozen
from dagflow.journal.saved_state import CHECKSUM_MARK, AppFacts, OperatorFacts
from dagflow.plan.logical import LogicalPlan, OperatorNode, fixed_count, own_heads
from dagflow.plan.physical import Edge, Exchange, PhysicalPlan, Stage
from dagflow.secret_names import HIDDEN, SHORTEST_SECRET, is_secret_flag, is_secret_option
from dagflow.spec.app_spec import Attributes, KeyedPartition, Partition
from dagflow.spec.shown_text import shown_value
from dagflow.storage.context import StorageContext


def place(logical: LogicalPlan) -> PhysicalPlan:
    """The physical plan of an app.

    Control operators run in the driver. A partitioned operator with `partition: parallel` runs in the stage that all
    its inputs come from; every other one heads a stage of its own. The driver assigns what a control operator emits to
    a stage. What one stage emits to another goes through a shuffle: by key where the receiver is partitioned by key, to
    all partitions where the stream is a broadcast, otherwise round robin.
    """
    placement = _Placement(logical)
    levels = placement.levels()
    heads = sorted(levels, key=lambda head: (levels[head], placement.ordered.index(head)))
    return PhysicalPlan(
        control=tuple(name for name in placement.ordered if name not in placement.heads),
        control_edges=placement.between(None, None),
        stages=tuple(placement.stage(index, head, levels[head]) for index, head in enumerate(heads)),
    )


class _Placement:
    def __init__(self, logical: LogicalPlan) -> None:
        self._edges = logical.edges
        self._operators = logical.operators
        fusion = logical.fusion()
        self.ordered: Sequence[str] = fusion.ordered
        self.heads: Mapping[str, str] = fusion.heads

    def between(self, source: str | None, target: str | None) -> tuple[Edge, ...]:
        """The edges between two stages, given by their heads, or None for the driver."""
        return tuple(edge for edge in self._edges if self._ends(edge) == (source, target))

    def _ends(self, edge: Edge) -> tuple[str | None, str | None]:
        return self.heads.get(edge.source.operator), self.heads.get(edge.target.operator)

    def levels(self) -> dict[str, int]:
        levels: dict[str, int] = {}
        for name in self.ordered:
            if self.heads.get(name) != name:
                continue
            # Only a head takes in from outside of its stage, so its inputs alone decide.
            sources = [source for source, target in map(self._ends, self._edges) if target == name and source != name]
            levels[name] = max((levels[source] + 1 for source in sources if source is not None), default=0)
        return levels

    def stage(self, index: int, head: str, level: int) -> Stage:
        ends = [(edge, *self._ends(edge)) for edge in self._edges]
        partition = self._operators[head].partition
        return Stage(
            index=index,
            level=level,
            operators=tuple(name for name in self.ordered if self.heads.get(name) == head),
            edges=self.between(head, head),
            inputs=tuple(
                _exchange(edge, partition, is_assigned=source is None)
                for edge, source, target in ends
                if target == head and source != head
            ),
            outputs=tuple(
                edge for edge, source, target in ends if source == head and target is not None and target != head
            ),
            reports=self.between(head, None),
            fixed_partitions=fixed_count(partition),
        )


def _exchange(edge: Edge, partition: Partition, *, is_assigned: bool) -> Exchange:
    if edge.is_broadcast:
        return Exchange(edge, "assigned_to_all" if is_assigned else "to_all")
    if isinstance(partition, KeyedPartition):
        return Exchange(edge, "assigned_by_key" if is_assigned else "by_key", partition.codec)
    return Exchange(edge, "assigned" if is_assigned else "round_robin")


@frozen
class PlacedApp:
    """An app with its physical plan, in which each operator has its stage.

    Attributes:
        deciders: What decides about the partitions of a stage, by its head: the policy that the app names, otherwise
            the operator itself.
        composites: The app's composite operators; their parts are among the operators.
    """

    name: str
    plan: PhysicalPlan
    operators: Mapping[str, Operator]
    deciders: Mapping[str, object]
    attributes: Attributes
    storage: StorageContext
    facts: AppFacts
    composites: Mapping[str, Operator]

    @classmethod
    def of(cls, app: LogicalPlan, storage: StorageContext) -> PlacedApp:
        push_down(app)
        nodes = app.operators.items()
        return cls(
            app.name,
            place(app),
            app.instances,
            {name: node.partitioner or node.operator for name, node in nodes},
            app.attributes,
            storage,
            describe(app),
            {name: node.operator for name, node in app.composites.items()},
        )


def push_down(app: LogicalPlan) -> None:
    """Tell each operator that can skip records what the only operator that gets them does with them."""
    for name, operator in app.instances.items():
        if isinstance(operator, SkipsRows):
            edges = [
                edge for edge in app.edges if edge.source.operator == name and edge.source.port == operator.rows_port
            ]
            target = app.instances[edges[0].target.operator] if len(edges) == 1 else None
            operator.wanted = target.wanted_rows() if isinstance(target, SelectsRows) else WantedRows()


def describe(app: LogicalPlan) -> AppFacts:
    secrets = _secrets_of(app)
    return AppFacts(
        {name: _operator_facts(app, node, secrets) for name, node in app.operators.items()},
        sorted(f"{edge.source} -> {edge.target}" + (" (to all)" * edge.is_broadcast) for edge in app.edges),
        _code_of(app),
        {name: _operator_facts(app, node, secrets) for name, node in app.composites.items()},
        {str(part): str(own) for part, own in app.own_ports.items()},
        own_heads(app),
    )


def without_limits(value: Any, annotation: Any) -> Any:
    """The value of a property, or of all, without the properties in it that are limits."""
    if not isinstance(value, Mapping):
        return value
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        fields = annotation.model_fields
        kept = [key for key in value if key not in marked(annotation, Limit)]
        return {key: without_limits(value[key], fields[key].annotation if key in fields else None) for key in kept}
    parts = get_args(annotation)
    if get_origin(annotation) is dict:
        return {key: without_limits(each, parts[1]) for key, each in value.items()}
    return value


def _secrets_of(app: LogicalPlan) -> dict[str, str]:
    return {} if app.spec is None else {k: v for k, v in app.spec.secrets.items() if len(k) >= SHORTEST_SECRET}


def _code_of(app: LogicalPlan) -> dict[str, str]:
    """Checksums of the author's modules, and of each class of the script or the notebook itself, by name."""
    modules = [] if app.spec is None else app.spec.user_modules()
    found = {path.name: _checksum_of(path) for path in modules}
    for cls in {type(operator) for operator in app.instances.values() if type(operator).__module__ == "__main__"}:
        with contextlib.suppress(OSError, TypeError):  # a class that was typed at a prompt has no source
            found[f"class {cls.__qualname__}"] = hashlib.sha256(_source_of(cls).encode()).hexdigest()[:16]
    return found


def _source_of(cls: type) -> str:
    """In a notebook, where only functions know their lines, the source of the methods."""
    try:
        return inspect.getsource(cls)
    except (OSError, TypeError):
        return "".join(inspect.getsource(each) for each in vars(cls).values() if inspect.isfunction(each))


def _operator_facts(app: LogicalPlan, node: OperatorNode, secrets: Mapping[str, str]) -> OperatorFacts:
    spec = None if app.spec is None else app.spec.operators.get(node.name)
    fields = property_model(type(node.operator)).model_fields
    given = {name: getattr(node.operator, name) for name in fields} if spec is None else dict(spec.properties)
    policy = None if spec is None or spec.partitioner is None else spec.partitioner
    partition = "" if node.partition is None else str(node.partition)
    if policy is not None:
        partition += f" {policy.policy_class.__qualname__} {property_fact('', dict(policy.properties), secrets)}"
    return OperatorFacts(
        _kind(type(node.operator)),
        {name: property_fact(name, value, secrets) for name, value in given.items()},
        partition.strip(),
        node.is_control,
        marked(property_model(type(node.operator)), Tuning),
    )


def _kind(cls: type[Operator]) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def property_fact(name: str, value: Any, secrets: Mapping[str, str]) -> Any:
    """The value of a property as JSON, with checksums in place of secrets and of values from the environment."""
    if value is None or isinstance(value, bool | int | float):
        is_shown = value is None or shown_value(name, str(value)) == str(value)
        return value if is_shown else _shown(name, str(value), secrets)
    if isinstance(value, str):
        return _shown(name, value, secrets)
    if isinstance(value, Mapping):
        is_headers = name.lower() == "headers"
        return {
            str(key): _hidden(each, secrets)
            if is_headers and is_secret_option(str(key))
            else property_fact(str(key), each, secrets)
            for key, each in value.items()
        }
    if isinstance(value, list | tuple):
        return [
            _hidden(each, secrets) if is_secret_flag(str(before)) else property_fact(name, each, secrets)
            for before, each in zip(("", *value), value, strict=False)
        ]
    # Apps that are made without YAML contain objects; those from YAML contain at most dates.
    members = getattr(value, "__dict__", None)
    held = {each: part for each, part in (members or {}).items() if not each.startswith("_")}
    own = {each: property_fact(each, part, secrets) for each, part in held.items()}
    return {type(value).__qualname__: own} if members is not None else _shown(name, str(value), secrets)


def _hidden(value: Any, secrets: Mapping[str, str]) -> str:
    text = str(value)
    return _veiled(text, secrets) if text in secrets else _checked(HIDDEN, text)


def _shown(name: str, text: str, secrets: Mapping[str, str]) -> str:
    # A value that is a reference shows which one.
    shown = text if text in secrets else shown_value(name, text)
    return _veiled(shown if shown == text else shown.replace(HIDDEN, _checked(HIDDEN, text)), secrets)


def _veiled(text: str, secrets: Mapping[str, str]) -> str:
    for value in sorted(secrets, key=len, reverse=True):
        if value in text:
            text = text.replace(value, _checked(secrets[value], value))
    return text


def _checked(reference: str, value: str) -> str:
    # A checksum of this length reveals a change of the value, but not the value.
    return f"{reference}{CHECKSUM_MARK}{hashlib.blake2b(value.encode(), digest_size=2).hexdigest()}"


def _checksum_of(module: Path) -> str:
    checksum = hashlib.sha256()
    for file in sorted(module.rglob("*.py")) if module.is_dir() else [module]:
        checksum.update(file.read_bytes())
    return checksum.hexdigest()[:16]
