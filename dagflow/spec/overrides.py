"""Properties set on the command line: `--set op.property=VALUE`."""

from __future__ import annotations

from collections.abc import Mapping as MappingType
from collections.abc import Sequence
from dataclasses import replace

from dagflow.spec.environment import Environment
from dagflow.spec.problems import Place, Problems, quoted
from dagflow.spec.yaml_parser import MAX_DEPTH, parse_text
from dagflow.spec.yaml_tree import Mapping, MappingEntry, Node, Scalar, kind_of
from dagflow.suggestions import did_you_mean


def apply(
    operators: Mapping,
    overrides: MappingType[str, str] | Sequence[str],
    environment: Environment,
    problems: Problems,
) -> Mapping:
    """Put properties into the operators of an app.

    Args:
        overrides: "op.property=VALUE" each, or VALUE by "op.property"; a property of a property is
            reached by a further dot.
    """
    if isinstance(overrides, MappingType):
        overrides = [f"{name}={value}" for name, value in overrides.items()]
    for pair in overrides:
        operators = _apply_one(operators, pair, environment, problems)
    return operators


def _apply_one(operators: Mapping, pair: str, environment: Environment, problems: Problems) -> Mapping:
    target, equals, text = pair.partition("=")
    place = Place(f"--set {quoted(target)[1:-1]}")
    operator, *path = target.strip().split(".")
    if not equals or not path or not all([operator, *path]):
        problems.add(place, f"expected op.property=VALUE, such as reader.max_readers=4; got {quoted(pair)}")
        return operators
    if len(path) > MAX_DEPTH:
        problems.add(place, f"nested more than {MAX_DEPTH} levels deep")
        return operators
    if operator not in operators.entries:
        hint = did_you_mean(operator, operators.entries)
        problems.add(place, f"the app has no operator {quoted(operator)}{hint}")
        return operators
    value = parse_text(text or "''", place.file, environment, problems, has_lines=False)
    found = operators.entries[operator]
    if value is None or not isinstance(found.value, Mapping):
        return operators
    changed = put(found.value, ["properties", *path], value, place, problems)
    return replace(operators, entries={**operators.entries, operator: MappingEntry(found.key_place, changed)})


def put(mapping: Mapping, path: Sequence[str], value: Node, place: Place, problems: Problems) -> Mapping:
    name, *rest = path
    entry = mapping.entries.get(name)
    if rest:
        inner = entry.value if entry else None
        if inner is None or (isinstance(inner, Scalar) and inner.value is None):
            inner = Mapping(place, {})
        if not isinstance(inner, Mapping):
            problems.add(place, f"'{name}' is {kind_of(inner)}, and has no '{rest[0]}' to set")
            return mapping
        value = put(inner, rest, value, place, problems)
        key_place = entry.key_place if entry else place
    else:
        key_place = place
    return replace(mapping, entries={**mapping.entries, name: MappingEntry(key_place, value)})
