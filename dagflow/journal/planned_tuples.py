"""The tuples of a plan as JSON: encoded by their class, and read back with or without the app that planned them."""

from __future__ import annotations

import importlib
import itertools
import operator
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any

from pydantic import PydanticUserError, TypeAdapter, ValidationError

from dagflow.api.ports import TupleBatch, unbatched
from dagflow.api.saved_values import RowTable, RowTuple, require_version, unknown_tuples
from dagflow.api.sources import SourceRange, is_source_range
from dagflow.errors import ANOTHER_CHECKPOINT, JournalError, text_of
from dagflow.journal.frames import compressed, decompressed
from dagflow.journal.windows import WindowPlan


class TupleError(ValueError):
    """An author's tuple would not come back from the journal as it was emitted."""


@cache
def _adapter(kind: type) -> TypeAdapter[list[Any]]:
    return TypeAdapter(list[kind])  # type: ignore[valid-type]  # the element type is known at run time only


def encode_tuples(kind: Any, tuples: list[Any]) -> Any:
    """Tuples and tuple batches of a class as a JSON value.

    Its `groups` are tuple batches, each with its version and fields, and lists of tuples. The tuples of a RowTuple are
    rows without names: the version and the fields of all rows are beside the groups.

    Raises:
        TupleError: The journal cannot keep one of the tuples.
    """
    groups: list[Any] = []
    encoded: dict[str, Any] = {"groups": groups}
    for is_batch, group in itertools.groupby(tuples, lambda item: isinstance(item, TupleBatch)):
        if is_batch:
            groups += map(_encoded_batch, group)
        elif issubclass(kind, RowTuple):
            table = kind.to_table(group)
            encoded |= {"version": table.version, "fields": table.fields}
            groups.append(table.rows)
        else:
            groups.append(_encoded_rows(kind, list(group)))
    # A plan is held until its window is published; names and numbers as Python objects would take 150 bytes a file.
    return compressed(encoded)


def _encoded_batch(batch: TupleBatch) -> dict[str, Any]:
    return {"batch": kind_name(type(batch)), "version": batch.json_version, "value": batch.to_json()}


def _encoded_rows(kind: type, tuples: list[Any]) -> Any:
    try:
        adapter = _adapter(kind)
    except PydanticUserError as error:
        raise TupleError(f"a {kind.__name__} cannot be kept in the journal: it is no dataclass") from error
    try:
        encoded = adapter.dump_python(tuples, mode="json", warnings="error")
        read = adapter.validate_python(encoded)
    except ValueError as error:
        raise TupleError(f"a {kind.__name__} cannot be kept in the journal: {text_of(error)}") from error
    for item, back in zip(tuples, read, strict=True):
        # A NaN is not equal to itself.
        if type(item) is not type(back) or (item != back and repr(item) != repr(back)):
            raise TupleError(f"{item!r} would come back from the journal as {back!r}")
    return encoded


def decode_tuples(kind: Any, encoded: Any) -> list[Any]:
    value = decompressed(encoded)
    tuples: list[Any] = []
    for group in value["groups"]:
        if isinstance(group, dict):
            tuples.append(_decoded_batch(group))
        elif issubclass(kind, RowTuple):
            tuples += kind.from_table(RowTable(value["version"], value["fields"], group))
        else:
            tuples += _decoded_rows(kind, group)
    return tuples


def _decoded_rows(kind: type, rows: list[Any]) -> list[Any]:
    try:
        return _adapter(kind).validate_python(rows)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        what = f"{'.'.join(map(str, first['loc'][1:]))}: {first['msg']}"
        raise JournalError(
            f"the checkpoint holds {kind.__name__} of another form than its class has now: {what}",
            hint="give each new field of the class a default, and keep the types of the others; or "
            f"{ANOTHER_CHECKPOINT}",
        ) from error


def _decoded_batch(encoded: dict[str, Any]) -> Any:
    kind: Any = _imported(encoded["batch"])
    if kind is None:
        raise unknown_tuples(f"batches of tuples of {encoded['batch']}, which no longer exists")
    require_version(kind, encoded["version"], kind.json_version)
    return kind.from_json(encoded["value"])


def kind_name(kind: type) -> str:
    """A tuple class as `module:name`, by which readers of a plan import it."""
    return f"{kind.__module__}:{kind.__qualname__}"


def cut(items: Sequence[Any], lengths: Iterable[int]) -> Iterator[list[Any]]:
    rest = iter(items)
    return (list(itertools.islice(rest, length)) for length in lengths)


def planned_tuples(planned: WindowPlan) -> Iterator[tuple[str, int | None, Any]]:
    """Read which tuples a plan assigns to which partition, without the app that made it.

    Yields:
        The input port, the partition (None for all), and a tuple. Ports whose class cannot be imported here are
        left out.
    """
    for port, port_tuples in planned.inputs.items():
        kind = _imported(port_tuples.kind)
        if kind is None:
            continue
        items = decode_tuples(kind, port_tuples.tuples)
        if port_tuples.lengths is None:
            yield from ((port, None, item) for item in items)
            continue
        for partition, part in enumerate(cut(items, port_tuples.lengths)):
            yield from ((port, partition, item) for item in part)


def planned_blocks(planned: WindowPlan) -> Iterator[tuple[str, int | None, Any]]:
    """As planned_tuples(), with the members of tuple batches one by one, those of empty files among them."""
    for port, partition, item in planned_tuples(planned):
        members = item.members() if isinstance(item, TupleBatch) else (item,)
        yield from ((port, partition, member) for member in members)


def source_ranges(planned: WindowPlan) -> Iterator[SourceRange]:
    """The parts of versions of files in a plan."""
    return filter(is_source_range, unbatched(item for _, _, item in planned_tuples(planned)))


def _imported(name: str) -> type | None:
    module, _, qualname = name.partition(":")
    try:
        kind = operator.attrgetter(qualname)(importlib.import_module(module))
    except (ImportError, AttributeError, ValueError):
        return None
    return kind if isinstance(kind, type) else None


def class_of(item: Any) -> type:
    """The class of a tuple, or of the tuples of a tuple batch."""
    return item.kind if isinstance(item, TupleBatch) else type(item)


def require_importable(kind: type) -> None:
    """Refuse a class that the next run cannot find by its name.

    Raises:
        TupleError: No module has it under its name.
    """
    if _imported(kind_name(kind)) is not kind:
        raise TupleError(f"a {kind.__name__} cannot be kept in the journal: no module has it under its name")


def class_named(name: str, taker: str) -> type:
    kind = _imported(name)
    if kind is None:
        module, _, qualname = name.partition(":")
        raise JournalError(
            f"a tuple that was planned for operator '{taker}' needs {module}.{qualname}, which no longer exists",
            hint=f"keep '{qualname}' in module '{module}' as another name of what the class is now, and import that "
            f"module in the operator's; or {ANOTHER_CHECKPOINT}",
        )
    return kind
