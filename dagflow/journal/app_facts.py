"""What the journal keeps about an app: enough to see whether, and how, it has changed since."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import field
from typing import Any

from dagflow.errors import own_name
from dagflow.frozen import frozen
from dagflow.journal.frames import to_json

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
        kind: Its class.
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
