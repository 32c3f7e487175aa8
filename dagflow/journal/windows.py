"""The journal's information about a window: its plan, its intent, and when each step happened."""

from __future__ import annotations

import importlib
import itertools
import operator
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field, replace
from functools import cache
from itertools import pairwise
from typing import Any, ClassVar, Final

from pydantic import PydanticUserError, TypeAdapter, ValidationError

from dagflow.api.context import Skipped, WaitingEnd
from dagflow.api.ports import TupleBatch, unbatched
from dagflow.api.saved_values import RowTable, RowTuple, require_version, unknown_tuples
from dagflow.api.sources import SourceRange, is_source_range
from dagflow.api.transactions import ColumnChange
from dagflow.errors import ANOTHER_CHECKPOINT, JournalError, own_name, text_of
from dagflow.frozen import frozen
from dagflow.journal.frames import Compressed, decompressed
from dagflow.journal.saved_state import CommittedState, ControlState
from dagflow.metrics.counters import Counters
from dagflow.storage.location import name_of, redacted
from dagflow.storage.pending import PendingFile

PHASES: Final = ("plan", "queue", "run", "commit", "publish")
"""The phases of a window from the end of its emission on: it is planned, waits for a task, its tasks run, it waits for
its turn and is committed, and its files are published."""


@frozen
class PlannedTuples:
    """Tuples that a window gives to one input port.

    Attributes:
        kind: The class of the tuples as `module:name`, for readers of a plan without its app.
        tuples: The tuples, encoded by their class.
        lengths: How many tuples each partition gets, in order; None where every partition gets all.
        sources: The output ports that they came from; an app with other names finds the receiving ports by them.
    """

    kind: str
    tuples: Any
    lengths: list[int] | None
    sources: list[str] = field(default_factory=list)


@frozen
class PartitionDecision:
    """A change of a stage's partition count.

    Attributes:
        window: The window whose plan has it; 0 before it is planned.
        before: The old count, 0 at the start.
    """

    window: int
    stage: str
    backlog: int
    before: int
    after: int
    reason: str


@frozen
class SideVersion:
    """The version of a side input that a window sees, and its copy in the checkpoint until the window is committed."""

    version: str
    copy: str


@frozen
class WindowPlan:
    """What a window will do; durable before any of it runs.

    Attributes:
        window_id: The window, counted from 1 without a gap.
        config_hash: Hash of the app that planned it; see AppFacts.
        partitions: How many partitions each stage has, by its head.
        control_state: State of the control operators after the window was emitted.
        counters: What the control operators counted; added up when the window is committed.
        closes: Operators whose held results this window publishes; it has no input then, and only stages behind them
            run.
        retries: Windows whose refused records the window takes over: it accepts them or refuses them once more.
        keeps_states: Whether control_state is that of the window before, because control operators with state took no
            part in this one.
        takes: The newest window whose held files this window takes in, by operator; it takes those of earlier ones too.
        discovered_ms: When its oldest input was discovered, in milliseconds since 1970; 0 where that is not known.
        side_inputs: The versions of side inputs that the window sees, by operator.
        emitted_after: The newest window that was committed when this one was emitted: the emitted tuples depend on what
            could be read by then.
        corrects: Whether the window is published together with those that lose the versions which it replaces.
    """

    kind: ClassVar[str] = "PLAN"

    window_id: int
    config_hash: str = ""
    inputs: dict[str, PlannedTuples] = field(default_factory=dict)
    partitions: dict[str, int] = field(default_factory=dict)
    decisions: list[PartitionDecision] = field(default_factory=list)
    control_state: ControlState = field(default_factory=ControlState)
    counters: Counters = field(default_factory=Counters)
    emitted_ms: int = 0
    planned_ms: int = 0
    holds: list[str] = field(default_factory=list)
    closes: list[str] = field(default_factory=list)
    retries: list[int] = field(default_factory=list)
    takes: dict[str, int] = field(default_factory=dict)
    keeps_states: bool = False
    discovered_ms: int = 0
    side_inputs: dict[str, SideVersion] = field(default_factory=dict)
    emitted_after: int = 0
    corrects: bool = False

    @property
    def waits_since_ms(self) -> int:
        """Since when its oldest input waits to be published, in milliseconds since 1970, as far as that is known."""
        return self.discovered_ms or self.emitted_ms

    def without_state(self) -> WindowPlan:
        """The plan in the form that is kept for queries about the window."""
        return replace(self, control_state=ControlState())


@frozen
class ProducedFiles:
    """How many of a window's files, in their order, one partition of a stage wrote; sources as by encode_sources()."""

    stage: str
    partition: int
    files: int
    sources: list[list[int]] = field(default_factory=list)


@frozen
class RefusedPart:
    """The records that one task of a window refused, as written by RefusedRecords.to_bytes()."""

    operator: str
    records: bytes


