"""One task of one stage: feeds a chain with input from the driver or lower stages, and reports its results."""

from __future__ import annotations

import contextlib
import itertools
import pickle
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from msgspec import structs

from dagflow.api.capabilities import Accumulator, PreScan, TupleReader
from dagflow.api.context import Counts, OperatorContext
from dagflow.api.operator import Operator
from dagflow.api.records import RecordBatch
from dagflow.api.refused_records import RefusedLog
from dagflow.errors import DagflowError, OperatorError, TransientStorageError, cut_text, text_of, trace_of
from dagflow.execution.chain import Chain, torn_down
from dagflow.execution.failures import ActiveCall
from dagflow.execution.messages import PART, PickledTuples, Program, ShuffleItem, TaskResult, WindowJob
from dagflow.execution.operator_output import captured, named_records
from dagflow.execution.routing import router_of
from dagflow.execution.stalls import ChainWatch
from dagflow.execution.state_codec import StateCodec
from dagflow.execution.task_outputs import TaskOutputs
from dagflow.execution.task_watch import (
    SHARED_HOST,
    OutputReport,
    TaskActivity,
    TaskHost,
    TaskMessage,
    TaskProgress,
    TaskWatch,
    breakpoints,
)
from dagflow.journal.saved_state import SavedState
from dagflow.metrics.counters import Counters
from dagflow.plan.physical import Edge, PortRef, Stage, grouper_name, targets_owner
from dagflow.storage.pending import PendingFile

MAX_WHAT = 1000
"""Characters of the description of a task's work, in each of its reports."""


