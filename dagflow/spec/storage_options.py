"""The attribute `storage`: options of file systems by protocol, credentials among them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dagflow.secret_names import HIDDEN, is_secret_option
from dagflow.spec.class_lookup import BACKEND, UnknownClassError, find_class
from dagflow.spec.environment import Environment
from dagflow.spec.problems import Problems, quoted
from dagflow.spec.yaml_tree import Items, Mapping, Node, Scalar, plain
from dagflow.storage.options import secrets_of
from dagflow.storage.registry import known_protocols
from dagflow.suggestions import did_you_mean


def storage_of(
    section: Node | None, search_path: Sequence[str], environment: Environment, problems: Problems
) -> dict[str, dict[str, Any]]:
    """The options by protocol; the credentials among them are not shown from here on.

    Args:
        section: The attribute, or None where there is none.
        search_path: Directories with modules of the app's author, for backends of their own.
        environment: Takes note of credentials, including those that are written in the file.
        problems: Takes protocols and backends that do not exist, and values that are no options.
    """
    if section is None:
        return {}
    known = known_protocols()
    found: dict[str, dict[str, Any]] = {}
    for protocol, entry in _entries("'storage'", section, problems).entries.items():
        # An author's own store may have a scheme that only the author knows.
        own = entry.value.get("backend") if isinstance(entry.value, Mapping) else None
        if own is not None:
            _check_backend(protocol, own, search_path, problems)
        if protocol in known or own is not None:
            found[protocol] = _options(_entries(f"options of protocol {quoted(protocol)}", entry.value, problems))
        else:
            message = f"there is no protocol {quoted(protocol)}{did_you_mean(protocol, known)}"
            problems.add(entry.key_place, f"{message}\n    'storage' has options by protocol, such as s3, gs, hdfs")
    for secret in secrets_of(found):
        environment.secrets.setdefault(secret, HIDDEN)
    return found


def _check_backend(protocol: str, node: Node, search_path: Sequence[str], problems: Problems) -> None:
    what = f"'backend' of protocol {quoted(protocol)}"
    if not isinstance(node, Scalar):
        problems.add(node.place, f"{what}: expected the dotted path of a class, such as {BACKEND.example}")
        return
    try:
        find_class(node.text, search_path, BACKEND)
    except UnknownClassError as error:
        problems.add(node.place, f"{what}: {error}")


def _entries(what: str, node: Node, problems: Problems) -> Mapping:
    """The node as a mapping; an empty one after a problem."""
    if isinstance(node, Mapping):
        return node
    if not (isinstance(node, Scalar) and node.is_broken):
        # A value in place of options may be a credential, and is not shown.
        got = "a list" if isinstance(node, Items) else "a single value"
        problems.add(node.place, f"{what}: expected a mapping, got {got}")
    return Mapping(node.place, {})


def _options(mapping: Mapping) -> dict[str, Any]:
    return {name: _value(name, entry.value) for name, entry in mapping.entries.items()}


def _value(name: str, node: Node) -> Any:
    if isinstance(node, Mapping):
        return _options(node)
    if isinstance(node, Scalar) and isinstance(node.value, int | float) and is_secret_option(name):
        return node.text  # a password of digits is a text all the same
    return plain(node)
