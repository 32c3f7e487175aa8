"""Formats by their names in YAML: built-in ones by a short name, a user's by its dotted path, each with its options."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

from pydantic import ValidationError

from dagflow.api.properties import HasProperties, PropertyPartError, PropertyTextError, expectation, property_model
from dagflow.errors import text_of
from dagflow.plugins import plugin_path, plugins
from dagflow.suggestions import did_you_mean

T = TypeVar("T", bound=HasProperties)


class FormatRegistry(Generic[T]):
    """Finds the classes of formats by the names that YAML gives them, and makes instances with their options.

    Args:
        base: The class that all of them extend.
        class_paths: The dotted path of each built-in class, by its name in YAML. A module is imported when its
            class is asked for.
        group: The group of entry points by which installed packages bring more.
    """

    def __init__(self, base: type[T], class_paths: Mapping[str, str], group: str) -> None:
        self.base = base
        self.class_paths = class_paths
        self.group = group

    def find(self, name: str) -> type[T]:
        """The class of a name.

        Args:
            name: A built-in name, or the dotted path of a subclass of base.

        Raises:
            ValueError: No class has the name; the message gives the nearest one.
        """
        path = self.class_paths.get(name) or (name if "." in name else plugin_path(self.group, name))
        if path is None:
            choices = {*self.class_paths, *plugins(self.group)}
            hint = did_you_mean(name, choices) or ";"
            raise ValueError(
                f"there is no format '{name}'{hint} formats: {', '.join(sorted(choices))}, or a dotted path"
            )
        found = imported("format", path)
        if not (isinstance(found, type) and issubclass(found, self.base)):
            raise ValueError(f"format '{name}' is not a subclass of {self.base.__name__}")
        if missing := ", ".join(sorted(getattr(found, "__abstractmethods__", ()))):
            raise ValueError(f"format '{name}' does not define {missing}")
        return found

    def make(self, value: object) -> T:
        """Make an instance from a value of YAML.

        Args:
            value: A name; a mapping with `type`, the name, and options; or an instance, which is given back.

        Raises:
            ValueError: The value has mistakes; the message lists all of them, with the nearest valid names.
        """
        if isinstance(value, self.base):
            return value
        if isinstance(value, str):
            value = {"type": value}
        if not isinstance(value, Mapping) or not isinstance(value.get("type"), str):
            raise ValueError(f"a format is a name, or a mapping with 'type' and options; got {value!r}")
        name = value["type"]
        cls = self.find(name)
        takes = property_model(cls).model_fields
        given = {str(option): setting for option, setting in value.items() if option != "type"}
        problems = [self._unknown(name, cls, option) for option in given if option not in takes]
        place: tuple[tuple[str, ...], int] = (), 0
        try:
            made = cls(**{option: setting for option, setting in given.items() if option in takes})
        except ValidationError as error:
            place = _place_in(error)
            problems += _option_problems(name, error)
        except ValueError as error:
            problems.append(f"format '{name}': {error}")
        if problems:
            raise PropertyPartError("; ".join(problems), *place)
        return made

    def _unknown(self, name: str, cls: type[T], option: str) -> str:
        takes = property_model(cls).model_fields
        hint = did_you_mean(option, takes) or ";"
        options = f"{', '.join(takes)}; properties of the operator stand beside it"
        return f"format '{name}' has no option '{option}'{hint} it takes: {options}"

    def classes(self) -> dict[str, type[T]]:
        """The classes by name: built-in ones, and those of installed packages that can be imported."""
        loaded = {plugin.name: plugin.loaded for plugin in plugins(self.group).values()}
        more = {name: cls for name, cls in loaded.items() if isinstance(cls, type) and issubclass(cls, self.base)}
        return {**more, **{name: self.find(name) for name in self.class_paths}}

    def json_schema(self) -> dict[str, Any]:
        """JSON Schema of the values that make accepts, for editors."""
        return {
            "anyOf": [
                {"type": "string"},
                {"type": "object", "properties": {"type": {"type": "string"}}, "required": ["type"]},
            ],
            "description": f"a format: one of {', '.join(self.class_paths)}, or the dotted path of a "
            f"{self.base.__name__}",
        }


def _place_in(error: ValidationError) -> tuple[tuple[str, ...], int]:
    """The keys that lead to the mistake in an option, as far as its validator gives them, and the position there."""
    for detail in error.errors():
        cause = detail.get("ctx", {}).get("error")
        if isinstance(cause, PropertyPartError):
            return (str(detail["loc"][0]), *cause.path), cause.offset
        if isinstance(cause, PropertyTextError):
            return (str(detail["loc"][0]),), cause.offset
    return (), 0


def _option_problems(name: str, error: ValidationError) -> list[str]:
    """Pydantic's errors of options, as clauses with the user's names."""
    details = error.errors()
    # For a value of several possible types, the errors of its own type say more than that it is of no other.
    explained = {detail["loc"][:1] for detail in details if detail["type"] == "value_error"}
    by_option: dict[str, list[Mapping[str, Any]]] = {}
    for detail in details:
        if detail["type"] == "value_error" or detail["loc"][:1] not in explained:
            # The types that pydantic has tried are no places in the app.
            where = ".".join(part for part in map(str, detail["loc"]) if "[" not in part)
            by_option.setdefault(where, []).append(detail)
    return [_option_problem(name, where, details) for where, details in by_option.items()]


def _option_problem(name: str, where: str, details: Sequence[Mapping[str, Any]]) -> str:
    if details[0]["type"] == "missing":
        return f"format '{name}' needs option '{where}'"
    given = details[0]["input"]
    expected = list(dict.fromkeys(filter(None, map(expectation, details))))
    messages = [_message(each) for each in details if not expectation(each)]
    if expected:
        messages.insert(0, f"expected {' or '.join(expected)}")
    is_plain = "text" in expected and (given is None or isinstance(given, bool | int | float))
    hint = "; in quotes it is text" if is_plain else ""  # YAML reads NULL as no value
    if (where, given) == ("columns", "infer"):
        hint = "; this format finds no columns itself: name them; `dagflow infer` prints those of csv and files of rows"
    return f"format '{name}', option '{where}': {'; '.join(messages)}; got {given!r}{hint}"


def _message(detail: Mapping[str, Any]) -> str:
    cause = detail.get("ctx", {}).get("error")
    return cause.reason if isinstance(cause, PropertyTextError) else str(detail["msg"]).removeprefix("Value error, ")


def imported(kind: str, path: str) -> object:
    """Import the object that a dotted path names.

    Args:
        kind: Its name in messages, such as "format".
        path: The module, a dot, and the name in it.

    Raises:
        ValueError: The path has no dot, its module cannot be imported, or has no such name.
    """
    module_name, _, name = path.rpartition(".")
    if not module_name or not all(map(str.isidentifier, path.split("."))):
        raise ValueError(
            f"{kind} '{path}' is not a dotted path: that is a module, a dot, and the name in it, such as "
            "my_module.name for name in my_module.py"
        )
    try:
        module = importlib.import_module(module_name)
        if hasattr(module, name):
            return getattr(module, name)
    # An author's module may do anything while it is imported, sys.exit included.
    except (Exception, SystemExit) as error:
        is_missing = isinstance(error, ModuleNotFoundError) and error.name == module_name.partition(".")[0]
        hint = "; a module of your own lies in the working directory, or beside the app" if is_missing else ""
        raise ValueError(
            f"{kind} '{path}': cannot import {module_name}: {type(error).__name__}: {text_of(error)}{hint}"
        ) from error
    hint = did_you_mean(name, vars(module)) or f"; it is {getattr(module, '__file__', 'a module of Python')}"
    raise ValueError(f"{kind} '{path}': module {module_name} has no '{name}'{hint}")


def require_package(what: str, package: str, *extras: str) -> None:
    """Refuse what needs a package that is not installed, and which extras of dagflow have."""
    if importlib.util.find_spec(package) is None:
        raise ValueError(
            f"{what} needs the package {package.replace('_', '-')}; install it with: pip install "
            f"'dagflow[{','.join(extras)}]'"
        )