class StageTask:
    """One partition of one stage in one window.

    Args:
        send: Takes reports of the task, and must neither wait nor raise.
        handed: Parts by operator that the partition before it has left in the process, and that it leaves in turn.
        is_last: Whether no other partition of the stage follows it in the process.
    """

    def __init__(
        self,
        program: Program,
        window: WindowJob,
        stage: Stage,
        partition: int,
        send: Callable[[TaskMessage], None],
        host: TaskHost,
        handed: dict[str, Any],
        is_last: bool,
    ) -> None:
        self._handed, self._is_last = handed, is_last
        self._program = program
        self._window = window
        self._stage = stage
        self._partition = partition
        self._outputs = TaskOutputs(program.storage, window.tag, program.durability, program.output_bounds)
        self._progress = TaskProgress(send, self._work, operators=lambda: self._chain.work_done())
        self._host = host
        self._printed_lines = PrintedLines(send)
        self._outgoing: list[ShuffleItem] = []
        self._reports: list[tuple[PortRef, PickledTuples]] = []
        self._sequence = 0
        self._accounting: dict[str, Counts] = {name: Counts() for name in stage.operators}
        self._refused: dict[str, RefusedLog] = {name: RefusedLog() for name in stage.operators}
        count = window.partitions[stage.head]
        # What all operators of the task share, and report into.
        self._shared = OperatorContext(
            app=program.app,
            partition=partition,
            partitions=count,
            share=window.shares.get((stage.head, partition), 1 / count),
            source_events=[] if program.has_source_listener else None,
            progress=self._progress,
            storage=program.storage,
            outputs=self._outputs,
            is_reprocessed=window.is_reprocessed,
            gone=window.gone,
            retracted=window.retracted,
        )
        self._held: dict[str, bytes] = {}
        operators = {name: self._loaded(name) for name in stage.operators}
        self._counters: dict[str, Counts] = {name: Counts() for name in stage.operators}
        owns_process = host.owns_process
        self._chain = Chain(operators, stage.edges, self._counters, partition=partition, owns_process=owns_process)
        limit = program.record_limit
        self._record_limit = limit if limit is not None and limit.attach(self._chain) else None
        watched = ChainWatch(self._chain, self._progress.mark, program.stall_limits.warning_s)
        self._watch = TaskWatch(program.stall_limits, host, self._work_in, watched, self._give_sign, send)
        self._begun: set[str] = set()
        if host.is_retry:
            # An operator may have ended the process of the attempt before; these reports show at which input.
            self._chain.on_step = self._progress.report
        elif host.owns_process:
            self._chain.on_step = self._report_beginning
        for edge in stage.reports:
            self._chain.connect(edge.source, self._reporter(edge.target))
        for number, edge in enumerate(stage.outputs):
            self._chain.connect(edge.source, self._sender(number, edge))

    def _work(self) -> TaskActivity:
        """The current work of the task; also called by the thread that watches it."""
        return self._work_in(self._chain.active_call)

    def _work_in(self, active_call: ActiveCall | None) -> TaskActivity:
        work = self._place(active_call)
        return work if active_call is None else structs.replace(work, what=cut_text(str(active_call), MAX_WHAT))

    def _place(self, active_call: ActiveCall | None) -> TaskActivity:
        """The operator at work, without its input, which takes long to describe."""
        operator = "" if active_call is None else active_call.operator
        return TaskActivity(self._window.window_id, self._stage.index, self._partition, operator)

    def _report_beginning(self) -> None:
        """Report the first input of each operator: native code may keep the watching thread from doing so."""
        active_call = self._chain.active_call
        if active_call is not None and active_call.payload is not None and active_call.operator not in self._begun:
            self._begun.add(active_call.operator)
            self._progress.report()

    def _loaded(self, operator: str) -> Operator:
        """A new instance of an operator; its author's module may run any code while it is imported."""
        try:
            instance: Operator = pickle.loads(self._program.operators[operator])
        except (Exception, SystemExit) as error:
            # Raised, not reported: another executor may have what this one lacks.
            raise OperatorError(
                f"it cannot be loaded in the task: {type(error).__name__}: {text_of(error)}",
                operator=operator,
                window_id=self._window.window_id,
                partition=self._partition,
            ) from error
        return instance

    def _reporter(self, target: PortRef) -> Any:
        return lambda tuples: self._reports.append((target, PickledTuples.of(tuples)))

    def _sender(self, edge_index: int, edge: Edge) -> Any:
        plan = self._program.plan
        receiver = plan.stage_of(edge.target.operator)
        counts = self._window.partitions
        earlier = [stage for stage in plan.levels[receiver.level] if stage.index < receiver.index]
        first_slot = sum(counts[stage.head] for stage in earlier)
        split = router_of(plan.exchange_of(edge), counts[receiver.head], self._partition)

        def send(payload: Any) -> None:
            for partition, part in split(payload):
                self._sequence += 1
                order = (edge_index, self._stage.index, self._partition, self._sequence)
                sent = part if isinstance(part, RecordBatch) else PickledTuples.of(part)
                self._outgoing.append(ShuffleItem(receiver.level, first_slot + partition, order, edge.target, sent))

        return send

    def _setup(self) -> None:
        stage = self._stage
        entries = (exchange.edge for exchange in stage.inputs)
        edges = itertools.chain(stage.edges, stage.outputs, stage.reports, entries)
        connected = {ref for edge in edges for ref in (edge.source, edge.target)}
        for name, operator in self._chain.operators.items():
            context = replace(
                self._shared,
                operator=name,
                counters=self._counters[name],
                accounting=self._accounting[name],
                refused=self._refused[name],
                connected=frozenset(ref.port for ref in connected if ref.operator == name),
                prescan=prescan_of(name, operator, self._window.prescans),
                may_hold=self._may_hold(name) and grouper_name(name) in self._program.plan.control,
                decided=self._window.decided.get(targets_owner(name), ""),
                side_input=self._window.side_inputs.get(name),
            )
            self._chain.setup(name, context)
            state = self._window.states.get((name, self._partition))
            if state is not None:
                self._chain.restore(name, state)

    def _may_hold(self, operator: str) -> bool:
        return self._window.holding is None or operator in self._window.holding

    def run(self, inputs: Iterable[tuple[PortRef, Any]]) -> Iterator[ShuffleItem | TaskResult]:
        """Process everything that arrives, and yield everything that leaves; the result comes last.

        Raises:
            TransientStorageError: The store may succeed when Spark runs the task again.
        """
        is_shared = not self._host.owns_process
        thread = threading.get_ident() if is_shared else None
        # In a process of its own all output is the operators'; otherwise others write to stderr as well.
        names = ("stdout",) if is_shared else ("stdout", "stderr")
        taken = captured(*names, take=self._printed, thread=thread)
        with self._watch, taken, named_records(self._name), breakpoints(is_shared=is_shared):
            yield from self._run(inputs)
        self._printed_lines.flush()

    def _name(self) -> str:
        return str(self._place(self._chain.active_call)) if self._host is SHARED_HOST else ""

    def _printed(self, line: str) -> bool:
        work = self._place(self._chain.active_call)
        if self._host.owns_process and sys.__stderr__ is not None:
            sys.__stderr__.write(f"{work}: {line}\n")
        self._printed_lines.line(work, line)
        return True

    def _give_sign(self) -> None:
        self._progress.report()
        self._printed_lines.flush()

    def _run(self, inputs: Iterable[tuple[PortRef, Any]]) -> Iterator[ShuffleItem | TaskResult]:
        started, started_ms = time.perf_counter(), time.time_ns() // 1_000_000
        error: DagflowError | None = None
        states: dict[str, SavedState] = {}
        counters = Counters()
        files: tuple[PendingFile, ...] = ()
        try:
            states = yield from self._process(inputs)
            counters = self._chain.counts()
            files = self._outputs.take_finished()
        except TransientStorageError:
            self._outputs.abandon()
            raise
        except DagflowError as raised:
            error = raised
        except Exception as raised:  # a defect of dagflow, reported with its traceback
            error = OperatorError(
                f"internal error {type(raised).__name__}: {text_of(raised)}",
                operator=self._stage.head,
                window_id=self._window.window_id,
                partition=self._partition,
                trace=trace_of(raised),
            )
        for _ in inputs:
            pass  # if a task leaves input unread, Spark ends its worker process
        if error is not None:
            self._outputs.abandon()
        yield from self._sent()
        self._progress.report(is_done=True)
        yield TaskResult(
            stage=self._stage.index,
            partition=self._partition,
            counters=counters,
            files=files,
            reports=tuple(self._reports),
            sources=self._outputs.sources,
            states=states,
            accounting={
                name: sums
                for name, counts in self._accounting.items()
                if (sums := {key: value for key, value in counts.items() if value})
            },
            busy_s=time.perf_counter() - started,
            error=error,
            operator_busy_s=self._chain.clock.busy_s,
            started_ms=started_ms,
            skipped=tuple(self._shared.skipped),
            moved=tuple(self._shared.moved),
            waiting=tuple(self._shared.waiting),
            source_events=tuple(self._shared.source_events or ()),
            parts=self._held,
            read_in_part=frozenset(self._shared.read_in_part),
            refused={name: data for name, log in self._refused.items() if (data := log.to_bytes())},
        )

    def _process(self, inputs: Iterable[tuple[PortRef, Any]]) -> Generator[ShuffleItem, None, dict[str, SavedState]]:
        with torn_down(self._chain):
            self._setup()
            self._chain.begin_window(self._window.window_id)
            for name in [name for name in self._chain.operators if name in self._handed]:
                self._add_part(name, self._handed.pop(name))
            yield from self._take(inputs)
            operators = self._chain.operators.items()
            partial = (name for name, each in operators if isinstance(each, Accumulator) and each.is_partial)
            left = [] if self._is_last else [*partial]
            self._held = self._chain.end_window([*self._window.holds, *left])
            self._handed.update((name, self._held.pop(name)) for name in left if name in self._held)
            return self._chain.snapshots()

    def _take(self, inputs: Iterable[tuple[PortRef, Any]]) -> Iterator[ShuffleItem]:
        # The last payload is let go with this generator.
        for target, payload in inputs:
            if target.port == PART:
                self._add_part(target.operator, payload)
            else:
                yield from self._feed(target, payload)

    def _feed(self, target: PortRef, payload: Any) -> Iterator[ShuffleItem]:
        if self._record_limit is None:
            for _ in self._chain.feed(target, payload):
                yield from self._sent()
        else:
            for item in payload:
                if self._record_limit.is_reached_in(self._chain):
                    break
                with contextlib.closing(self._chain.feed(target, [item])) as steps:
                    for _ in steps:
                        yield from self._sent()
                        if self._record_limit.is_reached_in(self._chain):
                            break
        yield from self._sent()

    def _add_part(self, name: str, part: Any) -> None:
        operator = self._chain.operators[name]
        if isinstance(operator, Accumulator):
            self._chain.call(name, operator.add_part, part)

    def _sent(self) -> list[ShuffleItem]:
        sent, self._outgoing = self._outgoing, []
        return sent


