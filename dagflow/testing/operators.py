"""Runs one operator without an app: tests feed it, and read what it emits."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from dagflow.api.capabilities import Composite, loaded_side_data
from dagflow.api.columns.column_values import readable_rows
from dagflow.api.context import Counts, OperatorContext, OutputFiles
from dagflow.api.control import CommitListener, InputOperator
from dagflow.api.operator import Operator
from dagflow.api.ports import unbatched
from dagflow.api.records import RecordBatch
from dagflow.api.sources import FileSources
from dagflow.execution.chain import Chain, tear_down
from dagflow.execution.state_codec import StateCodec
from dagflow.journal.saved_state import SavedState
from dagflow.plan.physical import PortRef
from dagflow.storage.pending import FileFacts
from dagflow.suggestions import did_you_mean


class MemoryOutputs:
    """Output files in memory.

    Attributes:
        files: The files that were closed, by URL.
        records: How many records each of them has.
        facts: The facts of files for a target, by URL.
        written_bytes: Bytes written so far, also into files that were never closed.
    """

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.records: dict[str, int] = {}
        self.facts: dict[str, FileFacts] = {}
        self.written_bytes = 0

    def open(self, url: str) -> _MemoryFile:
        """Begin a file.

        Raises:
            AssertionError: A file of that name exists.
        """
        assert url not in self.files, f"{url} was written twice"
        return _MemoryFile(self, url)

    hold = open


class _MemoryFile:
    def __init__(self, outputs: MemoryOutputs, url: str) -> None:
        self._outputs = outputs
        self._url = url
        self._data = bytearray()

    def write(self, data: Any) -> None:
        self._data += data
        self._outputs.written_bytes += memoryview(data).nbytes

    def close(self, *, records: int, sources: FileSources | None = None, facts: FileFacts | None = None) -> None:
        self._outputs.files[self._url] = bytes(self._data)
        self._outputs.records[self._url] = records
        if facts is not None:
            self._outputs.facts[self._url] = facts


class OperatorHarness:
    """An operator wired as in an app, alone.

    Args:
        operator: An instance, constructed by keyword.
        connected: Names of the ports that count as connected; None for all.
        outputs: Where the operator opens files; None for memory.

    Attributes:
        emitted: The emitted items by output port: bytes for raw records, mappings for records with columns, tuples.
        batches: The emitted record batches, by record port.
        outputs: The files that the operator wrote.
        window_id: The newest window, 0 before the first.

    Raises:
        ValueError: The operator is a composite, whose parts would not run.
    """

    def __init__(
        self, operator: Operator, *, connected: Iterable[str] | None = None, outputs: OutputFiles | None = None
    ) -> None:
        if isinstance(operator, Composite) and (made_of := operator.expand()) is not None:
            raise ValueError(
                f"{type(operator).__name__} is made of {', '.join(made_of.parts)}, and does not run alone; "
                "test the app with `dagflow test` or run_app"
            )
        self.operator = operator
        self.outputs = outputs or MemoryOutputs()
        self.counters = Counts()
        self.emitted: dict[str, list[Any]] = {port: [] for port in operator.output_ports}
        self.batches: dict[str, list[RecordBatch]] = {port: [] for port in operator.output_ports}
        self._chain = Chain({"operator": operator}, [], {"operator": self.counters}, partition=0)
        for port in operator.output_ports:
            self._chain.connect(PortRef("operator", port), self._collector(port))
        ports = {*operator.input_ports, *operator.output_ports} if connected is None else set(connected)
        context = OperatorContext(counters=self.counters, connected=frozenset(ports), outputs=self.outputs)
        context.side_input = loaded_side_data(operator, context.storage)
        self._chain.setup("operator", context)
        self._connected = connected
        self._saved: dict[str, SavedState] | None = None
        self.window_id = 0

    def _collector(self, port: str) -> Any:
        def collect(payload: Any) -> None:
            if isinstance(payload, RecordBatch):
                self.batches[port].append(payload)
                self.emitted[port] += payload.to_pylist() if payload.is_raw else readable_rows(payload.to_arrow())
            else:
                self.emitted[port] += unbatched(payload)

        return collect

    def window(self, inputs: Mapping[str, Any] | None = None, *, at_once: int | None = None) -> None:
        """Run one window, up to the snapshot that its commit takes; an input operator emits what there is.

        Args:
            inputs: By input port: a RecordBatch, or a list of bytes, of mappings or of tuples.
            at_once: How many records or tuples arrive together at most; None for all.

        Raises:
            OperatorError: The operator raised, or its snapshot is not of the declared type or cannot be pickled.
            ValueError: The operator has no input port of a name, or no method for one; nothing was run.
        """
        for port in inputs or {}:
            _require_handler(type(self.operator), port)
        self._saved = None
        self.window_id += 1
        self._chain.begin_window(self.window_id)
        for port, items in (inputs or {}).items():
            is_records = self.operator.input_ports[port].carries_records
            payload = RecordBatch.from_records(items) if is_records and not isinstance(items, RecordBatch) else items
            consume = self._chain.consumer_of(PortRef("operator", port))
            for part in _parts(payload, at_once or len(payload)):
                consume(part)
        if isinstance(self.operator, InputOperator):
            self._chain.let_emit("operator", self.operator.emit_tuples)
        self._chain.end_window()
        self._saved = self._chain.snapshots()

    def restart(self, operator: Operator | None = None) -> OperatorHarness:
        """A new harness that continues from this one's snapshot, as after a crash.

        Args:
            operator: The new instance; None for a pickled copy of this one.
        """
        saved = self.saved_state()
        fresh = operator or pickle.loads(pickle.dumps(self.operator))
        other = OperatorHarness(fresh, connected=self._connected, outputs=self.outputs)
        other.window_id = self.window_id
        if saved is not None:
            codec = StateCodec.of_snapshots("operator", other.operator)
            other.operator.restore(codec.decode(msgspec.json.decode(msgspec.json.encode(saved), type=SavedState)))
        return other

    def saved_state(self) -> SavedState | None:
        """The snapshot of the newest window in the journal's form; a new one where committed() may have changed it.

        Returns:
            None where the operator has no state.

        Raises:
            OperatorError: The snapshot is not of the declared type, or cannot be pickled.
        """
        if self._saved is None or isinstance(self.operator, CommitListener):
            return self._chain.snapshots().get("operator")
        return self._saved.get("operator")

    def close(self) -> None:
        """Tear down the operator."""
        tear_down(self._chain)


def _require_handler(cls: type[Operator], port: str) -> None:
    if port not in cls.input_ports:
        ports = ", ".join(f"'{each}'" for each in cls.input_ports) or "none"
        suggested = did_you_mean(port, cls.input_ports) or ";"
        raise ValueError(f"{cls.__name__} has no input port '{port}'{suggested} it has {ports}")
    if port not in cls.handlers:
        raise ValueError(
            f"{cls.__name__} has no method for its input port '{port}'; mark one with @{port}.each or @{port}.batch"
        )


def _parts(payload: Any, at_once: int) -> Iterator[Any]:
    if len(payload) <= at_once:
        yield payload
        return
    for start in range(0, len(payload), at_once):
        is_batch = isinstance(payload, RecordBatch)
        yield payload.slice(start, at_once) if is_batch else payload[start : start + at_once]


def run_operator(operator: Operator, records: Any, *, port: str = "input") -> dict[str, list[Any]]:
    """Pass one window's records or tuples to an operator.

    Args:
        operator: An instance, constructed by keyword.
        records: A RecordBatch, or a list of bytes, of mappings or of tuples.
        port: The input port that they arrive at.

    Returns:
        The emitted items by output port.
    """
    harness = OperatorHarness(operator)
    harness.window({port: records})
    harness.close()
    return harness.emitted
