"""The partitioned operators of an app in one chain, fed a little at a time, for a preview."""

from __future__ import annotations

import contextlib
import math
import pickle
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from typing_extensions import Buffer

from dagflow.api.capabilities import TupleReader, loaded_side_data
from dagflow.api.context import Counts, OperatorContext, Progress, Skipped
from dagflow.api.records import UNKNOWN, RecordBatch
from dagflow.api.refused_records import REJECTS, Reject
from dagflow.api.sources import FileSources, url_of
from dagflow.engine.placed_app import PlacedApp
from dagflow.engine.preview_port import PreviewPort
from dagflow.execution.chain import Chain, tear_down
from dagflow.execution.port_buffer import Consumer
from dagflow.execution.program import Program
from dagflow.execution.routing import router_of
from dagflow.execution.state_codec import StateCodec
from dagflow.journal.saved_state import SavedState
from dagflow.plan.logical import LogicalPlan
from dagflow.plan.physical import Edge, PortRef
from dagflow.storage.file_facts import FileFacts
from dagflow.storage.location import redacted

SAMPLE_RECORDS = 1000
"""Records that are passed on at least, so that the share that operators keep is meaningful."""

SAMPLE_S = 0.3
"""Seconds after which fewer records suffice, if there are enough to show."""

_WINDOW = 1
"""Id of the only window."""


@dataclass(frozen=True, slots=True)
class PreviewLimits:
    """How far a preview goes.

    Attributes:
        records: Records to show.
        read_bytes: Bytes to read at most, where fewer records arrive; what is begun is finished.
        offset: Records that begin before this offset are left out.
    """

    records: int
    read_bytes: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class PreviewReject:
    """A record that a reader refused.

    Attributes:
        file: The file.
        offset: Its first byte in the content of the file.
        length: How many bytes it has.
        reason: Why it was refused.
        raw: Its bytes, or as many of its first bytes as were kept.
    """

    file: str
    offset: int
    length: int
    reason: str
    raw: bytes