def prescan_of(name: str, operator: Operator, saved_by_operator: Mapping[str, SavedState]) -> Any:
    """The state of an operator's pre-scan; None where it has none."""
    saved = saved_by_operator.get(name)
    if saved is None or not isinstance(operator, TupleReader) or (prescan := operator.prescan()) is None:
        return None
    return StateCodec.of_prescans(name, prescan).decode(saved)


def run_prescan(program: Program, operator: str, items: Iterable[Any]) -> Iterator[Any]:
    """Let an operator pre-scan tuples before their window is planned.

    Yields:
        For each item, in order, its pre-scan result, or the DagflowError that was raised.
    """
    instance: Any = pickle.loads(program.operators[operator])
    chain = Chain({operator: instance}, (), {})
    prescan: PreScan = chain.call(operator, instance.prescan)
    try:
        for item in items:
            try:
                yield chain.call(operator, prescan.scan, item, program.storage)
            except TransientStorageError:
                raise
            except DagflowError as error:
                yield error
    finally:
        chain.call(operator, prescan.teardown)


def run_level(
    program: Program,
    window: WindowJob,
    level: int,
    slots: Sequence[tuple[int, Iterable[Any]]],
    send: Callable[[TaskMessage], None],
    host: TaskHost = SHARED_HOST,
) -> Iterator[ShuffleItem | TaskResult]:
    """Run the tasks of some slots of a level, one after the other.

    Args:
        slots: Each with its items: on level 0 (port, tuples) pairs. Above it ShuffleItems and TaskResults in order:
            items for a higher level, and results of lower ones, pass through.
        send: Takes reports of the tasks; must neither wait nor raise.

    Yields:
        ShuffleItems for higher levels, and one TaskResult per stage task of this level and all lower ones.
    """
    places = [_place_of(program, window, level, slot) for slot, _ in slots]
    handed: dict[str, Any] = {}
    for number, (_, items) in enumerate(slots):
        if (place := places[number]) is None:
            yield from items
            continue
        stage, partition = place
        is_last = all(later is None or later[0] is not stage for later in places[number + 1 :])
        task = StageTask(program, window, stage, partition, send, host, handed, is_last)
        passing: list[Any] = []
        for item in task.run(_own(items, level, passing)):
            yield from passing
            passing.clear()
            yield item
        yield from passing


