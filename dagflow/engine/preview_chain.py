"""The partitioned operators of an app in one chain, fed a little at a time, for a preview."""

from __future__ import annotations

import contextlib
import math
import pickle
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, TypeVar

import pyarrow as pa
from typing_extensions import Buffer

from dagflow.api.capabilities import TupleReader, loaded_side_data
from dagflow.api.context import Counts, OperatorContext, Progress, Skipped, WindowBudget
from dagflow.api.ports import unbatched
from dagflow.api.records import UNKNOWN, RecordBatch
from dagflow.api.refused_records import REJECTS, Reject
from dagflow.api.sources import FileSources, url_of
from dagflow.engine.control_graph import ControlGraph, Emission, PreScans, index_operators
from dagflow.errors import DagflowError, OperatorError
from dagflow.execution.chain import Chain, tear_down, torn_down
from dagflow.execution.messages import Program
from dagflow.execution.port_buffer import Consumer
from dagflow.execution.routing import router_of
from dagflow.execution.task import prescan_of
from dagflow.execution.task_outputs import TaskOutputs
from dagflow.frozen import frozen
from dagflow.journal.saved_state import SavedState
from dagflow.plan.logical import LogicalPlan
from dagflow.plan.physical import PortRef
from dagflow.plan.placement import PlacedApp
from dagflow.runtime.base import Runtime
from dagflow.runtime.scratch import Scratch, sweep
from dagflow.storage.location import absolute, join, redacted
from dagflow.storage.pending import FileFacts, pending_tag

DEFAULT_RECORDS = 20
DEFAULT_READ_BYTES = 16 << 20

SAMPLE_RECORDS = 1000
"""Records that are passed on at least, so that the share that operators keep is meaningful."""

SAMPLE_S = 0.3
"""Seconds after which fewer records suffice, if there are enough to show; they begin when the first have passed."""

_WINDOW = 1
"""Id of the only window."""

Key = TypeVar("Key", bound=Hashable)


@frozen
class PreviewOptions:
    """What a preview shows.

    Attributes:
        at: "operator.port"; None for the records that the app's output would get.
        file: The only file to read, which may be no input of the app; None for the app's input.
        offset: Where to begin in the file: at the first record that begins at this offset or after it.
        read_bytes: Bytes to read at most, where fewer records arrive; what is begun is finished.
    """

    at: str | None = None
    records: int = DEFAULT_RECORDS
    file: str | None = None
    offset: int = 0
    read_bytes: int = DEFAULT_READ_BYTES


@frozen
class PreviewPort:
    """The port that a preview shows.

    Attributes:
        sources: The output ports whose records are seen there; the port itself, where it is an output port.
    """

    ref: PortRef
    sources: tuple[PortRef, ...]


@frozen
class PreviewReject:
    """A record that a reader refused.

    Attributes:
        offset: Its first byte in the content of the file.
        raw: Its bytes, or as many of its first bytes as were kept.
    """

    file: str
    offset: int
    length: int
    reason: str
    raw: bytes


class _NoFile:
    """A file that keeps nothing; see OutputFile."""

    def write(self, data: Buffer) -> None:
        """Ignore the bytes."""

    def close(self, *, records: int, sources: FileSources | None = None, facts: FileFacts | None = None) -> None:
        """Do nothing."""


class _NoFiles:
    """Opens files for the operators of a preview, which writes nothing; see OutputFiles."""

    def open(self, url: str) -> _NoFile:
        return _NoFile()

    hold = open


