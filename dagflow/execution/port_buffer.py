"""One output port inside a chain: gathers what an operator emits and passes it on in batches."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from dagflow.api.operator import Operator
from dagflow.api.ports import Emitter, EmitterBase, TupleBatch
from dagflow.api.records import LINE_FEED, RecordBatch
from dagflow.execution.emitted_records import (
    BATCH_BYTES,
    END_OF_CALL,
    EmittedKindError,
    EmittedRecords,
    PieceOutput,
    RecordPiece,
    batches_of,
    require_distinct,
)
from dagflow.execution.failures import BrokenContractError, shown_record

Consumer = Callable[[Any], None]

GATHERED_ITEMS = 8192
"""Items that an operator emits one by one, outside a per-record method, are passed on in groups of at most this
many."""


class PortBuffer:
    """The output port of an operator in a chain: gathers single items and passes on whole batches.

    Attributes:
        consumers: Functions that take each RecordBatch, or each list of tuples.
        current: The batch that the operator handles, whose origin an emitted Arrow batch inherits; or None.
        passed_on_bytes: Bytes of the records that were passed on, in memory.
        gathered: Waiting items, with END_OF_CALL among them while a batch is handled record by record; then it is also
            the operator's emitter. Always the same object, because an operator may keep it.
        gathered_bytes: Bytes of the raw records among them that were emitted outside a per-record method.
        is_open: Whether a window is open for the operator; at other times no operator downstream would take what it
            emits.
        is_gathering: Whether a batch is handled record by record; all that is emitted waits for the batch's end.
        records: What was emitted for the finished pieces of this batch; None where no batch is handled record by
            record, or no consumer takes it.
        admit: Returns how many of a number of records may be passed on; None for all.
    """

    __slots__ = (
        *("_has_thread_emitted", "_left", "_operator", "_thread", "admit", "consumers", "current", "emitter"),
        *("gathered", "gathered_bytes", "is_gathering", "is_open", "passed_on", "passed_on_bytes", "records"),
    )

    def __init__(self, operator: Operator, port: str) -> None:
        self._operator = operator
        self.emitter: Emitter[Any] = getattr(operator, port)
        self.consumers: list[Consumer] = []
        self.gathered = RecordEmitter(self.emitter)
        self.gathered_bytes = 0
        self.current: RecordBatch | None = None
        self.passed_on = 0
        self.passed_on_bytes = 0
        self.is_open = False
        self.is_gathering = False
        self._thread = threading.get_ident()
        self._has_thread_emitted = False
        self._left = 0
        self.records: EmittedRecords | None = None
        self.admit: Callable[[int], int] | None = None
        self.emitter.emit = self.emit

    def connect(self, consumer: Consumer) -> None:
        self.consumers.append(consumer)
        self.emitter.sinks.append(consumer)

    def open(self) -> None:
        """Open a window; from now on the operator emits in the thread that calls this."""
        self._thread = threading.get_ident()
        self.is_open = True

    def close(self) -> None:
        """Drop waiting items, as after a failure: no operator takes them."""
        self.gathered.clear()
        self._has_thread_emitted = False
        self.is_open = False

    def emit(self, item: Any) -> None:
        """Take one item from the operator; a batch is passed on at once.

        Raises:
            BrokenContractError: Another thread calls this. The operator's own thread then gets the error as well,
                because the author's thread may end without reporting it.
        """
        if threading.get_ident() != self._thread:
            self._has_thread_emitted = True
            raise self._thread_error()
        if self.is_gathering:
            # An operator that has kept this method calls it here too. Nothing is passed on now, because close_records
            # could not say which record the item belongs to.
            self.gathered.append(item)
        elif isinstance(item, RecordBatch):
            self.flush()
            self._send(item)
        elif isinstance(item, pa.RecordBatch):
            self.flush()
            self._send(RecordBatch(item) if self.current is None else self.current.derive(item))
        else:
            self.gathered.append(item)
            if isinstance(item, bytes):
                self.gathered_bytes += len(item)
            if len(self.gathered) >= GATHERED_ITEMS or self.gathered_bytes >= BATCH_BYTES:
                self.flush()

    def flush(self) -> None:
        if self._has_thread_emitted:
            raise self._thread_error()
        if not len(self.gathered):
            return
        items = self.gathered.copy()
        self._drop(len(items))
        self.gathered_bytes = 0
        if not self.emitter.port.carries_records:
            wrong = next((item for item in items if not self._carries(item)), None)
            if wrong is not None:
                raise TypeError(
                    f"port {self.emitter.port.name} carries {self.emitter.port.type_name}; got {type(wrong).__name__}"
                )
            require_distinct(items)
            self._send(items)
        else:
            self._send_all(batches_of(items, LINE_FEED))

    def _send_all(self, batches: Iterator[RecordBatch]) -> None:
        try:
            for batch in batches:
                self._send(batch)
        except EmittedKindError as error:
            shown = shown_record(error.item) or f"a {type(error.item).__name__}"
            what = f"emitted {shown} at port {self.emitter.port.name} ({error})"
            raise BrokenContractError(what, error.source) from error

    def _drop(self, count: int) -> None:
        """Drop the first gathered items: another thread may have added more behind them."""
        del self.gathered[:count]

    def _thread_error(self) -> BrokenContractError:
        port = self.emitter.port.name
        return BrokenContractError(
            f"emitted at port {port} from a thread of its own, whose place among the other records nothing says; let "
            f"threads return what they made, and call self.{port}.emit() where the operator's methods are called"
        )

    def _carries(self, item: Any) -> bool:
        kind = self.emitter.port.type
        return isinstance(item, kind) or (isinstance(item, TupleBatch) and issubclass(item.kind, kind))

    def begin_records(self, batch: RecordBatch) -> None:
        """Start to gather what a per-record method emits for a batch, until close_records."""
        self.flush()
        self.is_gathering = True
        if self.consumers:
            self.records = EmittedRecords(batch)
        # A call into Python for each record would double the cost of small operators. The operator may have kept its
        # emitter, too.
        self._replace_emitter(self.gathered)
        self.emitter.emit = self.gathered.emit

    def _replace_emitter(self, emitter: EmitterBase) -> None:
        # Bypasses the class's own __setattr__, which may allow no change after setup.
        object.__setattr__(self._operator, self.emitter.port.name, emitter)

    def take_piece(self, piece: RecordPiece) -> None:
        """Take what was emitted for a piece of the batch, with END_OF_CALL after each record if it has consumers."""
        items = self.gathered.copy()
        if self.records is not None:
            self.records.add(PieceOutput(items), piece)
        else:
            self.passed_on += len(items)
            self.passed_on_bytes += sum(len(item) for item in items if isinstance(item, bytes))
        self._drop(len(items))

    def end_records(self) -> None:
        """Stop gathering; also called if the method has failed: then the waiting items are dropped."""
        self._left = len(self.gathered)
        self._drop(self._left)
        self.is_gathering = False
        self._replace_emitter(self.emitter)
        self.emitter.emit = self.emit

    def close_records(self) -> None:
        """Pass on what a per-record method emitted for a batch."""
        # Each piece was taken with all that was emitted for it.
        if self._has_thread_emitted or self._left:
            raise self._thread_error()
        records, self.records = self.records, None
        if records is None:
            return
        if records.has_batches():
            for item in records.items():
                self.emit(item)
            self.flush()
        else:
            self._send_all(records.batches())

    @property
    def emitted(self) -> int:
        """How many records or tuples the operator has emitted; other threads may call this."""
        records = self.records
        gathered = sum(item is not END_OF_CALL for item in self.gathered.copy())
        return self.passed_on + gathered + (0 if records is None else records.count)

    def _send(self, payload: Any) -> None:
        port = self.emitter.port.name
        if not self.is_open:
            raise BrokenContractError(
                f"emitted at port {port} outside of a window: the first place is begin_window(), the last end_window()"
            )
        if isinstance(payload, RecordBatch) and payload.has_null_records:
            raise BrokenContractError(
                f"emitted at port {port} raw records that are null, and a file has no bytes for them; emit b'' for an "
                "empty record, nothing for none, or a column of another name, which may have nulls"
            )
        if self.admit is not None and (admitted := self.admit(len(payload))) < len(payload):
            payload = payload.slice(0, admitted)
        self.passed_on += len(payload)
        if isinstance(payload, RecordBatch):
            self.passed_on_bytes += payload.nbytes()
        for consumer in self.consumers:
            consumer(payload)


class RecordEmitter(list[Any], EmitterBase):
    """Gathers what a per-record method emits, in order; for the method it is an Emitter.

    Python calls a built-in method found in a class faster than a function found in an attribute: a small per-record
    method takes a sixth less time.
    """

    __slots__ = ("port", "sinks")

    emit = list.append

    def __init__(self, emitter: Emitter[Any]) -> None:
        super().__init__()
        self.port = emitter.port
        self.sinks = emitter.sinks

    def __bool__(self) -> bool:
        """True like every emitter, also while nothing is gathered."""
        return True
