"""A chain: operators wired together in one process, which pass batches on by plain calls."""

from __future__ import annotations

import contextlib
import inspect
import logging
import os
import sys
import time
from collections.abc import Callable, Collection, Generator, Hashable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from dagflow.api.capabilities import Accumulator, TupleReader
from dagflow.api.columns.column_values import ColumnValuesError
from dagflow.api.context import Counts, OperatorContext
from dagflow.api.keyed_state import KeyedOperator
from dagflow.api.operator import GENERATOR, Operator
from dagflow.api.ports import unbatched
from dagflow.api.records import RecordBatch
from dagflow.errors import DagflowError, OperatorError
from dagflow.execution.emitted_records import PIECE_RECORDS, PieceSource, call_with_each
from dagflow.execution.failures import (
    FAILURES,
    NO_INPUT,
    ActiveCall,
    BrokenContractError,
    FailedInput,
    is_complete,
    operator_error,
    refuse_asynchronous,
    restored,
    shown_record,
)
from dagflow.execution.port_buffer import Consumer, PortBuffer
from dagflow.execution.state_codec import StateCodec
from dagflow.execution.task_process import end_if_forked
from dagflow.journal.saved_state import SavedState
from dagflow.metrics.counters import Counters, OperatorCounters, OperatorReport
from dagflow.plan.physical import Edge, PortRef

_FRAMES_OF_AN_OPERATOR = 16
"""More than the calls by which a batch passes an operator, which are within those of the operator before it."""

_FRAMES_OF_PYTHON = sys.getrecursionlimit()