class PreviewChain:
    """All partitioned operators of a part of an app, one partition of each, and what a preview has seen of them.

    The tuples that the driver feeds are passed on in pieces, which grow: a slow operator sees few records, and one that
    drops most of them sees many.

    Attributes:
        batches: Batches that arrived at the port, with at most as many records as are shown.
        urls: The files, as far as they had records.
    """

    def __init__(
        self, app: LogicalPlan, part: PlacedApp, program: Program, port: PreviewPort, options: PreviewOptions
    ) -> None:
        self._app, self._part, self._program, self._port, self._options = app, part, program, port, options
        self.batches: list[RecordBatch] = []
        self.count = self.at_end = self.reject_count = 0
        self.is_complete = False
        self.rejects: list[PreviewReject] = []
        self.rejecting: dict[str, None] = {}
        self.taken: Counter[str] = Counter()
        self.given: Counter[PortRef] = Counter()
        self.urls: dict[str, None] = {}
        self.left_out: list[Skipped] = []
        self._chain: Chain | None = None
        self._progress = Progress()
        self._has_read = False
        self._passing_since_s = math.inf
        self._piece = max(1, options.records)
        self._passed = self._emitted_bytes = self._bytes_before = 0
        self._arrived: deque[tuple[PortRef, Any]] = deque()
        self._consumers: dict[PortRef, list[Consumer]] = {}
        self._is_ending = False

    def run(self, source: PreviewInput) -> DagflowError | None:
        """Feed the chain until there is enough, and let it end the window; returns the error that ended it early."""
        error: DagflowError | None = None
        try:
            is_complete = all(self._feed_step(source, tuples) for tuples in source.steps())
            chain = self._opened(source)
            self._is_ending, is_complete = True, is_complete and not self._arrived
            self._arrived.clear()
            chain.end_window()
            self.is_complete = is_complete
        except DagflowError as raised:
            error = raised
            if isinstance(error, OperatorError):
                error.window_id = error.partition = -1  # a preview has neither
        finally:
            if self._chain is not None:
                tear_down(self._chain, failed=error)
        return error

    def _opened(self, source: PreviewInput) -> Chain:
        """The chain; a new one where a pre-scan has found more before anything was read."""
        if self._chain is not None:
            if self._has_read:
                return self._chain
            tear_down(self._chain)
        names = [name for stage in self._part.plan.stages for name in stage.operators]
        counters = {name: Counts() for name in names}
        operators = {name: pickle.loads(self._program.operators[name]) for name in names}
        self._chain = chain = Chain(operators, (), counters, partition=0)
        self._progress = Progress()
        self._connect(chain)
        connected = {ref for edge in self._app.edges for ref in (edge.source, edge.target)}
        connected |= {self._port.ref, *self._port.sources}
        prescans = source.prescan_states()
        for name, operator in chain.operators.items():
            # Rejects are shown whether or not the app uses them.
            rejects = {REJECTS} & operator.output_ports.keys()
            context = OperatorContext(
                app=self._part.name,
                operator=name,
                counters=counters[name],
                skipped=self.left_out,
                progress=self._progress,
                connected=frozenset({ref.port for ref in connected if ref.operator == name} | rejects),
                storage=self._part.storage,
                outputs=_NoFiles(),
                prescan=prescan_of(name, operator, prescans),
                side_input=loaded_side_data(operator, self._part.storage),
            )
            chain.setup(name, context)
        chain.begin_window(_WINDOW)
        return chain

    def _connect(self, chain: Chain) -> None:
        """Wire the operators; heads lead to the waiting records, and all others to each other."""
        stages = self._part.plan.stages
        exchanges = {exchange.edge: exchange for stage in stages for exchange in stage.inputs}
        heads = {exchange.edge.target.operator for exchange in exchanges.values() if exchange.is_assigned}
        consumers = self._consumers = {ref: [_adding(self.given, ref)] for ref in chain.buffers}
        for edge in [edge for stage in stages for edge in (*stage.edges, *stage.outputs)]:
            consume = chain.consumer_of(edge.target)
            if edge in exchanges:
                # The exchange's router comes between, for its keys.
                consume = _through(router_of(exchanges[edge], 1, 0), consume)
            # Side by side: operators in a long chain call each other, and here no deeper than in a task.
            consumers[edge.source] += [_adding(self.taken, edge.target.operator), consume]
        for ref in self._port.sources:
            consumers[ref].append(self._show)
        for ref in chain.buffers:
            if ref.port == REJECTS:
                chain.connect(ref, self._taking_rejects(ref.operator))
            for consumer in [self._holding(ref)] if ref.operator in heads else consumers[ref]:
                chain.connect(ref, consumer)

    def _holding(self, ref: PortRef) -> Consumer:
        """Keep what a head emits until it is passed on."""

        def hold(payload: Any) -> None:
            if isinstance(payload, RecordBatch):
                payload = self._from_offset(payload)
                self._take_note(payload)
            self._arrived.append((ref, payload))
            if self._is_ending:
                self._pass_on()

        return hold

    def _from_offset(self, batch: RecordBatch) -> RecordBatch:
        if not self._options.offset or not len(batch):
            return batch
        offsets = batch.offsets()
        return batch.filter(pa.array((offsets == UNKNOWN) | (offsets >= self._options.offset)))

    def _take_note(self, batch: RecordBatch) -> None:
        """Count what was read; records before the offset do not count, and take no time of the sample."""
        if len(batch):
            self._has_read = True
        elif self._options.offset and not self._has_read:
            self._bytes_before = self._progress.bytes_read
            return
        self._emitted_bytes += batch.nbytes()
        self.urls.update((redacted(url), None) for url in map(url_of, batch.blocks) if url)

    def _taking_rejects(self, operator: str) -> Consumer:
        def take(batch: RecordBatch) -> None:
            for record in batch.to_pylist():
                reject: Reject | None = None
                with contextlib.suppress(ValueError):  # an author's port of that name may emit something else
                    reject = Reject.from_bytes(record)
                if reject is not None and reject.offset < self._options.offset:
                    continue
                self.reject_count += 1
                self.rejecting[operator] = None
                if reject is not None and len(self.rejects) < self._options.records:
                    shown = PreviewReject(reject.url, reject.offset, reject.length, reject.reason, reject.raw)
                    self.rejects.append(shown)

        return take

    def _show(self, payload: RecordBatch) -> None:
        missing = self._options.records - self.count
        if missing > 0 and len(payload):
            self.batches.append(payload if len(payload) <= missing else payload.slice(0, missing))
        self.count += len(payload)
        self.at_end += len(payload) * self._is_ending

    @property
    def size_bytes(self) -> int:
        """Bytes that were read, as far as readers report them; else bytes of the records that they made."""
        return self._progress.bytes_read - self._bytes_before or self._emitted_bytes

    @property
    def _is_enough(self) -> bool:
        """Whether there is enough to show, or the read limit is reached; a few bytes may hold many records."""
        return self._has_enough or max(self.size_bytes, self._emitted_bytes) >= self._options.read_bytes

    @property
    def _has_enough(self) -> bool:
        is_sampled = self._passed >= SAMPLE_RECORDS or time.monotonic() - self._passing_since_s > SAMPLE_S
        return self.count >= self._options.records and is_sampled

    def _feed_step(self, source: PreviewInput, tuples: Mapping[PortRef, list[Any]]) -> bool:
        """Feed a step; returns whether all of it was taken and more is needed."""
        chain = self._opened(source)
        for target, item in ((target, item) for target, items in tuples.items() for item in items):
            with contextlib.closing(chain.feed(target, [item])) as steps:
                for _ in steps:
                    self._pass_on()
                    if self._is_enough:
                        return False
            self._pass_on()
            if self._is_enough:
                return False
        return True

    def _pass_on(self) -> None:
        while self._arrived and not self._has_enough:
            ref, payload = self._arrived.popleft()
            if isinstance(payload, RecordBatch) and len(payload) > self._piece:
                self._arrived.appendleft((ref, payload.slice(self._piece, len(payload) - self._piece)))
                payload = payload.slice(0, self._piece)
            for consumer in self._consumers[ref]:
                consumer(payload)
            # The first records may need libraries that are imported for them.
            self._passing_since_s = min(self._passing_since_s, time.monotonic())
            self._passed += len(payload)
            self._piece = max(self._piece, self._passed)