@frozen
class Correction:
    """Files of which a window has read another version, in place of the one that an output had, or none.

    Attributes:
        files: Their locations, the first of them.
        output: The operator whose target it is, or where the files are published.
        rows_out: Records of the earlier versions that the output has lost.
        rows_in: Records of the later ones that it has got.
        version: The target's name for its state with both; "" where it has none.
        deleted: How many of the files are gone, so that there is no later version.
        place: The short name of the target; "" where it has none.
    """

    window_id: int
    files: list[str]
    count: int
    output: str
    rows_out: int
    rows_in: int
    version: str = ""
    deleted: int = 0
    place: str = ""

    @property
    def text(self) -> str:
        """For people, such as "a.csv was corrected: 3 rows out, 4 in (orders, version 7)"."""
        name, rows = name_of(self.files[0]), "row" if self.rows_out == 1 else "rows"
        what = f"{name} was" if self.count == 1 else f"{self.count:,} files, such as {name}, were"
        place = ", ".join(filter(None, (self.place or own_name(name_of(redacted(self.output))), self.version)))
        if self.deleted == self.count:
            return f"{what} deleted: {self.rows_out:,} {rows} out ({place})"
        did = "corrected or deleted" if self.deleted else "corrected"
        rows_in = f", {self.rows_in:,} in" if self.rows_in else ""  # of a replay, those have come in before
        return f"{what} {did}: {self.rows_out:,} {rows} out{rows_in} ({place})"


@frozen
class WindowIntent:
    """The results of a window; once the intent is durable, the window's files will be published.

    Attributes:
        window_id: The window; intents come in the order of windows.
        state: State of the operators that depend on results, after the window.
        produced: Where the files come from, in their order.
        started_ms: When its first task began, in milliseconds since 1970.
        recovered: Ranges that earlier windows had left out, and this one has read; for a replayed window, ranges that
            it had left out itself.
        waiting: The ends of files that it has left, because they may go on.
        ended: The ends that earlier windows had left, and this one has read.
        refused: Where the records are that operators refused.
        held: Files that the window holds back until a later one takes them.
        columns: The changes that its files make to the columns of targets, by operator.
        task_ms: How long the task of each partition took, in milliseconds, by head of the stage.
        accounting: What its operators booked into the byte accounting; see saved_state.Booked.
        corrections: What it changes beside what it adds, output by output.
    """

    kind: ClassVar[str] = "INTENT"

    window_id: int
    files: list[PendingFile] = field(default_factory=list)
    counters: Counters = field(default_factory=Counters)
    state: CommittedState = field(default_factory=CommittedState)
    skipped: list[Skipped] = field(default_factory=list)
    produced: list[ProducedFiles] = field(default_factory=list)
    busy_s: dict[str, float] = field(default_factory=dict)
    started_ms: int = 0
    finished_ms: int = 0
    committed_ms: int = 0
    recovered: list[Skipped] = field(default_factory=list)
    waiting: list[WaitingEnd] = field(default_factory=list)
    ended: list[WaitingEnd] = field(default_factory=list)
    refused: list[RefusedPart] = field(default_factory=list)
    held: list[PendingFile] = field(default_factory=list)
    columns: dict[str, list[ColumnChange]] = field(default_factory=dict)
    task_ms: dict[str, list[int]] = field(default_factory=dict)
    accounting: dict[str, dict[str, int]] = field(default_factory=dict)
    corrections: list[Correction] = field(default_factory=list)

    def without_state(self) -> WindowIntent:
        """The intent in the form that is kept for queries about the window."""
        held = [PendingFile(file.final_url, file.pending_url, file.size_bytes, file.records) for file in self.held]
        return replace(self, state=CommittedState(), held=held)


@frozen
class ColumnHistory:
    """A change of a target's columns, and when it was decided; kept as long as the checkpoint."""

    window_id: int
    committed_ms: int
    operator: str
    change: ColumnChange


@frozen
class Receipt:
    """The newest known state of a transactional target.

    Attributes:
        window_id: The newest done window that has added something to the target.
        version: The target's name for its state with that window, or with a replay after it.
        target: How messages name the target.
        elsewhere: The newest window that went into another target before, 0 for none.
    """

    window_id: int
    version: str
    target: str = ""
    elsewhere: int = 0

    @property
    def place(self) -> str:
        """The target's name without kind and location, such as "orders" of "table delta:/srv/out/orders"."""
        return re.split("[/:#]", self.target)[-1]

    def followed_by(self, window_id: int, version: str, target: str) -> Receipt:
        return Receipt(window_id, version, target, self.elsewhere if target == self.target else self.window_id)


@frozen
class Window:
    """The journal's information about a window; the intent is None, and published_ms 0, as long as there is none.

    Attributes:
        receipts: Each transactional target's name for its state with the window, by operator.
    """

    plan: WindowPlan
    intent: WindowIntent | None = None
    published_ms: int = 0
    receipts: dict[str, str] = field(default_factory=dict)

    def phase_ms(self) -> dict[str, int]:
        """How long each phase of the window took, in milliseconds; see PHASES. Unknown ones are left out."""
        did = self.intent or WindowIntent(self.plan.window_id)
        moments = self.plan.emitted_ms, self.plan.planned_ms, did.started_ms, did.finished_ms, did.committed_ms
        steps = zip(PHASES, pairwise([*moments, self.published_ms]), strict=True)
        return {phase: max(end - start, 0) for phase, (start, end) in steps if start and end}


class TupleError(ValueError):
    """An author's tuple would not come back from the journal as it was emitted."""


@cache
def _adapter(kind: type) -> TypeAdapter[list[Any]]:
    return TypeAdapter(list[kind])  # type: ignore[valid-type]  # the element type is known at run time only


def encode_tuples(kind: Any, tuples: list[Any]) -> Any:
    """Tuples and tuple batches of a class as a JSON value.

    Its `groups` are tuple batches, each with its version and fields, and lists of tuples. The tuples of a RowTuple are
    rows without names: the version and the fields of all rows are beside the groups. A TupleError says which tuple the
    journal cannot keep.
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
    return Compressed(encoded)


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
    """Refuse a class that the next run cannot find by its name, with a TupleError."""
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