@dataclass(slots=True)
class PreviewResults:
    """The results of a preview so far.

    Attributes:
        batches: Batches that arrived at the port, with at most as many records as are shown.
        count: Records that arrived at the port.
        at_end: How many of them were emitted at the end of the input.
        rejects: Refused records, as many as are shown.
        reject_count: How many records readers refused.
        rejecting: Operators that refused records.
        taken: Records that each operator took in.
        given: Records that were emitted, by port.
        urls: The files, as far as they had records.
        left_out: Ranges that were left out of files that cannot be read.
    """

    batches: list[RecordBatch] = field(default_factory=list)
    count: int = 0
    at_end: int = 0
    rejects: list[PreviewReject] = field(default_factory=list)
    reject_count: int = 0
    rejecting: list[str] = field(default_factory=list)
    taken: Counter[str] = field(default_factory=Counter)
    given: Counter[PortRef] = field(default_factory=Counter)
    urls: dict[str, None] = field(default_factory=dict)
    left_out: list[Skipped] = field(default_factory=list)


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
    """All partitioned operators of a part of an app, one partition of each.

    The tuples that the driver feeds are passed on in pieces, which grow: a slow operator sees few records, and one that
    drops most of them sees many.

    Args:
        app: The whole app; its streams show which ports are connected.
        part: The part that leads to the port.
        program: The same part, as a program for tasks.
    """

    def __init__(
        self,
        app: LogicalPlan,
        part: PlacedApp,
        program: Program,
        port: PreviewPort,
        limits: PreviewLimits,
        prescans: Mapping[str, SavedState],
        seen: PreviewResults,
    ) -> None:
        self.seen = seen
        self._limits = limits
        self._begun_s = math.inf
        self._piece = max(1, limits.records)
        self._passed = self._emitted_bytes = self._bytes_before = 0
        self._progress = Progress()
        self._arrived: deque[tuple[PortRef, Any]] = deque()
        self._consumers: dict[PortRef, list[Consumer]] = {}
        self._is_ending = False
        names = [name for stage in part.plan.stages for name in stage.operators]
        counters = {name: Counts() for name in names}
        operators = {name: pickle.loads(program.operators[name]) for name in names}
        self._chain = Chain(operators, (), counters, partition=0)
        self._heads = {ex.edge.target.operator for stage in part.plan.stages for ex in stage.inputs if ex.is_assigned}
        self._connect(part, port)
        try:
            self._setup(app, part, port, counters, prescans)
            self._chain.begin_window(_WINDOW)
        except BaseException as error:
            self.close(error)
            raise

    def _connect(self, part: PlacedApp, port: PreviewPort) -> None:
        """Wire the operators; heads lead to the waiting records, and all others to each other."""
        exchanges = {exchange.edge: exchange for stage in part.plan.stages for exchange in stage.inputs}
        for ref in self._chain.buffers:
            self._consumers[ref] = [self._counter(ref)]
            if ref.port == REJECTS:
                self._chain.connect(ref, self._take_rejects(ref.operator))
        for edge in [edge for stage in part.plan.stages for edge in (*stage.edges, *stage.outputs)]:
            exchange = exchanges.get(edge)
            split = None if exchange is None else router_of(exchange, 1, 0)
            self._consumers[edge.source] += self._passing(edge, split)
        for ref in port.sources:
            self._consumers[ref].append(self._show)
        for ref, consumers in self._consumers.items():
            if ref.operator in self._heads:
                self._chain.connect(ref, self._hold(ref))
            else:
                for consumer in consumers:
                    self._chain.connect(ref, consumer)

    def _setup(
        self,
        app: LogicalPlan,
        part: PlacedApp,
        port: PreviewPort,
        counters: Mapping[str, Counts],
        prescans: Mapping[str, SavedState],
    ) -> None:
        connected = {ref for edge in app.edges for ref in (edge.source, edge.target)} | {port.ref, *port.sources}
        for name, operator in self._chain.operators.items():
            saved, prescan = prescans.get(name), None
            if saved is not None and isinstance(operator, TupleReader) and (scans := operator.prescan()) is not None:
                prescan = StateCodec.of_prescans(name, scans).decode(saved)
            # Rejects are shown whether or not the app uses them.
            rejects = {REJECTS} & operator.output_ports.keys()
            context = OperatorContext(
                app=part.name,
                operator=name,
                counters=counters[name],
                skipped=self.seen.left_out,
                progress=self._progress,
                connected=frozenset({ref.port for ref in connected if ref.operator == name} | rejects),
                storage=part.storage,
                outputs=_NoFiles(),
                prescan=prescan,
                side_input=loaded_side_data(operator, part.storage),
            )
            self._chain.setup(name, context)

    def _counter(self, ref: PortRef) -> Consumer:
        def count(payload: Any) -> None:
            self.seen.given[ref] += len(payload)

        return count

    def _passing(self, edge: Edge, split: Callable[[Any], Any] | None) -> list[Consumer]:
        """Count what an edge carries, and give it to its target; an exchange's router comes between, for its keys."""
        consume = self._chain.consumer_of(edge.target)

        def count(payload: Any) -> None:
            self.seen.taken[edge.target.operator] += len(payload)

        # Side by side: operators in a long chain call each other, and here no deeper than in a task.
        return [count, consume if split is None else _through(split, consume)]

    def _hold(self, ref: PortRef) -> Consumer:
        """Keep what a head emits until it is passed on."""

        def hold(payload: Any) -> None:
            if isinstance(payload, RecordBatch):
                payload = self._from_offset(payload)
                self._take_note(payload)
            self._arrived.append((ref, payload))
            if self._is_ending:
                self._pass_on()

        return hold

    def _take_note(self, batch: RecordBatch) -> None:
        """Count what was read; records before the offset do not count, and take no time of the sample."""
        if len(batch):
            self._begun_s = min(self._begun_s, time.monotonic())
        elif self._limits.offset and not self.has_read:
            self._bytes_before = self._progress.bytes_read
            return
        self._emitted_bytes += batch.nbytes()
        self.seen.urls.update((redacted(url), None) for url in map(url_of, batch.blocks) if url)

    def _from_offset(self, batch: RecordBatch) -> RecordBatch:
        offsets = batch.offsets()
        if not self._limits.offset or not len(batch):
            return batch
        return batch.filter(pa.array((offsets == UNKNOWN) | (offsets >= self._limits.offset)))

    def _take_rejects(self, operator: str) -> Consumer:
        def take(batch: RecordBatch) -> None:
            for record in batch.to_pylist():
                reject = _reject_of(record)
                if reject is not None and reject.offset < self._limits.offset:
                    continue
                self.seen.reject_count += 1
                if operator not in self.seen.rejecting:
                    self.seen.rejecting.append(operator)
                if reject is not None and len(self.seen.rejects) < self._limits.records:
                    self.seen.rejects.append(reject)

        return take

    def _show(self, payload: RecordBatch) -> None:
        missing = self._limits.records - self.seen.count
        if missing > 0 and len(payload):
            self.seen.batches.append(payload if len(payload) <= missing else payload.take(np.arange(missing)))
        self.seen.count += len(payload)
        self.seen.at_end += len(payload) * self._is_ending

    @property
    def has_read(self) -> bool:
        """Whether any record was read."""
        return self._begun_s < math.inf

    @property
    def size_bytes(self) -> int:
        """Bytes that were read, as far as readers report them; else bytes of the records that they made."""
        return self._progress.bytes_read - self._bytes_before or self._emitted_bytes

    @property
    def is_enough(self) -> bool:
        """Whether there is enough to show, or the read limit is reached; a few bytes may hold many records."""
        return self._has_enough or max(self.size_bytes, self._emitted_bytes) >= self._limits.read_bytes

    @property
    def _has_enough(self) -> bool:
        is_sampled = self._passed >= SAMPLE_RECORDS or time.monotonic() - self._begun_s > SAMPLE_S
        return self.seen.count >= self._limits.records and is_sampled

    @property
    def has_waiting(self) -> bool:
        """Whether records were read that have not been passed on."""
        return bool(self._arrived)

    def feed(self, target: PortRef, item: Any) -> bool:
        """Give a tuple to an operator, and pass on what it emits; stops when there is enough.

        Returns:
            Whether the whole tuple was taken.
        """
        with contextlib.closing(self._chain.feed(target, [item])) as steps:
            for _ in steps:
                self._pass_on()
                if self.is_enough:
                    return False
        self._pass_on()
        return True

    def _pass_on(self) -> None:
        """Pass on waiting records until there is enough."""
        while self._arrived and not self._has_enough:
            ref, payload = self._arrived.popleft()
            if isinstance(payload, RecordBatch) and len(payload) > self._piece:
                self._arrived.appendleft((ref, payload.take(np.arange(self._piece, len(payload)))))
                payload = payload.take(np.arange(self._piece))
            for consumer in self._consumers[ref]:
                consumer(payload)
            self._passed += len(payload)
            self._piece = max(self._piece, self._passed)

    def finish(self) -> None:
        """Let the operators end the window: they emit the results of all that they took in."""
        self._is_ending = True
        self._arrived.clear()
        self._chain.end_window()

    def close(self, failed: BaseException | None = None) -> None:
        """Tear down the operators; see tear_down().

        Raises:
            DagflowError: An operator could not be torn down, and nothing had failed before.
        """
        tear_down(self._chain, failed=failed)


def _through(split: Callable[[Any], Any], consume: Consumer) -> Consumer:
    """Pass on the parts that a router makes of each batch."""

    def take(payload: Any) -> None:
        for _, part in split(payload):
            consume(part)

    return take


def _reject_of(record: Any) -> PreviewReject | None:
    """The refused record that a reader describes; None where an author's port of that name emits something else."""
    try:
        reject = Reject.from_bytes(record)
    except ValueError:
        return None
    return PreviewReject(reject.url, reject.offset, reject.length, reject.reason, reject.raw)