class Chain:
    """Operator instances wired by edges.

    Args:
        partition: The partition, for errors; -1 in the driver.

    Attributes:
        calls: The calls that have not ended, outermost first; a paused generator is among them.
    """

    def __init__(
        self,
        operators: Mapping[str, Operator],
        edges: Iterable[Edge],
        counters: Mapping[str, Counts],
        *,
        partition: int = -1,
        owns_process: bool = False,
    ) -> None:
        self.operators = dict(operators)
        self.counters = counters
        self.window_id = -1
        self.partition = partition
        self._owns_process = owns_process
        self.buffers: dict[PortRef, PortBuffer] = {}
        self.clock = OperatorClock(self.operators)
        self._taken = Counters()
        self._pid = os.getpid()
        self.active_call: ActiveCall | None = None
        self.calls: list[ActiveCall] = []
        self.steps = 0
        self.on_step: Callable[[], None] | None = None
        self._set_up: list[str] = []
        self._were_keyed: set[str] = set()
        self._buffers: dict[str, list[PortBuffer]] = {}
        for name, operator in self.operators.items():
            own = {PortRef(name, port): PortBuffer(operator, port) for port in operator.output_ports}
            self.buffers |= own
            self._buffers[name] = [*own.values()]
        for edge in edges:
            self.connect(edge.source, self.consumer_of(edge.target))
        frames = _FRAMES_OF_PYTHON + _FRAMES_OF_AN_OPERATOR * len(self.operators)
        sys.setrecursionlimit(max(sys.getrecursionlimit(), frames))

    def connect(self, source: PortRef, consumer: Consumer) -> None:
        self.buffers[source].connect(consumer)

    def consumer_of(self, target: PortRef) -> Consumer:
        """A function that passes its payload to an input port."""

        def consume(payload: Any) -> None:
            for _ in self.feed(target, payload):
                pass

        return consume

    def feed(self, target: PortRef, payload: Any) -> Generator[None]:
        """Pass a RecordBatch or a list of tuples to an input port.

        Yields:
            Whenever an operator pauses between pieces of its work, so that the caller can pass on what it emitted.
        """
        end_if_forked(self._pid, self.active_call.operator if self.active_call is not None else target.operator)
        operator = self.operators[target.operator]
        mode, name = operator.handlers[target.port]
        method = getattr(operator, name)
        buffers = self._buffers[target.operator]
        if isinstance(payload, list) and not operator.input_ports[target.port].takes_tuple_batches:
            payload = list(unbatched(payload))
        if mode == "batch":
            for buffer in buffers:
                buffer.current = payload if isinstance(payload, RecordBatch) else None
            yield from self._guarded(target.operator, method, payload)
            for buffer in buffers:
                buffer.current = None
        elif isinstance(payload, RecordBatch):
            before = self.clock.switch(target.operator)
            try:
                self._feed_each_record(target.operator, method, payload, buffers)
            finally:
                self.clock.switch(before)
        else:
            if isinstance(operator, TupleReader):
                self.call(target.operator, operator.prefetch, payload)
            for item in payload:
                yield from self._guarded(target.operator, method, item)

    def _begin(self, active_call: ActiveCall) -> ActiveCall | None:
        before, self.active_call = self.active_call, active_call
        self.calls.append(active_call)
        if self.on_step is not None:
            self.on_step()
        return before

    def _end(self, ended: ActiveCall, before: ActiveCall | None) -> None:
        self.calls.remove(ended)
        if self.active_call is not None:
            end_if_forked(self._pid, self.active_call.operator)
        self.active_call = before
        self.steps += 1

    def mark(self) -> Hashable:
        """A mark of the chain's progress: equal as long as the chain has done nothing; other threads may call this."""
        return self.steps, tuple(buffer.passed_on for buffer in self.buffers.values())

    def mark_of(self, call: ActiveCall, emitted: int) -> Hashable:
        """A mark of the input that a call has taken; other threads may call this.

        Emitted records are no input: a handler may emit for ever. How many records a handler of a batch has taken
        cannot be seen, so its emitted records count as taken, up to the length of the batch.
        """
        counted = sum(list(self.counters[call.operator].values()))
        if call.piece is not None:
            return call.taken, counted
        records = len(call.payload) if isinstance(call.payload, RecordBatch) else 0
        return min(emitted, records), counted

    def emitted_by(self, operator: str) -> int:
        """How many records and tuples an operator has emitted; other threads may call this."""
        return sum(buffer.emitted for buffer in self._buffers[operator])

    def _guarded(self, operator: str, method: Callable[[Any], Any], payload: Any) -> Iterator[None]:
        before = self.clock.switch(operator)
        earlier = self._begin(active_call := ActiveCall(operator, method, payload))
        try:
            result = method(payload)
            if result is not None:
                for _ in self._steps(operator, result):
                    self.flush(operator)
                    self.clock.switch(before)
                    self.active_call = earlier
                    yield
                    self.clock.switch(operator)
                    self.active_call = active_call
            self.flush(operator)
        except FAILURES as error:
            if self._is_complete(error):
                raise
            raise self._failure(operator, method, error, FailedInput.of(payload)) from error
        finally:
            self.clock.switch(before)
            self._end(active_call, earlier)

    def _steps(self, operator: str, result: object) -> Iterator[None]:
        refuse_asynchronous(result)
        if isinstance(result, Iterator):
            pieces = result
            while True:
                try:
                    value = next(pieces)
                except StopIteration as end:
                    result = end.value
                    break
                if value is not None:
                    raise self._not_emitted(operator, "yielded", value)
                yield
        # A sink emits nothing, and may return anything.
        if result is not None and self.operators[operator].output_ports:
            raise self._not_emitted(operator, "returned", result)

    def _not_emitted(self, operator: str, what: str, value: object) -> BrokenContractError:
        port = next(iter(self.operators[operator].output_ports), "PORT")
        return BrokenContractError(
            f"{what} {type(value).__name__}; emit with self.{port}.emit(...), values that are {what} are dropped"
        )

    def _feed_each_record(
        self, operator: str, method: Callable[[Any], Any], batch: RecordBatch, buffers: list[PortBuffer]
    ) -> None:
        watched = [buffer for buffer in buffers if buffer.emitter.port.carries_records]
        for buffer in watched:
            buffer.begin_records(batch)
        earlier = self._begin(active_call := ActiveCall(operator, method, batch, (iter(()), 0)))
        try:
            source = PieceSource(batch)
            for start in range(0, len(batch), PIECE_RECORDS):
                self._feed_piece(active_call, source, start, watched)
        finally:
            self._end(active_call, earlier)
            for buffer in watched:
                buffer.end_records()
        # Errors of operators downstream are complete. Otherwise the values do not make a batch, for which Arrow raises
        # errors of many types.
        with self._located(active_call):
            for buffer in watched:
                buffer.close_records()

    def _feed_piece(self, active_call: ActiveCall, source: PieceSource, start: int, watched: list[PortBuffer]) -> None:
        method = active_call.method
        with self._located(active_call):
            piece = source.piece(start)
        iterator = iter(piece.records)
        active_call.piece = iterator, start + len(piece.records)

        def end(result: object) -> None:
            for _ in self._steps(active_call.operator, result):
                pass

        try:
            call_with_each(method, iterator, end, [buffer.gathered for buffer in watched if buffer.consumers])
        except FAILURES as error:
            if self._is_complete(error):
                raise
            at = active_call.taken - 1
            failed = replace(FailedInput.of(active_call.payload, at), record=shown_record(piece.records[at - start]))
            raise self._failure(active_call.operator, method, error, failed) from error
        with self._located(active_call):
            for buffer in watched:
                buffer.take_piece(piece)

    @contextlib.contextmanager
    def _located(self, active_call: ActiveCall) -> Iterator[None]:
        try:
            yield
        except FAILURES as error:
            if self._is_complete(error):
                raise
            payload = active_call.payload
            source = error.source if isinstance(error, ColumnValuesError | BrokenContractError) else -1
            failed = FailedInput.of(payload, source)
            if source >= 0:
                failed = replace(failed, record=shown_record(payload.slice(source, 1).to_pylist()[0]))
            raise self._failure(active_call.operator, active_call.method, error, failed) from error

    def _is_complete(self, error: BaseException) -> bool:
        return is_complete(error, self.partition, self._owns_process)

    def _failure(
        self, operator: str, method: Callable[..., Any], error: BaseException, failed: FailedInput = NO_INPUT
    ) -> OperatorError:
        failure = operator_error(error, method, operator, self.window_id, self.partition, failed)
        if operator in self._were_keyed:
            failure.advise(
                hint="let its class be a KeyedOperator again, or let restore() take a KeyedSnapshot, if this is "
                "because it has left its state by key"
            )
        return failure

    def flush(self, operator: str) -> None:
        for buffer in self._buffers[operator]:
            buffer.flush()

    def call(self, operator: str, method: Callable[..., Any], *arguments: Any) -> Any:
        """Call a life-cycle method, and pass on what it emitted."""
        before = self.clock.switch(operator)
        earlier = self._begin(active_call := ActiveCall(operator, method))
        try:
            result = method(*arguments)
            refuse_asynchronous(result)
            if inspect.isgenerator(result):
                raise BrokenContractError(f"is {GENERATOR}")
            self.flush(operator)
        except FAILURES as error:
            if self._is_complete(error):
                raise
            raise self._failure(operator, method, error) from error
        finally:
            self.clock.switch(before)
            self._end(active_call, earlier)
        return result

    def let_emit(self, operator: str, method: Callable[..., Any], *arguments: Any) -> None:
        result = self.call(operator, method, *arguments)
        if result is not None and self.operators[operator].output_ports:
            raise self._failure(operator, method, self._not_emitted(operator, "returned", result))

    def begin_window(self, window_id: int) -> None:
        """Open a window in every operator, downstream first: what an operator emits here finds the next one open."""
        self.window_id = window_id
        for buffer in self.buffers.values():
            buffer.open()
        for name, operator in reversed(self.operators.items()):
            self.let_emit(name, operator.begin_window, window_id)

    def end_window(self, holds: Collection[str] = ()) -> dict[str, Any]:
        """Close the window in every operator, upstream first, and return held results, by operator."""
        parts: dict[str, Any] = {}
        for name, operator in self.operators.items():
            if name not in holds:
                self.let_emit(name, operator.end_window)
            elif isinstance(operator, Accumulator) and (part := self.call(name, operator.take_part)) is not None:
                parts[name] = part
            for buffer in self._buffers[name]:
                buffer.is_open = False
        return parts

    def snapshots(self) -> dict[str, SavedState]:
        """The states of the operators after the window that has just ended, by operator, without stateless ones."""
        saved = {}
        for name, operator in self.operators.items():
            if (state := self.call(name, operator.snapshot)) is None:
                continue
            if type(operator).restore is Operator.restore:
                what = f"returned {type(state).__name__}, and the class has no restore(state) that takes it back"
                raise self._failure(name, operator.snapshot, BrokenContractError(what))
            saved[name] = StateCodec.of_snapshots(name, operator).encode(state, self.window_id, self.partition)
        return saved

    def restore(self, operator: str, saved: SavedState) -> None:
        """Restore the state of an operator from snapshots()."""
        instance = self.operators[operator]
        state = StateCodec.of_snapshots(operator, instance).decode(saved)
        if saved.keyed_by is not None and not isinstance(instance, KeyedOperator):
            # The author's restore() decides what it makes of the state; if it only stores it, a later call fails.
            self._were_keyed.add(operator)
        with restored(operator):
            self.call(operator, instance.restore, state)

    def setup(self, operator: str, context: OperatorContext) -> None:
        self.call(operator, self.operators[operator].setup, context)
        self._set_up.append(operator)

    def teardown(self) -> list[DagflowError]:
        """Tear down the operators that were set up, each once, and return the errors of those that failed."""
        for buffer in self.buffers.values():
            buffer.close()
        names, self._set_up = self._set_up, []
        failures: list[DagflowError] = []
        for name in names:
            try:
                self.call(name, self.operators[name].teardown)
            except DagflowError as error:
                failures.append(error)
        return failures

    def counts(self) -> Counters:
        """The operators' counters, with the records that left each port."""
        counters = Counters.of_counts(self.counters)
        for ref, buffer in self.buffers.items():
            if buffer.emitter.port.carries_records:
                operator = counters.operators.setdefault(ref.operator, OperatorCounters())
                operator.records[ref.port] = buffer.passed_on
                operator.bytes[ref.port] = buffer.passed_on_bytes
        return counters

    def work_done(self) -> dict[str, OperatorReport]:
        """How long each operator has worked, and the records that left its ports; other threads may call this."""
        records: dict[str, dict[str, int]] = {name: {} for name in self.operators}
        for ref, buffer in list(self.buffers.items()):
            if buffer.emitter.port.carries_records:
                records[ref.operator][ref.port] = buffer.passed_on
        return {name: OperatorReport(self.clock.worked_s(name), ports) for name, ports in records.items()}

    def take_counts(self) -> Counters:
        counts = self.counts()
        new, self._taken = counts.since(self._taken), counts
        return new


