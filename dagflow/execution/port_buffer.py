"""One output port inside a chain: gathers what an operator emits and passes it on in batches."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from dagflow.api.ports import Emitter, TupleBatch
from dagflow.api.records import LINE_FEED, BatchTooLargeError, Delimiters, Origin, RecordBatch
from dagflow.execution.failures import BrokenContractError

Consumer = Callable[[Any], None]

GATHERED_ITEMS = 8192
"""Items that an operator emits one by one, outside a per-record method, go on in groups of this many at most."""

BATCH_BYTES = 8 << 20
"""Records that an operator emits one by one go on in batches of about this many bytes at most, or of one longer record:
Arrow has no batch of raw records above 2 GiB, and Spark takes 32 batches into its heap before it may spill."""


class PortBuffer:
    """The output port of an operator in a chain: gathers single items and passes on whole batches.

    Attributes:
        emitter: The operator's side of the port.
        consumers: Functions that take each RecordBatch, or each list of tuples.
        current: The batch that the operator handles, whose origin an emitted Arrow batch inherits; or None.
        emitted: Number of records or tuples that were passed on.
        emitted_bytes: Bytes of the records that were passed on, in memory.
        gathered: Items that wait to be passed on; always the same list, because an operator may keep its append.
        gathered_bytes: Bytes of the raw records among them that were emitted outside a per-record method.
        is_ended: Whether the operator's window has ended; no operator downstream would take what comes later.
        is_gathering: Whether a batch is handled record by record; all that is emitted waits for the batch's end.
        take: Says how many of some records may be passed on; None for all.
    """

    __slots__ = (
        *("consumers", "current", "emitted", "emitted_bytes", "emitter"),
        *("gathered", "gathered_bytes", "is_ended", "is_gathering", "take"),
    )

    def __init__(self, emitter: Emitter[Any]) -> None:
        self.emitter = emitter
        self.consumers: list[Consumer] = []
        self.gathered: list[Any] = []
        self.gathered_bytes = 0
        self.current: RecordBatch | None = None
        self.emitted = 0
        self.emitted_bytes = 0
        self.is_ended = False
        self.is_gathering = False
        self.take: Callable[[int], int] | None = None
        emitter.emit = self.emit

    def connect(self, consumer: Consumer) -> None:
        """Send all that is emitted to a consumer."""
        self.consumers.append(consumer)
        self.emitter.sinks.append(consumer)

    def emit(self, item: Any) -> None:
        """Take one item from the operator; a batch is passed on at once."""
        if self.is_gathering:
            # An operator that has kept this method calls it here too. Nothing is passed on now: close_records
            # could not say which record it belongs to.
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
        """Pass on the single items gathered so far."""
        if not self.gathered:
            return
        items = self._taken()
        if not self.emitter.port.carries_records:
            wrong = next((item for item in items if not self._carries(item)), None)
            if wrong is not None:
                raise TypeError(
                    f"port {self.emitter.port.name} carries {self.emitter.port.type_name}; got {type(wrong).__name__}"
                )
            self._send(items)
        else:
            self._send_records(items, LINE_FEED, None)

    def _taken(self) -> list[Any]:
        items = self.gathered.copy()
        self.gathered.clear()
        self.gathered_bytes = 0
        return items

    def _carries(self, item: Any) -> bool:
        kind = self.emitter.port.type
        return isinstance(item, kind) or (isinstance(item, TupleBatch) and issubclass(item.kind, kind))

    def close_records(self, batch: RecordBatch, ends: list[int]) -> None:
        """Pass on what a per-record method emitted for a batch.

        Args:
            batch: The batch that the method was called with, record by record.
            ends: For each record of the batch, how many records had been emitted after it.
        """
        items = self._taken()
        if not self.consumers:
            self.emitted += len(items)
            self.emitted_bytes += sum(len(item) for item in items if isinstance(item, bytes))
            return
        if any(issubclass(kind, (RecordBatch, pa.RecordBatch)) for kind in set(map(type, items))):
            for item in items:
                self.emit(item)
            self.flush()
            return
        delimiters, origin = batch.delimiters, batch.origin
        if len(items) != len(batch) or ends != list(range(1, len(items) + 1)):
            counts = np.diff(np.array([0, *ends]))
            sources = np.repeat(np.arange(len(batch)), counts)
            delimiters = delimiters.take(sources)
            origin = None if origin is None else origin.select(sources)
        self._send_records(items, delimiters, origin)

    def begin_records(self) -> None:
        """Make what a per-record method emits wait for close_records."""
        self.flush()
        self.is_gathering = True
        # The list's own append: a call into Python for each record would double the cost of small operators.
        self.emitter.emit = self.gathered.append

    def end_records(self) -> None:
        """Pass on again what is emitted; called also where the method has failed."""
        self.is_gathering = False
        self.emitter.emit = self.emit

    def _send_records(self, items: list[Any], delimiters: Delimiters, origin: Origin | None) -> None:
        batch: RecordBatch | None = None
        with contextlib.suppress(BatchTooLargeError):
            batch = RecordBatch.from_records(items, delimiters, origin)
        if batch is not None and not (batch.is_raw and batch.to_arrow().nbytes > BATCH_BYTES):
            self._send(batch)
            return
        for start, end in itertools.pairwise((0, *_batch_ends(items))):
            chosen = np.arange(start, end)
            part = None if origin is None else origin.select(chosen)
            self._send(RecordBatch.from_records(items[start:end], delimiters.take(chosen), part))

    def _send(self, payload: Any) -> None:
        if self.is_ended:
            port = self.emitter.port.name
            raise BrokenContractError(f"emitted at port {port} after the window's end; the last place is end_window()")
        if self.take is not None and (taken := self.take(len(payload))) < len(payload):
            payload = payload.take(np.arange(taken))
        self.emitted += len(payload)
        if isinstance(payload, RecordBatch):
            self.emitted_bytes += payload.nbytes()
        for consumer in self.consumers:
            consumer(payload)


def _batch_ends(records: list[bytes]) -> list[int]:
    """Ends of the batches into which records of many bytes are divided."""
    ends, held = [], 0
    for position, record in enumerate(records):
        if held and held + len(record) > BATCH_BYTES:
            ends.append(position)
            held = 0
        held += len(record)
    return [*ends, len(records)]