def _adding(counts: Counter[Key], key: Key) -> Consumer:
    def add(payload: Any) -> None:
        counts[key] += len(payload)

    return add


def _through(split: Callable[[Any], Any], consume: Consumer) -> Consumer:
    def take(payload: Any) -> None:
        for _, part in split(payload):
            consume(part)

    return take


_MOST_TUPLES = 1024
"""Tuples of a step, at most."""

_TUPLE_BYTES = 1 << 20
"""Bytes of a tuple of a step, on average, at most."""


class _PreviewServices:
    """The services that control operators have in a preview; see ControlServices."""

    follow = False
    held_files = ()
    output_locations = ()

    def __init__(self, state_url: str, operator_index: int) -> None:
        self.state_url = state_url
        self.operator_index = operator_index
        self.tuples = 1

    @property
    def budget(self) -> WindowBudget:
        """The size of a window, small at first: the first record is shown when all of a window is emitted."""
        return WindowBudget(self.tuples, self.tuples * _TUPLE_BYTES)

    def in_tasks(self, function: Callable[[Any], Any], items: list[Any]) -> list[Any]:
        return [function(item) for item in items]

    def watched(self, what: str) -> AbstractContextManager[None]:
        return contextlib.nullcontext()


@contextlib.contextmanager
def preview_input(app: PlacedApp, program: Program, offset: int = 0) -> Iterator[PreviewInput]:
    """The input of a preview, whose operators are torn down at the end.

    The operators' state goes to a temporary directory, which is removed.

    Args:
        offset: Blocks of a file that end before this offset are left out, as far as the operator can tell.
    """
    sweep()  # what killed previews have left
    with contextlib.closing(Scratch(tempfile.gettempdir())) as directory:
        index = index_operators(app.plan.control, {})
        services = {
            name: _PreviewServices(join(absolute(str(directory.path)), name), index[name]) for name in app.plan.control
        }
        outputs = TaskOutputs(app.storage, pending_tag("preview", 0), "process")
        control = ControlGraph(app, services, outputs, index)

        def runtime() -> Runtime:
            # Few apps pre-scan what is previewed.
            from dagflow.runtime.local import InlineRuntime

            return InlineRuntime(program)

        prescans = PreScans(app.operators, runtime)
        with torn_down(*control.chains):
            yield PreviewInput(app, control, services, prescans, offset)