class OperatorClock:
    """Charges time to the operator that works, one operator at a time.

    While an operator emits, the operators downstream work, and their time is not charged to the emitting one. Time that
    an operator waits, for example for its input's bytes, counts as work.
    """

    __slots__ = ("_active", "_now", "_since", "busy_s")

    def __init__(self, operators: Iterable[str], now: Callable[[], float] = time.perf_counter) -> None:
        self._now = now
        self.busy_s = dict.fromkeys(operators, 0.0)
        self._active: str | None = None
        self._since = 0.0

    def switch(self, operator: str | None) -> str | None:
        """Charge another operator, or none, from now on; returns the one before, to be restored afterwards."""
        now = self._now()
        before = self._active
        if before is not None:
            self.busy_s[before] += now - self._since
        self._active, self._since = operator, now
        return before

    def worked_s(self, operator: str) -> float:
        """Seconds that an operator has worked so far; other threads may call this."""
        since, active = self._since, self._active
        return self.busy_s[operator] + (self._now() - since if active == operator else 0.0)

    def take(self) -> dict[str, float]:
        """The seconds that each operator has worked since the last call, by name."""
        taken, self.busy_s = self.busy_s, dict.fromkeys(self.busy_s, 0.0)
        return taken


logger = logging.getLogger(__name__)


def tear_down(*chains: Chain, failed: BaseException | None = None) -> None:
    """Tear down all operators of some chains that were set up, and raise the first failure if nothing failed before."""
    failures = [error for chain in chains for error in chain.teardown()]
    first = failures.pop(0) if failed is None and failures else None
    for error in failures:
        logger.warning("teardown failed as well: %s", error)
    if first is not None:
        raise first


@contextlib.contextmanager
def torn_down(*chains: Chain) -> Iterator[None]:
    """Tear down the operators of chains after the block, however it ends; see tear_down()."""
    try:
        yield
    except BaseException as error:
        tear_down(*chains, failed=error)
        raise
    tear_down(*chains)
