"""Chains: how operators pass records to each other in one process."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Generator, Sequence
from typing import Any, Literal, overload

import numpy as np
import pyarrow as pa
import pytest

from dagflow import InputPort, Operator, OutputPort
from dagflow.api.context import Counts
from dagflow.api.records import Delimiters, Origin, RecordBatch
from dagflow.errors import DagflowError, OperatorError, RecordError, SourceChangedError, TransientStorageError
from dagflow.execution.chain import Chain
from dagflow.execution.emitted_records import BATCH_BYTES
from dagflow.execution.failures import ActiveCall
from dagflow.execution.port_buffer import GATHERED_ITEMS
from dagflow.plan.physical import Edge, PortRef
from dagflow.testing.operators import OperatorHarness, run_operator
from tests.execution.sample_operators import (
    CallsFunctions,
    CountBeforeRecord,
    DropPrefixed,
    EmitsMixedColumn,
    FailsAtBadRecords,
    Halves,
    KeepsEmitMethod,
    Repeat,
    SampleWords,
    TextSample,
    Total,
    Upper,
)


def batch_of(*records: bytes, delimiter: bytes = b"\n") -> RecordBatch:
    """A batch as a reader makes it, of one block that begins at offset 100."""
    lengths = [len(record) + len(delimiter) for record in records]
    starts = np.concatenate([[0], np.cumsum(lengths)])[:-1].astype(np.int64)
    block = TextSample("logs/a.txt", b"x" * 50, 100)
    return RecordBatch.from_records(list(records), Delimiters((delimiter,)), Origin((block,), starts, 100))


def test_a_per_record_operator_keeps_origin_and_delimiter() -> None:
    """A record that passes through is written with its own delimiter, and still knows its offset."""
    harness = OperatorHarness(DropPrefixed(prefix="#"))
    harness.window({"input": batch_of(b"a", b"#b", b"", b"c", delimiter=b"\r\n")})
    (out,) = harness.batches["output"]
    assert out.to_pylist() == [b"a", b"", b"c"]
    assert out.offsets().tolist() == [100, 107, 109]
    assert out.framed().to_pylist() == [b"a\r\n", b"\r\n", b"c\r\n"]


@pytest.mark.parametrize("since", ["setup", "first record"])
def test_an_operator_may_keep_the_way_to_emit(since: Literal["setup", "first record"]) -> None:
    """However many records a batch has, and in whichever batch, what is emitted so belongs to its record."""
    records = [b"#" if n % 3 else b"%d" % n for n in range(3 * GATHERED_ITEMS + 3)]
    harness = OperatorHarness(KeepsEmitMethod(since=since))
    for _ in range(2):
        harness.window({"input": batch_of(*records, delimiter=b"\r\n")})
    passed, *others = harness.batches["output"]
    assert passed.to_pylist() == records[::3]
    assert passed.framed().to_pylist() == [record + b"\r\n" for record in records[::3]]
    assert passed.offsets().tolist() == batch_of(*records, delimiter=b"\r\n").offsets().tolist()[::3]
    assert [other.framed() for other in others] == [passed.framed()]


def test_a_way_to_emit_that_was_kept_too_early_does_not_travel() -> None:
    """In another process it would lead nowhere."""
    operator = KeepsEmitMethod(since="constructor")
    with pytest.raises(TypeError, match=r"keep self\.output\.emit in setup\(\), not before"):
        pickle.dumps(operator)


def test_a_record_that_multiplies_gives_its_origin_to_each_copy() -> None:
    """Every record that an operator emits belongs to the record it was called with."""
    harness = OperatorHarness(Repeat())
    harness.window({"input": batch_of(b"ab", b"", b"c")})
    (out,) = harness.batches["output"]
    assert out.to_pylist() == [b"ab", b"ab", b"c"]
    assert out.offsets().tolist() == [100, 100, 104]
    assert harness.emitted["sizes"] == [2, 0, 1]


@pytest.mark.parametrize("place", ["each", "end_window"])
def test_records_that_are_many_bytes_go_on_in_several_batches(place: str) -> None:
    """An operator that makes large records of small ones cannot say in which batches they go on."""

    class Enlarge(Operator):
        input = InputPort()
        output = OutputPort()

        def begin_window(self, window_id: int) -> None:
            self.made: list[bytes] = []

        @input.each
        def enlarge(self, record: bytes) -> None:
            self.made.append(record * (BATCH_BYTES // 2))
            if place == "each":
                self.output.emit(self.made.pop())

        def end_window(self) -> None:
            for record in self.made:
                self.output.emit(record)

    harness = OperatorHarness(Enlarge())
    harness.window({"input": batch_of(b"a", b"b", b"ccc", b"d", delimiter=b"\r\n")})
    batches = [batch for batch in harness.batches["output"] if len(batch)]
    heads = [[record[:1] for record in batch.to_pylist()] for batch in batches]
    assert heads == [[b"a", b"b"], [b"c"], [b"d"]]
    if place == "each":
        assert [batch.offsets().tolist() for batch in batches] == [[100, 103], [106], [111]]
        assert batches[2].framed()[0].as_py().endswith(b"d\r\n")


def test_a_per_record_method_takes_records_with_columns_as_mappings() -> None:
    """What one operator emits record by record, the next takes record by record."""
    counted = [{"record": b"a", "count": 2}, {"record": b"b", "count": 1}]
    assert run_operator(CountBeforeRecord(), counted)["output"] == [b"2 a", b"1 b"]


@pytest.mark.parametrize(
    ("second", "text"),
    [(b"a", "has bytes where an earlier one has int"), (b"%d" % 2**63, "has a value that fits no type")],
)
def test_values_that_make_no_column_are_an_error_of_their_operator(second: bytes, text: str) -> None:
    """It is named, as for all that its code raises, with column and record, and not who is upstream."""
    edge = Edge("stream", PortRef("lines", "records"), PortRef("unlike", "input"))
    chain = Chain({"lines": SampleWords(), "unlike": EmitsMixedColumn()}, [edge], {}, partition=0)
    chain.connect(PortRef("unlike", "output"), [].append)
    chain.begin_window(1)
    with pytest.raises(OperatorError, match=rf"operator 'unlike'.* split\(\) raised .*'value': record 2 {text}"):
        chain.consumer_of(PortRef("lines", "samples"))([TextSample("a", b"1 " + second)])


class ForwardsBatches(Operator):
    """Passes batches on."""

    input = InputPort()
    output = OutputPort()

    @input.batch
    def pass_on(self, batch: RecordBatch) -> None:
        """As they are."""
        self.output.emit(batch)


@pytest.mark.parametrize("kind", [ForwardsBatches, DropPrefixed])
def test_a_batch_passes_more_operators_than_python_lets_calls_be_nested(kind: type[Operator]) -> None:
    """Each operator is called within the call of the one before it."""
    names = [f"step{number}" for number in range(600)]
    edges = [Edge("s", PortRef(a, "output"), PortRef(b, "input")) for a, b in itertools.pairwise(names)]
    chain = Chain({name: kind() for name in names}, edges, {name: Counts() for name in names}, partition=0)
    made: list[RecordBatch] = []
    chain.connect(PortRef(names[-1], "output"), made.append)
    chain.begin_window(1)
    chain.consumer_of(PortRef(names[0], "input"))(batch_of(b"a", b"b"))
    chain.end_window()
    assert [record for batch in made for record in batch.to_pylist()] == [b"a", b"b"]


def passed_on_to(second: Operator, batch: RecordBatch) -> list[RecordBatch]:
    """What an operator makes of a batch that another one passes on to it."""
    made: list[RecordBatch] = []
    edge = Edge("stream", PortRef("first", "output"), PortRef("second", "input"))
    chain = Chain({"first": ForwardsBatches(), "second": second}, [edge], {}, partition=0)
    chain.connect(PortRef("second", "output"), made.append)
    chain.begin_window(1)
    chain.consumer_of(PortRef("first", "input"))(batch)
    return made


@pytest.mark.parametrize(
    "column",
    [
        pa.array([None, 1], pa.timestamp("ns")),
        pa.array([1000, 1], pa.time64("ns")),
        pa.array([[1]], pa.list_(pa.timestamp("ns", "UTC"))),
    ],
)
def test_nanoseconds_are_refused_by_the_operator_with_the_method(column: pa.Array) -> None:
    """Not by the one before it; what takes batches, as the error advises, passes them on."""
    batch = RecordBatch(pa.RecordBatch.from_pydict({"record": column, "t": column}))
    with pytest.raises(OperatorError, match=r"'second'.*join\(\) raised .*column 'record' is .*ns.*with @input.batch"):
        passed_on_to(CountBeforeRecord(), batch)
    (passed,) = passed_on_to(ForwardsBatches(), batch)
    assert passed.to_arrow().equals(batch.to_arrow())


@pytest.mark.parametrize(
    "column",
    [
        pa.array([0, 253_402_300_799], pa.timestamp("s", "Europe/Paris")),
        pa.array([253_402_300_800], pa.timestamp("s")),
        pa.array([2_932_897], pa.date32()),
        pa.array([[-719_163]], pa.list_(pa.date32())),
    ],
)
def test_times_that_python_has_not_are_refused_with_their_column(column: pa.Array) -> None:
    """Times of other years than 1 to 9999, by the clocks of their zone; what takes batches passes them on."""
    batch = RecordBatch(pa.RecordBatch.from_pydict({"record": column, "t": column}))
    expected = r"'second'.*join\(\) raised .*column 'record' is .* values that Python has not .*with @input.batch"
    with pytest.raises(OperatorError, match=expected):
        passed_on_to(CountBeforeRecord(), batch)
    (passed,) = passed_on_to(ForwardsBatches(), batch)
    assert passed.to_arrow().equals(batch.to_arrow())


def test_a_one_to_one_arrow_batch_keeps_the_origin() -> None:
    """As many rows out as records in are the same records."""
    harness = OperatorHarness(Upper())
    harness.window({"input": batch_of(b"ab", b"c")})
    (out,) = harness.batches["output"]
    assert out.to_pylist() == [b"AB", b"C"]
    assert out.offsets().tolist() == [100, 103]


def test_an_operator_that_drops_everything_still_passes_on_the_blocks() -> None:
    """A writer of one file per block must learn of blocks that have no records left."""
    harness = OperatorHarness(DropPrefixed(prefix=""))
    harness.window({"input": batch_of(b"a")})
    (out,) = harness.batches["output"]
    assert len(out) == 0
    assert [block.url for block in out.blocks] == ["logs/a.txt"]


def test_a_failure_names_operator_record_and_place() -> None:
    """Who reads the error can find the record in the file."""
    with pytest.raises(OperatorError, match=r"partition 0: check\(\) raised KeyError\('host'\)") as caught:
        run_operator(FailsAtBadRecords(), batch_of(b"good", b"bad"))
    assert caught.value.offset == 105
    assert "logs/a.txt [100, 150)" in str(caught.value)
    assert "KeyError" in caught.value.trace


def test_a_batch_that_fails_is_reported_with_all_of_its_blocks() -> None:
    """Which of them it was, only the operator could know."""

    def fail(operator: CallsFunctions) -> None:
        raise ValueError("no amount")

    blocks = [TextSample(url, b"x" * 50, 100) for url in ("a", "b", "c")]
    origin = Origin(tuple(blocks), np.array([0, 0, 0]), 100, np.arange(3, dtype=np.int32))
    batch = RecordBatch.from_records([b"1", b"2", b"3"], origin=origin)
    expected = (
        r"take\(\) raised ValueError\(no amount\) in a batch of 3 blocks, from a \[100, 150\) to c \[100, 150\)\n"
    )
    with pytest.raises(OperatorError, match=expected):
        run_operator(CallsFunctions(take=fail), batch)


def test_a_report_makes_only_the_blocks_that_it_names() -> None:
    """There is one for each small file of a batch, and reports are made while the batch is worked on."""
    made: list[int] = []

    class Blocks(Sequence[TextSample]):
        """Blocks that are made when they are asked for."""

        def __len__(self) -> int:
            return 200

        @overload
        def __getitem__(self, index: int) -> TextSample: ...
        @overload
        def __getitem__(self, index: slice) -> Sequence[TextSample]: ...
        def __getitem__(self, index: int | slice) -> TextSample | Sequence[TextSample]:
            assert isinstance(index, int)
            made.append(range(200)[index])
            return TextSample(str(made[-1]), b"x" * 50)

    blocks: Any = Blocks()
    batch = RecordBatch.from_records([b"1"], origin=Origin(blocks, np.array([0]), 0, np.zeros(1, np.int32)))
    active_call = ActiveCall("reader", CallsFunctions().take, batch)
    assert str(active_call) == "take() in a batch of 200 blocks, from 0 [0, 50) to 199 [0, 50)"
    assert {*made} == {0, 199}


def test_an_error_of_dagflows_own_gets_a_place_and_keeps_its_hint() -> None:
    """An operator that raises it knows neither its name in the app nor the file."""
    with pytest.raises(OperatorError, match=r"partition 0: the amount is neg") as caught:
        run_operator(FailsAtBadRecords(error="DagflowError"), batch_of(b"good", b"bad"))
    assert (caught.value.offset, caught.value.hint) == (105, "ask the shop")
    assert "logs/a.txt [100, 150)" in str(caught.value)


@pytest.mark.parametrize("kind", [RecordError, TransientStorageError, SourceChangedError])
def test_an_error_that_others_decide_by_stays_what_it_is(kind: type[DagflowError]) -> None:
    """One is tried again, another is left out, and each has its own place."""
    with pytest.raises(kind, match=r"logs/b\.txt|s3://b"):
        run_operator(FailsAtBadRecords(error=kind.__name__), [b"bad"])


def test_an_operator_that_exits_has_failed() -> None:
    """Otherwise the process would be gone and the operator would not be reported."""
    with pytest.raises(OperatorError, match=r"check\(\) raised SystemExit\(3\)"):
        run_operator(FailsAtBadRecords(error="SystemExit"), [b"bad"])


def test_what_ends_a_generator_is_a_failure_of_an_operator_that_raises_it() -> None:
    """Where the chain itself is closed, in a pause of the operator, it is none."""
    with pytest.raises(OperatorError, match=r"check\(\) raised GeneratorExit\(\)"):
        run_operator(FailsAtBadRecords(error="GeneratorExit"), [b"bad"])
    chain = Chain({"lines": SampleWords()}, [], {}, partition=0)
    chain.begin_window(1)
    steps = chain.feed(PortRef("lines", "samples"), [TextSample("a", b"1 2")])
    next(steps)
    steps.close()
    assert not chain.calls


def test_an_item_of_the_wrong_type_is_refused_at_the_port() -> None:
    """What the port does not carry never reaches the next operator."""

    class Wrong(Operator):
        input = InputPort()
        output = OutputPort()

        @input.each
        def wrong(self, record: bytes) -> None:
            self.output.emit(record.decode())

    with pytest.raises(OperatorError, match=r"records must all be bytes, or all dicts.*got str"):
        run_operator(Wrong(), [b"a"])


def test_emitting_dicts_makes_columns() -> None:
    """A mapping of column to value is a record with columns."""

    class Parse(Operator):
        input = InputPort()
        output = OutputPort()

        @input.each
        def parse(self, record: bytes) -> None:
            self.output.emit({"size": len(record)})

    assert run_operator(Parse(), [b"a", b"bcd"])["output"] == [{"size": 1}, {"size": 3}]


def test_a_generator_handler_runs_to_its_end_for_every_tuple() -> None:
    """A reader may pause between batches; nothing after the pause is lost."""
    emitted = run_operator(SampleWords(), [TextSample("a", b"x y"), TextSample("b", b"z")], port="samples")
    assert emitted["records"] == [b"x", b"y", b"z"]
    assert [sample.url for sample in emitted["done"]] == ["a", "b"]


def test_a_generator_handler_runs_to_its_end_for_every_record() -> None:
    """What it emits after its pause belongs to the record, like what it emitted before."""
    harness = OperatorHarness(Halves())
    harness.window({"input": batch_of(b"ab", b"cdef")})
    (out,) = harness.batches["output"]
    assert out.to_pylist() == [b"a", b"b", b"cd", b"ef"]
    assert out.offsets().tolist() == [100, 100, 103, 103]


@pytest.mark.parametrize("mode", ["each", "batch"])
@pytest.mark.parametrize("what", ["yielded", "returned"])
def test_a_handler_that_gives_back_what_it_should_emit_is_refused(what: str, mode: str) -> None:
    """It would be lost silently."""
    port = InputPort()

    class GivesBack(Operator):
        input = port
        output = OutputPort()

        @getattr(port, mode)  # type: ignore[untyped-decorator]  # either of two
        def take(self, item: object) -> object:
            return iter([item]) if what == "yielded" else item

    with pytest.raises(OperatorError, match=rf"take\(\) {what} .*; emit with self\.output\.emit\(\.\.\.\)"):
        run_operator(GivesBack(), [b"a"])


@pytest.mark.parametrize("mode", ["each", "batch"])
def test_a_generator_handler_that_returns_a_value_is_refused(mode: str) -> None:
    """Behind its last pause, as a plain handler; one of an operator without output may return anything."""
    port = InputPort()

    class Sink(Operator):
        input = port

        @getattr(port, mode)  # type: ignore[untyped-decorator]  # either of two
        def take(self, item: object) -> Generator[None, None, object]:
            yield
            return item

    class GivesBack(Sink):
        output = OutputPort()

    run_operator(Sink(), [b"a"])
    with pytest.raises(OperatorError, match=r"take\(\) returned .*; emit with self\.output\.emit\(\.\.\.\)"):
        run_operator(GivesBack(), [b"a"])


async def later() -> None:
    """Never awaited."""


@pytest.mark.parametrize("place", ["setup", "take", "end_window"])
def test_a_method_that_turns_out_to_be_asynchronous_is_an_error(place: str) -> None:
    """A decorator may have hidden it when its class was defined."""
    with pytest.raises(OperatorError, match=rf"{place}\(\) is asynchronous.* asyncio\.run"):
        run_operator(CallsFunctions(**{place: lambda _: later()}), [b"a"])


def test_a_life_cycle_method_that_turns_out_to_be_a_generator_is_an_error() -> None:
    """As when its class says so."""
    with pytest.raises(OperatorError, match=r"end_window\(\) is a generator"):
        run_operator(CallsFunctions(end_window=lambda _: (print() for _ in "a")), [b"a"])


def test_a_restarted_operator_goes_on_from_its_snapshot() -> None:
    """State crosses windows through snapshot and restore, and through nothing else."""
    harness = OperatorHarness(Total())
    harness.window({"input": [b"a", b"b"]})
    other = harness.restart()
    other.window({"input": [b"c"]})
    assert other.emitted["output"] == [b"3"]


def test_an_operator_is_a_plain_object() -> None:
    """Without an app, emit goes to whatever a test connects."""
    operator = DropPrefixed(prefix="#")
    seen: list[bytes] = []
    operator.output.connect(seen.append)
    operator.drop(b"#x")
    operator.drop(b"y")
    assert seen == [b"y"]
