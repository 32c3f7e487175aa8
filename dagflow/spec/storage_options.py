"""The attribute `storage`: options of file systems by protocol, credentials among them."""

from __future__ import annotations

from typing import Any

from dagflow.spec.environment import Environment
from dagflow.spec.problems import Problems, did_you_mean, quoted
from dagflow.spec.yaml_tree import Items, Mapping, Node, Scalar, plain
from dagflow.storage.options import HIDDEN, is_telling, secrets_of
from dagflow.storage.registry import known_protocols


def storage_of(section: Node | None, environment: Environment, problems: Problems) -> dict[str, dict[str, Any]]:
    """The options by protocol; the credentials among them are not shown from here on.

    Args:
        section: The attribute, or None where there is none.
        environment: Takes note of credentials, also of those that stand in the file.
        problems: Takes protocols that do not exist, and values that are no options.
    """
    if section is None:
        return {}
    known = known_protocols()
    found: dict[str, dict[str, Any]] = {}
    for protocol, entry in _entries("'storage'", section, problems).entries.items():
        # An author's own store may have a scheme that only the author knows.
        has_backend = isinstance(entry.value, Mapping) and "backend" in entry.value.entries
        if protocol in known or has_backend:
            found[protocol] = _options(_entries(f"options of protocol {quoted(protocol)}", entry.value, problems))
        else:
            message = f"there is no protocol {quoted(protocol)}{did_you_mean(protocol, known)}"
            problems.add(entry.key_place, f"{message}\n    'storage' has options by protocol, such as s3, gs, hdfs")
    for secret in secrets_of(found):
        environment.secrets.setdefault(secret, HIDDEN)
    return found


def _entries(what: str, node: Node, problems: Problems) -> Mapping:
    """The node as a mapping; an empty one after a problem."""
    if isinstance(node, Mapping):
        return node
    if not (isinstance(node, Scalar) and node.is_broken):
        # What stands in the place of options may be a credential, and is not shown.
        got = "a list" if isinstance(node, Items) else "a single value"
        problems.add(node.place, f"{what}: expected a mapping, got {got}")
    return Mapping(node.place, {})


def _options(mapping: Mapping) -> dict[str, Any]:
    return {name: _value(name, entry.value) for name, entry in mapping.entries.items()}


def _value(name: str, node: Node) -> Any:
    if isinstance(node, Mapping):
        return _options(node)
    if isinstance(node, Scalar) and isinstance(node.value, int | float) and is_telling(name):
        return node.text  # a password of digits is a text all the same
    return plain(node)
