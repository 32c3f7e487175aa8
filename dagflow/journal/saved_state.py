"""The state of operators and of the run between two windows, as named fields."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from dagflow.api.context import Skipped, WaitingEnd
from dagflow.errors import own_name
from dagflow.frozen import frozen
from dagflow.journal.frames import to_json

Booked = Mapping[str, Mapping[str, int]]
"""The sums that a window adds to the byte accounting: by operator and key, without those that are zero."""


@frozen
class SavedSegment:
    """A segment of a keyed state; its data is here, or in the checkpoint object of this name."""

    name: str
    size: int
    data: bytes = b""


@frozen
class SavedState:
    """One operator's state; either data or segments holds it.

    Attributes:
        data: A value of its state_type, as JSON values.
        segments: The segments of a keyed state, oldest first.
        keyed_by: What decided the keys of a keyed state, as KeyedOperator.keyed_by() says; None of an operator that is
            no KeyedOperator, or has the state by key within one of its own.
        key_family: The kind of values that the column of the keys had; None where that is not known, as of a column
            whose type only the input tells.
    """

    version: int = 1
    data: Any = None
    segments: list[SavedSegment] | None = None
    keyed_by: dict[str, Any] | None = None
    key_family: str | None = None

    @property
    def is_empty(self) -> bool:
        """Whether it equals the state of a new operator: no keys, or only empty collections."""
        if self.segments is not None:
            return not self.segments
        if isinstance(self.data, dict):
            return all(isinstance(value, dict | list) and not value for value in self.data.values())
        return isinstance(self.data, list | str) and not self.data


@frozen
class SavedPart:
    """What one or several windows added to a result that is not published yet; its data is here, or in an object."""

    window_id: int
    size_bytes: int
    name: str = ""
    data: bytes = b""


@frozen
class SavedParts:
    """A result that is held back.

    Attributes:
        since_ms: When the first window in it was committed, in milliseconds since 1970.
        parts: Its parts, oldest first.
        since_window: The oldest window that it may contain something of.
        made_by: The facts of the operator that made the parts.
        written: How the app declares the composite operator that it is a part of; None where it is no part.
    """

    since_ms: int
    parts: list[SavedPart]
    since_window: int
    made_by: OperatorFacts
    written: OperatorFacts | None = None


@frozen
class LateTuples:
    """Tuples of a window, encoded by their class, for a control operator that works when its results are in."""

    port: str
    kind: str
    tuples: Any


@frozen
class ControlState:
    """What planning a window leaves for the next one.

    Attributes:
        prescans: The pre-scans' state after the windows so far, by operator.
        late: Tuples of this window for control operators that work when its results are in, in order.
        operator_index: The number that distinguishes an operator's ids from those of others, by operator.
    """

    operators: dict[str, SavedState] = field(default_factory=dict)
    prescans: dict[str, SavedState] = field(default_factory=dict)
    late: list[LateTuples] = field(default_factory=list)
    operator_index: dict[str, int] = field(default_factory=dict)


@frozen
class CommittedState:
    """What the results of a window leave for the next one.

    Attributes:
        partitions: States of partitioned operators, by operator and partition; None where a partition has none.
        source_events: The states in which control operators keep events of tasks, by operator.
        byte_accounting: Sums that are not zero yet, by key; all must be zero when the input is processed.
    """

    partitions: dict[str, list[SavedState | None]] = field(default_factory=dict)
    control: dict[str, SavedState] = field(default_factory=dict)
    source_events: dict[str, SavedState] = field(default_factory=dict)
    held_results: dict[str, SavedParts] = field(default_factory=dict)
    byte_accounting: dict[str, int] = field(default_factory=dict)

    def with_booked(self, added: Booked, withdrawn: Booked) -> CommittedState:
        sums = Counter(self.byte_accounting)
        for booked in added.values():
            sums.update(booked)
        for booked in withdrawn.values():
            sums.subtract(booked)
        return replace(self, byte_accounting={key: value for key, value in sums.items() if value})

    def segment_names(self) -> set[str]:
        states = (state for states_of_one in self.partitions.values() for state in states_of_one if state is not None)
        parts = (part.name for held in self.held_results.values() for part in held.parts)
        return {*(segment.name for state in states for segment in state.segments or ()), *parts} - {""}


KEPT_RANGES = 1000
"""How many ranges are listed: the newest. The plan and intent of each window have all of them."""


@frozen
class LeftOut:
    """Ranges of files that are in no output."""

    ranges: int = 0
    bytes: int = 0
    newest: list[Skipped] = field(default_factory=list)

    def after(self, skipped: Sequence[Skipped], recovered: Sequence[Skipped]) -> LeftOut:
        skipped, recovered = ([each for each in ranges if each.cause != "corrected"] for ranges in (skipped, recovered))
        read = set(recovered)
        return LeftOut(
            self.ranges + len(skipped) - len(recovered),
            self.bytes + _size_bytes(skipped) - _size_bytes(recovered),
            [*(skip for skip in self.newest if skip not in read), *skipped][-KEPT_RANGES:],
        )


def _size_bytes(ranges: Sequence[Skipped]) -> int:
    return sum(skip.lost_bytes for skip in ranges)


KEPT_ENDS = 1000
"""How many ends are listed: the newest."""


def ends_after(
    waiting: Sequence[WaitingEnd], left: Sequence[WaitingEnd], read: Sequence[WaitingEnd]
) -> list[WaitingEnd]:
    """The ends that wait after a window.

    Args:
        read: The ends among `waiting` that it has read, or whose files are other ones by now.
    """
    gone = set(read)
    return [*(end for end in waiting if end not in gone), *left][-KEPT_ENDS:]


CHECKSUM_MARK = "~"
"""Separates what is shown in place of a value from the checksum of the value."""

_CHECKSUM = re.compile(rf"(\$\{{\w+\}}|\*{{3}}){CHECKSUM_MARK}[0-9a-f]{{4}}")


_VALUE_OF_VARIABLE = re.compile(rf"(\$\{{\w+\}}){CHECKSUM_MARK}[0-9a-f]{{4}}")


def with_any_values(text: str) -> str:
    """A value of a property, or its JSON, as it is whatever the values of the variables in it."""
    return _VALUE_OF_VARIABLE.sub(r"\1", text)


def without_checksums(text: str) -> str:
    """A value of a property, or its JSON, without the checksums of hidden values."""
    return _CHECKSUM.sub(r"\1", text)


@frozen
class OperatorFacts:
    """One operator of an app.

    Attributes:
        properties: Its properties as JSON values, by name; a value from the environment is its reference and a
            checksum, a secret is *** and a checksum.
        partition: How it is divided into partitions, "" where the app does not say.
        is_control: Whether it runs in the driver.
        tuning: Names of the properties that affect its speed, and not its output.
    """

    kind: str
    properties: dict[str, Any] = field(default_factory=dict)
    partition: str = ""
    is_control: bool = False
    tuning: list[str] = field(default_factory=list)


@frozen
class AppFacts:
    """An app without the attributes that output does not depend on.

    Attributes:
        streams: The streams, each as "operator.port -> operator.port".
        code: Checksums of the author's modules by name.
        composites: The operators that others among the operators, their parts, stand for.
        own_ports: The ports of parts that the app's author sees, each with the port that it is to them.
        own_heads: The first operator of the app that runs in a stage, by head of the stage; only where a part is the
            head. "" where only parts run in it.
    """

    operators: dict[str, OperatorFacts] = field(default_factory=dict)
    streams: list[str] = field(default_factory=list)
    code: dict[str, str] = field(default_factory=dict)
    composites: dict[str, OperatorFacts] = field(default_factory=dict)
    own_ports: dict[str, str] = field(default_factory=dict)
    own_heads: dict[str, str] = field(default_factory=dict)

    @property
    def own_operators(self) -> dict[str, OperatorFacts]:
        """The operators that the app's author knows, by name."""
        names = dict.fromkeys(map(own_name, self.operators))
        return {name: self.composites.get(name) or self.operators[name] for name in names}

    @property
    def fingerprint(self) -> str:
        """The same text for equal apps, and another one for different apps."""
        return hashlib.sha256(json.dumps(to_json(self), sort_keys=True).encode()).hexdigest()[:16]