@frozen
class PreviewInput:
    """The tuples that the control operators of an app emit, completed by pre-scans, in the order of a run."""

    _app: PlacedApp
    _control: ControlGraph
    _services: Mapping[str, _PreviewServices]
    _prescans: PreScans
    _offset: int

    def steps(self) -> Iterator[Mapping[PortRef, list[Any]]]:
        """The tuples by input port, step by step, until the control operators have no more."""
        step = 0
        while (emission := self._control.emit(step := step + 1)) is not None:
            for part in self._parts(emission):
                yield self._sought(self._prescans.complete(part).tuples)
            for services in self._services.values():
                services.tuples = min(2 * services.tuples, _MOST_TUPLES)

    def _parts(self, emission: Emission) -> Iterator[Emission]:
        """The emission in parts, small ones first: a preview stops early, and no later block is pre-scanned for it."""
        for target, items in self._sought(emission.tuples).items():
            start, size = 0, 1
            while start < len(items):
                yield replace(emission, tuples={target: items[start : start + size]})
                start, size = start + size, 2 * size

    def _sought(self, tuples: Mapping[PortRef, list[Any]]) -> Mapping[PortRef, list[Any]]:
        found = dict(tuples)
        for target, items in tuples.items() if self._offset else ():
            operator = self._app.operators[target.operator]
            if isinstance(operator, TupleReader):
                found[target] = operator.seek(items, self._offset, self._app.storage)
        return found

    def prescan_states(self) -> dict[str, SavedState]:
        """The states of the pre-scans after the steps so far, by operator."""
        return self._prescans.state()


def first_files(app: LogicalPlan, count: int) -> list[str]:
    """The first files that an app would read, without empty ones; its blocks are larger than any file."""
    placed = PlacedApp.of(app, app.attributes.storage_context())
    found: dict[str, None] = {}
    with preview_input(placed, Program.of(app.name, placed.plan, placed.operators, placed.storage)) as source:
        for tuples in source.steps():
            items = unbatched(item for items in tuples.values() for item in items)
            found.update((url, None) for url in map(url_of, items) if url)
            if len(found) >= count:
                break
    return list(found)[:count]
