"""Dataclasses that cost little to define: a command defines three hundred before it works."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any, TypeVar, cast, dataclass_transform

T = TypeVar("T")


_compiling = threading.Lock()


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(defined: type[T]) -> type[T]:
    """A dataclass with slots that can be compared and hashed, and that type checkers keep from being changed.

    `dataclass(frozen=True, slots=True)` compiles six functions for each class, which takes twenty times as long. This
    compiles `__init__` when the first value is made, and nothing else. Nothing refuses a change when it runs.
    """
    return _made(defined, is_hashed=True)


@dataclass_transform(field_specifiers=(field,))
def mutable(defined: type[T]) -> type[T]:
    """A dataclass with slots that can be compared, as frozen() makes it, for values that change."""
    return _made(defined, is_hashed=False)


def _made(defined: type[T], *, is_hashed: bool) -> type[T]:
    own = dict(vars(defined))
    made = dataclass(init=False, slots=True, eq=False, repr=False)(defined)
    items = fields(cast("Any", made))
    if not all(item.init for item in items):
        raise TypeError(
            f"{defined.__qualname__} has a field that __init__ does not take, as only a plain dataclass may"
        )
    names = [item.name for item in items if item.compare]
    compared = attrgetter("__class__", *names)

    def compiling(self: T, *arguments: Any, **options: Any) -> None:
        with _compiling:
            if vars(made)["__init__"] is compiling:
                # The class as it was defined, which has no slots: defaults are its attributes again.
                for name in own.keys() & own.get("__annotations__", {}).keys():
                    setattr(defined, name, own[name])
                setattr(made, "__init__", dataclass(eq=False, repr=False)(defined).__init__)  # noqa: B010  # for mypy
        made.__init__(self, *arguments, **options)

    def equal(self: T, other: object) -> bool:
        return compared(self) == compared(other) if other.__class__ is self.__class__ else NotImplemented

    hashed = (lambda self: hash(compared(self))) if is_hashed else None
    methods = {"__init__": compiling, "__eq__": equal, "__hash__": hashed, "__repr__": _repr}
    for name, method in methods.items():
        if own.get(name) is None:
            setattr(made, name, method)
    return made


def _repr(self: Any) -> str:
    shown = (f"{item.name}={getattr(self, item.name)!r}" for item in fields(self) if item.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"
