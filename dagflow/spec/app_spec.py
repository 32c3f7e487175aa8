"""An app as it was read: its attributes, operators and streams, each with the place where it was written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from dagflow.api.operator import Operator
from dagflow.api.partitioning import Partitioner, PartitionPolicy, StreamCodec
from dagflow.api.properties import property_model
from dagflow.errors import own_name
from dagflow.frozen import frozen
from dagflow.spec.class_lookup import author_modules, user_modules
from dagflow.spec.head_reader import RuntimeChoice
from dagflow.spec.problems import Place
from dagflow.spec.shown_text import redact
from dagflow.spec.yaml_tree import Node
from dagflow.storage.context import StorageContext
from dagflow.storage.options import StorageOptions
from dagflow.storage.pending import Durability


@frozen
class HttpTarget:
    """An address that takes events over HTTP.

    Attributes:
        url: The whole URL; it may be a secret, as that of a webhook often is.
    """

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


@frozen
class LineageSettings:
    target: HttpTarget
    namespace: str = "dagflow"


@frozen
class AlertSettings:
    """When a run raises an alert, and where it is sent.

    Attributes:
        freshness_millis: How long input may wait to be published; None for no limit.
        rejects: Which share of the newest records may be refused, from 0 to 1; None for no limit.
    """

    freshness_millis: int | None = None
    rejects: float | None = None
    backlog_bytes: int | None = None
    webhook: HttpTarget | None = None
    command: tuple[str, ...] = field(default=(), repr=False)


STALL_WARNING_MILLIS = 60_000
"""How long work may stall before a warning reports it, where the app sets no time."""

RETAINED_WINDOWS = 1_000_000
"""Nearly two years at a window a minute; a gigabyte or two where windows are small."""


@frozen
class KeyedPartition:
    codec: StreamCodec
    count: int | None = None

    def __str__(self) -> str:
        return f"by {self.codec}" + (f", count {self.count}" if self.count else "")


Partition = Literal["parallel"] | int | KeyedPartition | None


@frozen
class Attributes:
    """What holds for the whole app.

    Attributes:
        checkpoint: Where the journal is: a path or an fsspec URL.
        durability: What output survives: "process" the death of every process, "power" also a power loss.
        roots: Locations by name; a location below one is stored as the name and the rest.
        retain_windows: For how many finished windows the journal keeps its records, so that they can be replayed; None
            for all.
        stall_warning_millis: How long work may stall before a warning reports it.
        task_timeout_millis: How long a task may stall before it is ended; None for no limit.
        strict: Whether a run that has published, and has concerns, ends with the exit code of the first.
        runtime: Where tasks run if the command does not say it: "auto" runs a small input on this machine; see
            runtime_choice.
    """

    checkpoint: str = field(repr=False)
    window_millis: int = 500
    master: str = field(default="local[*]", repr=False)
    spark: Mapping[str, str] = field(default_factory=dict, repr=False)
    storage: StorageOptions = field(default_factory=dict, repr=False)
    durability: Durability = "process"
    roots: Mapping[str, str] = field(default_factory=dict, repr=False)
    retain_windows: int | None = RETAINED_WINDOWS
    stall_warning_millis: int = STALL_WARNING_MILLIS
    task_timeout_millis: int | None = None
    alerts: AlertSettings | None = None
    lineage: LineageSettings | None = None
    traces: HttpTarget | None = None
    strict: bool = False
    runtime: RuntimeChoice = "spark"

    def without_signals(self) -> Attributes:
        """The same without alerts, lineage and traces: for tests and try-outs, which send no events."""
        return replace(self, alerts=None, lineage=None, traces=None)

    def storage_context(self) -> StorageContext:
        """Reaches the stores that the app names; a StorageError if one root lies in another."""
        return StorageContext.of(self.storage, self.roots)


@frozen
class PolicySpec:
    policy_class: type[PartitionPolicy]
    properties: Mapping[str, Any] = field(repr=False)
    place: Place


@frozen
class OperatorSpec:
    """One operator of an app.

    Attributes:
        operator_class: Its class; None only where it was not found, which was reported.
        properties: The values of its properties as YAML gave them, by name.
        partition_place: Where its partition is set; its name's place where it is not.
    """

    name: str
    class_name: str
    operator_class: type[Operator] | None
    properties: Mapping[str, Any] = field(repr=False)
    partition: Partition
    place: Place
    class_place: Place
    partition_place: Place
    partitioner: PolicySpec | None = None
    properties_node: Node | None = field(default=None, repr=False, compare=False)

    @property
    def key_column(self) -> str | None:
        """The column that the operator's property `key` names, if it has such a property."""
        field = None if self.operator_class is None else property_model(self.operator_class).model_fields.get("key")
        return None if field is None else str(self.properties.get("key", field.default))

    def construct(self) -> Operator:
        """A new instance with the app's properties.

        Raises:
            ValueError: The class was not found, or the properties are refused; load has reported both.
        """
        if self.operator_class is None:
            raise ValueError(f"operator '{self.name}' has no class")
        return self.operator_class(**self.properties)

    def construct_partitioner(self) -> Partitioner | None:
        return None if self.partitioner is None else self.partitioner.policy_class(**self.partitioner.properties)


@frozen
class Endpoint:
    """One end of a stream as it was written.

    Attributes:
        shown: Both as they were typed: what messages may print.
    """

    operator: str
    port: str
    place: Place
    shown: str

    @property
    def is_as_typed(self) -> bool:
        """Whether the names are those that were typed; otherwise they came from the environment, or a module."""
        return self.shown == f"{self.operator.rpartition('/')[2]}.{self.port}"


@frozen
class StreamSpec:
    """One stream of an app.

    Attributes:
        sources: The output ports it comes from; none only where they could not be read, which was reported.
        broadcast_place: Where `broadcast` is set: every partition of the targets gets everything; None where it is not.
    """

    name: str
    sources: tuple[Endpoint, ...]
    targets: tuple[Endpoint, ...]
    place: Place
    broadcast_place: Place | None = None


@frozen
class AppSpec:
    """An app as its file, the environment and the command line say it.

    Attributes:
        operators: The operators by name, in the order of the file.
        secrets: Values that came from the environment, each with the reference that is shown instead.
    """

    file: str
    name: str
    attributes: Attributes
    operators: Mapping[str, OperatorSpec]
    streams: Mapping[str, StreamSpec]
    search_path: tuple[str, ...]
    secrets: Mapping[str, str] = field(repr=False)
    place: Place

    def written(self, operator: str) -> OperatorSpec | None:
        """The spec of an operator of the plan, or of the operator that it is a part of."""
        return self.operators.get(own_name(operator))

    def redact(self, text: str) -> str:
        """The text with every value that came from the environment replaced by its `${NAME}`."""
        return redact(text, self.secrets.items())

    def user_modules(self) -> list[Path]:
        modules = author_modules(self.attributes.storage, self.search_path)
        for spec in self.operators.values():
            if spec.operator_class is not None:
                modules.add(spec.operator_class.__module__)
            if isinstance(spec.partition, KeyedPartition):
                modules.add(type(spec.partition.codec).__module__)
            modules |= author_modules(spec.properties, self.search_path)
        return user_modules(modules, self.search_path)
