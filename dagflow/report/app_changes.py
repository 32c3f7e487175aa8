"""Finds how an app differs from its version in the run before."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from dagflow.frozen import frozen
from dagflow.journal.saved_state import AppFacts, OperatorFacts, with_any_values, without_checksums
from dagflow.report.own_figures import OwnFigures, edges_of

_VALUE_BYTES = 60
_DEFAULT = "the default"


@frozen
class AppChange:
    """One difference between two versions of an app.

    Attributes:
        concerns_output: Whether the same input would become other output; otherwise other input may be chosen.
    """

    text: str
    concerns_output: bool = True


def app_changes(before: AppFacts, now: AppFacts) -> list[AppChange]:
    """The differences between two apps of one name, without settings that only affect speed."""
    found: list[AppChange] = []
    earlier, current = before.own_operators, now.own_operators
    for name in [*current, *(name for name in earlier if name not in current)]:
        was, is_now = earlier.get(name), current.get(name)
        if was is None:
            found.append(AppChange(f"operator '{name}' is new"))
        elif is_now is None:
            found.append(AppChange(f"operator '{name}' is gone", not was.is_control))
        else:
            found += (AppChange(text, not is_now.is_control) for text in operator_changes(name, was, is_now))
    if earlier.keys() == current.keys():
        were, are = _streams(before), _streams(now)
        streams = [(were, are, "is gone"), (are, were, "is new")]
        found += (AppChange(f"stream {s} {what}") for some, others, what in streams for s in some if s not in others)
    code = [name for name in now.code if before.code.get(name) != now.code[name]]
    # A module that came or went with its operator is not reported.
    found += (AppChange(f"the code of {name}") for name in code if name in before.code)
    return found


def _streams(facts: AppFacts) -> list[str]:
    return sorted(
        f"{edge.source} -> {edge.target}" + " (to all)" * edge.is_broadcast
        for edge in OwnFigures(facts).edges(edges_of(facts))
    )


def operator_changes(name: str, was: OperatorFacts, now: OperatorFacts) -> Iterator[str]:
    """The differences between two operators of one name.

    Settings that only affect speed are none, nor is another value of a variable, which is there to be set anew: a date
    differs in each run.
    """
    if was.kind != now.kind:
        yield f"{name}.class: {was.kind} -> {now.kind}"
    if was.partition != now.partition:
        yield f"{name}.partition: {was.partition or _DEFAULT} -> {now.partition or _DEFAULT}"
    for key in sorted(was.properties.keys() | now.properties.keys()):
        old, new = _shown(was.properties, key), _shown(now.properties, key)
        if key not in now.tuning and _compared(was.properties, key) != _compared(now.properties, key):
            yield f"{name}.{key}: {old} " + ("has another value" if old == new else f"-> {new}")


def _compared(properties: dict[str, Any], key: str) -> str:
    return with_any_values(json.dumps(properties.get(key), ensure_ascii=False))


def _shown(properties: dict[str, Any], key: str) -> str:
    """A value as it may be shown: without values from the environment, and not too long."""
    if key not in properties:
        return _DEFAULT
    value = properties[key]
    text = without_checksums(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    return text if len(text) <= _VALUE_BYTES else f"{text[:_VALUE_BYTES]}..."
