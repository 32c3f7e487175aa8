"""Small operators for tests of chains, stages and windows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import pyarrow as pa
import pyarrow.compute as pc

from dagflow import InputPort, Operator, OperatorContext, OutputPort, RecordBatch
from dagflow.api.partitioning import StreamCodec
from dagflow.errors import DagflowError, RecordError, SourceChangedError, TransientStorageError


@dataclass(frozen=True, slots=True)
class TextSample:
    """A stand-in for a block: names a text, and has a size."""

    url: str
    text: bytes
    start: int = 0

    @property
    def end(self) -> int:
        """One past the last byte."""
        return self.start + len(self.text)

    @property
    def size_bytes(self) -> int:
        """Length of the text."""
        return len(self.text)


class FirstByte(StreamCodec):
    """Keys raw records by their first byte."""

    def keys(self, items: RecordBatch) -> pa.Array:
        """The first byte of each."""
        return pa.array([record[:1] for record in items.to_pylist()], pa.binary())


class SampleWords(Operator):
    """Emits the words of each sample as records, one batch per sample."""

    samples = InputPort(TextSample)
    done = OutputPort(TextSample)
    records = OutputPort()

    @samples.each
    def read(self, sample: TextSample) -> Iterator[None]:
        """Emit a batch and pause."""
        self.records.emit(RecordBatch.from_records(sample.text.split()))
        yield
        self.done.emit(sample)


class Halves(Operator):
    """Emits both halves of each record, with a pause between them."""

    input = InputPort()
    output = OutputPort()

    @input.each
    def cut(self, record: bytes) -> Iterator[None]:
        """Emit, pause, emit."""
        middle = len(record) // 2
        self.output.emit(record[:middle])
        yield
        self.output.emit(record[middle:])


class KeepsEmitMethod(Operator):
    """Keeps the way to emit, as hot loops do; drops the records that begin with #.

    Attributes:
        since: Where it begins to keep it.
    """

    since: Literal["constructor", "setup", "first record"] = "setup"

    input = InputPort()
    output = OutputPort()

    def check_properties(self) -> None:
        """Keep it, perhaps."""
        self._emit = self.output.emit if self.since == "constructor" else None

    def setup(self, context: OperatorContext) -> None:
        """Keep it, perhaps."""
        self._emit = self.output.emit if self.since == "setup" else self._emit

    @input.each
    def take(self, record: bytes) -> None:
        """Emit what stays."""
        self._emit = self._emit or self.output.emit
        if not record.startswith(b"#"):
            self._emit(record)


class CallsFunctions(Operator):
    """Calls the given function in each of its methods; its records go through."""

    state_type = int

    input = InputPort()
    output = OutputPort()

    def __init__(self, **tasks: Callable[[CallsFunctions], Any]) -> None:
        super().__init__()
        self.tasks = tasks

    def _do(self, name: str) -> Any:
        return self.tasks[name](self) if name in self.tasks else None

    def setup(self, context: OperatorContext) -> Any:
        """Do what belongs here."""
        self.context = context
        return self._do("setup")

    @input.batch
    def take(self, batch: RecordBatch) -> Any:
        """Pass on, and do what belongs here."""
        self.output.emit(batch)
        return self._do("take")

    def begin_window(self, window_id: int) -> Any:
        """Do what belongs here."""
        return self._do("begin_window")

    def end_window(self) -> Any:
        """Do what belongs here."""
        return self._do("end_window")

    def snapshot(self) -> Any:
        """Do what belongs here."""
        return self._do("snapshot")

    def teardown(self) -> Any:
        """Do what belongs here."""
        return self._do("teardown")


class DropPrefixed(Operator):
    """Drops the records that begin with a prefix, one record at a time."""

    prefix: str = "."

    input = InputPort()
    output = OutputPort()

    @input.each
    def drop(self, record: bytes) -> None:
        """Emit what stays."""
        if not record.startswith(self.prefix.encode()):
            self.output.emit(record)


class Repeat(Operator):
    """Emits each record as often as its length says, and counts them on a second port."""

    input = InputPort()
    output = OutputPort()
    sizes = OutputPort(int)

    @input.each
    def repeat(self, record: bytes) -> None:
        """Emit none, one or many."""
        for _ in record:
            self.output.emit(record)
        self.sizes.emit(len(record))


class CountBeforeRecord(Operator):
    """Makes a raw record of one with the columns record and count."""

    input = InputPort()
    output = OutputPort()

    @input.each
    def join(self, row: dict[str, Any]) -> None:
        """Emit the count, and the record behind it."""
        self.output.emit(b"%d %s" % (row["count"], row["record"]))


class EmitsMixedColumn(Operator):
    """Emits a number for some records and text for others, in one column."""

    input = InputPort()
    output = OutputPort()

    @input.each
    def split(self, record: bytes) -> None:
        """Emit what the record looks like."""
        self.output.emit({"value": int(record) if record.isdigit() else record})


class Upper(Operator):
    """A vectorised one-to-one map that returns Arrow's own type."""

    input = InputPort()
    output = OutputPort()

    @input.batch
    def upper(self, batch: RecordBatch) -> None:
        """Emit an Arrow batch."""
        text = pc.cast(batch.record, "string")
        self.output.emit(_as_arrow(pc.cast(pc.utf8_upper(text), "binary")))


def _as_arrow(column: Any) -> Any:
    return pa.RecordBatch.from_arrays([column], ["record"])


ERRORS = {
    "KeyError": KeyError("host"),
    "DagflowError": DagflowError("the amount is negative", hint="ask the shop"),
    "SystemExit": SystemExit(3),
    "GeneratorExit": GeneratorExit(),
    "RecordError": RecordError("no amount", url="logs/b.txt", offset=7, length=1),
    "TransientStorageError": TransientStorageError("busy", url="s3://b"),
    "SourceChangedError": SourceChangedError("changed", url="s3://b"),
}


class FailsAtBadRecords(Operator):
    """Raises at a record that is called bad."""

    error: str = "KeyError"

    input = InputPort()
    output = OutputPort()

    @input.each
    def check(self, record: bytes) -> None:
        """Raise or pass on."""
        if record == b"bad":
            raise ERRORS[self.error]
        self.output.emit(record)


class Total(Operator):
    """Counts records over all windows, and says so at the end of each."""

    state_type: ClassVar[Any] = int

    input = InputPort()
    output = OutputPort()

    def __init__(self, **properties: Any) -> None:
        super().__init__(**properties)
        self.count = 0

    @input.batch
    def add(self, batch: RecordBatch) -> None:
        """Count."""
        self.count += len(batch)

    def end_window(self) -> None:
        """Say the total."""
        self.output.emit(b"%d" % self.count)

    def snapshot(self) -> int:
        """The total."""
        return self.count

    def restore(self, state: int) -> None:
        """Go on from a total."""
        self.count = state


class Slow(Operator):
    """Takes a twentieth of a second for a batch."""

    input = InputPort()
    output = OutputPort()

    @input.batch
    def delay(self, batch: RecordBatch) -> None:
        """Take the time."""
        time.sleep(0.05)
        self.output.emit(batch)