def _place_of(program: Program, window: WindowJob, level: int, slot: int) -> tuple[Stage, int] | None:
    """The stage of a slot and its partition; None for slots that only pass on items."""
    for stage in program.plan.levels[level]:
        count = window.partitions[stage.head]
        if slot < count:
            return stage, slot
        slot -= count
    return None


def _own(items: Iterable[Any], level: int, passing: list[Any]) -> Iterator[tuple[PortRef, Any]]:
    """The items for a task of this level; all others are added to `passing`."""
    for item in items:
        if isinstance(item, tuple):
            yield item
        elif isinstance(item, ShuffleItem) and item.level == level:
            payload = item.payload
            yield item.target, payload.tuples() if isinstance(payload, PickledTuples) else payload
        else:
            passing.append(item)


MAX_OUTPUT = 8 << 10
"""Characters of all that the operators of one task print that are sent to the driver."""

MESSAGE = 4 << 10
"""Characters of a message: many small ones at once would overflow the driver's socket."""


class PrintedLines:
    """Gathers lines and sends them; called by the task and the thread that watches it."""

    def __init__(self, send: Callable[[OutputReport], None]) -> None:
        self._send = send
        self._lock = threading.Lock()
        self._work: TaskActivity | None = None
        self._lines: list[str] = []
        self._held = 0
        self._left = MAX_OUTPUT

    def line(self, work: TaskActivity, text: str) -> None:
        with self._lock:
            if self._left <= 0:
                return
            if self._work is not None and self._work.operator != work.operator:
                self._flush()
            self._work = self._work or work
            self._lines.append(text)
            self._held += len(text)
            self._left -= len(text)
            if self._held >= MESSAGE or self._left <= 0:
                self._flush()

    def flush(self) -> None:
        with self._lock:
            self._flush()

    def _flush(self) -> None:
        if self._work is not None:
            self._send(OutputReport(self._work, "\n".join(self._lines), is_last=self._left <= 0))
        self._work, self._lines, self._held = None, [], 0
