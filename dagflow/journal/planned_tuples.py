"""The tuples of a plan as JSON: encoded by their class, and read back with or without the app that planned them."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any

from pydantic import TypeAdapter

from dagflow.journal.frames import compressed, decompressed
from dagflow.journal.records import WindowPlan

ALL_PARTITIONS = "all"
"""Stands for the assignment of tuples that every partition gets."""


@cache
def _adapter(kind: type) -> TypeAdapter[list[Any]]:
    return TypeAdapter(list[kind])  # type: ignore[valid-type]  # the element type is known at run time only


def encode_tuples(kind: type, tuples: list[Any]) -> Any:
    """Tuples as a JSON value: by the class's own pack, which may fold many into few, or field by field."""
    own = getattr(kind, "pack", None)
    # A plan is held until its window is published; names and numbers as Python objects would take 150 bytes a file.
    return compressed(own(tuples)) if own is not None else _adapter(kind).dump_python(tuples, mode="json")


def decode_tuples(kind: type, encoded: Any) -> list[Any]:
    """The tuples that encode_tuples() was given."""
    own = getattr(kind, "unpack", None)
    return list(own(decompressed(encoded))) if own is not None else _adapter(kind).validate_python(encoded)


def kind_name(kind: type) -> str:
    """A tuple class as `module:name`, by which readers of a plan import it."""
    return f"{kind.__module__}:{kind.__qualname__}"


def cut(items: Sequence[Any], lengths: Iterable[int]) -> Iterator[list[Any]]:
    """Cut items into consecutive parts of these lengths."""
    rest = iter(items)
    return (list(itertools.islice(rest, length)) for length in lengths)


def planned_tuples(planned: WindowPlan) -> Iterator[tuple[str, int | None, Any]]:
    """Read which tuples a plan assigns to which partition, without the app that made it.

    Yields:
        The input port, the partition (None for all), and a tuple. Ports whose class cannot be imported here are
        left out.
    """
    for port, encoded in planned.tuples.items():
        module, _, name = planned.kinds.get(port, "").partition(":")
        try:
            kind = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError, ValueError):
            continue
        items, lengths = decode_tuples(kind, encoded), planned.assignments[port]
        if lengths == ALL_PARTITIONS:
            yield from ((port, None, item) for item in items)
            continue
        for partition, part in enumerate(cut(items, lengths)):
            yield from ((port, partition, item) for item in part)
