"""Dataclasses that cost little to define: a command defines three hundred before it works."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")

_MANY = 20
"""Values of a class for which it takes less time to compile `__init__` than to do without."""

_completing = threading.RLock()


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(defined: type[T]) -> type[T]:
    """A dataclass with slots that can be compared and hashed, and that type checkers keep from being changed.

    `dataclass(frozen=True, slots=True)` describes the fields of each class and compiles six functions, which takes
    more than twenty times as long. This describes them when something asks, and compiles `__init__` alone, for a class
    with many values. Nothing refuses a change when it runs.
    """
    return _made(defined, is_hashed=True)


@dataclass_transform(field_specifiers=(field,))
def mutable(defined: type[T]) -> type[T]:
    """A dataclass with slots that can be compared, as frozen() makes it, for values that change."""
    return _made(defined, is_hashed=False)


class _Completed:
    """An attribute of a class that dataclass() makes, such as its fields.

    Args:
        defined: The class as it was written, without slots.
    """

    def __init__(self, name: str, defined: Any) -> None:
        self._name = name
        self._defined = defined

    def __get__(self, instance: object, owner: type) -> Any:
        # Never by two threads: dataclass() takes the defaults away from the class.
        with _completing:
            if "__dataclass_fields__" not in vars(self._defined):
                dataclass(eq=False, repr=False)(self._defined)
        return getattr(self._defined, self._name)


def _made(defined: type[T], *, is_hashed: bool) -> type[T]:
    own = dict(vars(defined))
    kinds = own.get("__annotations__", {})
    names = [name for name in kinds if not str(kinds[name]).removeprefix("typing.").startswith("ClassVar")]
    if any(isinstance(own.get(name), Field) and not own[name].init for name in names):
        raise TypeError(
            f"{defined.__qualname__} has a field that __init__ does not take, as only a plain dataclass may"
        )
    inherited: dict[str, Any] = {}
    for base in reversed(defined.__mro__[1:]):
        inherited |= vars(base).get("_defaults", {})
    defaults = inherited | {name: own.get(name, MISSING) for name in names}
    compared = attrgetter("__class__", *(name for name in defaults if _says(defaults[name], "compare")))
    count = itertools.count(1)

    def initialize(self: Any, *arguments: Any, **options: Any) -> None:
        values = _values(defaults, arguments, options) if next(count) < _MANY else None
        if values is None:
            setattr(made, "__init__", _Completed("__init__", defined).__get__(None, defined))  # noqa: B010  # for mypy
            made.__init__(self, *arguments, **options)
            return
        for name, value in values.items():
            setattr(self, name, value)
        if hasattr(self, "__post_init__"):
            self.__post_init__()

    def equal(self: T, other: object) -> bool:
        return compared(self) == compared(other) if other.__class__ is self.__class__ else NotImplemented

    hashed = (lambda self: hash(compared(self))) if is_hashed else None
    methods: dict[str, Any] = {"__init__": initialize, "__eq__": equal, "__hash__": hashed, "__repr__": _repr}
    methods |= {"__getstate__": _state, "__setstate__": _set_state}
    asked = ("__dataclass_fields__", "__dataclass_params__", "__match_args__")
    namespace = {
        **{name: _Completed(name, defined) for name in asked},
        **{name: value for name, value in own.items() if name not in (*names, "__dict__", "__weakref__")},
        **{name: method for name, method in methods.items() if own.get(name) is None},
        "_defaults": defaults,
        "__qualname__": defined.__qualname__,
        "__slots__": tuple(name for name in names if name not in inherited),
    }
    kind: Any = type(defined)
    made: type[T] = kind(defined.__name__, defined.__bases__, namespace)
    return made


def _values(
    defaults: Mapping[str, Any], arguments: tuple[Any, ...], options: Mapping[str, Any]
) -> dict[str, Any] | None:
    """The value of each field; None where `__init__` would refuse the arguments."""
    given = dict(zip(defaults, arguments), **options)  # noqa: B905  # the others are options, or have defaults
    if len(given) != len(arguments) + len(options) or not given.keys() <= defaults.keys():
        return None
    values = {}
    for name, default in defaults.items():
        if name in given:
            values[name] = given[name]
        elif isinstance(default, Field) and default.default_factory is not MISSING:
            values[name] = default.default_factory()
        else:
            values[name] = default.default if isinstance(default, Field) else default
        if values[name] is MISSING:
            return None
    return values


def _says(default: Any, what: str) -> bool:
    return not isinstance(default, Field) or bool(getattr(default, what))


def _repr(self: Any) -> str:
    shown = (f"{name}={getattr(self, name)!r}" for name, each in self._defaults.items() if _says(each, "repr"))
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _state(self: Any) -> list[Any]:
    return [getattr(self, name) for name in self._defaults]


def _set_state(self: Any, state: list[Any]) -> None:
    for name, value in zip(self._defaults, state, strict=True):
        setattr(self, name, value)
