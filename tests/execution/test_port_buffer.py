"""What an operator may emit, when, and from where; all else is refused, and nothing is lost silently."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from dagflow import InputOperator, InputPort, Operator, OutputPort, RecordBatch
from dagflow.errors import OperatorError
from dagflow.testing.operators import OperatorHarness, run_operator
from tests.execution.sample_operators import CallsFunctions, DropPrefixed

FROM_THREAD = "emitted at port output from a thread of its own"


class EmitsFromThreads(DropPrefixed):
    """Lets threads emit; they have ended when the window ends."""

    def begin_window(self, window_id: int) -> None:
        """No thread has started."""
        self.pool = ThreadPoolExecutor(4)
        self.futures: list[Future[Any]] = []

    @DropPrefixed.input.each
    def drop(self, record: bytes) -> None:
        """Leave it to a thread."""
        self.futures.append(self.pool.submit(self.emit, record))

    def emit(self, record: bytes) -> None:
        """In a thread."""
        self.output.emit(record)

    def end_window(self) -> None:
        """Wait for all of them."""
        self.pool.shutdown()
        for future in self.futures:
            future.result()


def test_what_threads_emit_is_there_or_an_error() -> None:
    """No record is lost, whenever the threads run."""
    records = [b"%d" % number for number in range(5000)]
    try:
        emitted = run_operator(EmitsFromThreads(), records)["output"]
    except OperatorError as error:
        assert FROM_THREAD in str(error)
    else:
        assert sorted(emitted) == sorted(records)


class EmitsForThreads(EmitsFromThreads):
    """Lets threads return what they made, and emits it itself."""

    def emit(self, record: bytes) -> Any:
        """In a thread."""
        return record

    def end_window(self) -> None:
        """Wait for all of them."""
        for future in self.futures:
            self.output.emit(future.result())
        self.pool.shutdown()


def test_what_threads_return_may_be_emitted() -> None:
    """As the error advises."""
    records = [b"%d" % number for number in range(5000)]
    assert run_operator(EmitsForThreads(), records)["output"] == records


@pytest.mark.parametrize("is_joined", [True, False])
def test_a_thread_that_emits_is_reported_where_the_operator_works(is_joined: bool) -> None:
    """Also where the thread keeps its error to itself."""

    def emit_in_thread(operator: CallsFunctions) -> None:
        def emit() -> None:
            try:
                operator.output.emit(b"late")
            except Exception as error:
                if is_joined:
                    raised.append(error)

        raised: list[Exception] = []
        thread = threading.Thread(target=emit)
        thread.start()
        thread.join()
        for error in raised:
            raise error

    with pytest.raises(OperatorError, match=rf"end_window\(\) .*{FROM_THREAD}"):
        run_operator(CallsFunctions(end_window=emit_in_thread), [b"a"])


@dataclass
class MutableTuple:
    """A tuple that can be changed."""

    number: int


class ReemitsTuple(InputOperator):
    """Emits the same tuple again and again."""

    out = OutputPort(MutableTuple)

    def emit_tuples(self) -> None:
        """Change it each time."""
        row = MutableTuple(0)
        for row.number in range(3):
            self.out.emit(row)


class ReemitsMapping(Operator):
    """Emits the same mapping again and again."""

    input = InputPort()
    output = OutputPort()

    @input.each
    def tag(self, record: dict[str, Any]) -> None:
        """Change it each time."""
        for record["tag"] in "ab":
            self.output.emit(record)


def tag_at_the_end(operator: CallsFunctions) -> None:
    """Emit the same mapping again and again when the window ends."""
    record = {"n": 0}
    for record["n"] in range(3):
        operator.output.emit(record)


@pytest.mark.parametrize(
    ("work", "kind"),
    [
        (lambda: run_operator(ReemitsMapping(), [{"n": 1}]), "dict"),
        (lambda: run_operator(CallsFunctions(end_window=tag_at_the_end), []), "dict"),
        (lambda: OperatorHarness(ReemitsTuple()).window({}), "MutableTuple"),
    ],
    ids=["per record", "at the end", "tuples"],
)
def test_an_object_that_is_changed_and_emitted_again_is_refused(work: Callable[[], Any], kind: str) -> None:
    """All of them would have the values that it had last."""
    with pytest.raises(OperatorError, match=f"the same {kind} was emitted more than once.* emit a new {kind}"):
        work()


def test_what_cannot_be_changed_may_be_emitted_again() -> None:
    """Bytes are what they are."""

    class Twice(DropPrefixed):
        """Emits each record twice."""

        @DropPrefixed.input.each
        def drop(self, record: bytes) -> None:
            """Emit it, and once more."""
            self.output.emit(record)
            self.output.emit(record)

    assert run_operator(Twice(), [b"a"])["output"] == [b"a", b"a"]


def emitting(records: Sequence[Any]) -> CallsFunctions:
    """An operator that emits something when its window ends."""
    return CallsFunctions(end_window=lambda operator: [operator.output.emit(each) for each in records] and None)


NULLS = pa.RecordBatch.from_pydict({"record": pa.array([None, b"x"], pa.binary())})


@pytest.mark.parametrize(
    "emitted", [[NULLS], [RecordBatch(NULLS)], [{"record": None}, {"record": b"x"}]], ids=["Arrow", "batch", "mappings"]
)
def test_raw_records_that_are_null_are_refused(emitted: list[Any]) -> None:
    """A writer has no bytes for them, and would leave them out."""
    with pytest.raises(OperatorError, match="emitted at port output raw records that are null"):
        run_operator(emitting(emitted), [])


@pytest.mark.parametrize("place", ["setup", "teardown"])
def test_what_is_emitted_outside_of_a_window_is_refused(place: str) -> None:
    """With the operator that does it: the operators downstream are not ready for it."""

    def emit(operator: CallsFunctions) -> None:
        operator.output.emit(b"x")

    with pytest.raises(OperatorError, match=rf"{place}\(\) emitted at port output outside of a window"):
        run_operator(CallsFunctions(**{place: emit}), [b"a"])


@pytest.mark.parametrize("place", ["begin_window", "end_window"])
def test_what_is_returned_instead_of_emitted_is_refused(place: str) -> None:
    """A returned value is not emitted."""
    with pytest.raises(OperatorError, match=rf"{place}\(\) returned list; emit with self\.output\.emit"):
        run_operator(CallsFunctions(**{place: lambda _: [b"x"]}), [b"a"])


def test_a_returned_list_of_tuples_is_refused() -> None:
    """An input operator emits as well."""

    class Returns(InputOperator):
        """Returns what it should emit."""

        out = OutputPort(MutableTuple)

        def emit_tuples(self) -> Any:
            """Return it."""
            return [MutableTuple(1)]

    with pytest.raises(OperatorError, match=r"emit_tuples\(\) returned list; emit with self\.out\.emit"):
        OperatorHarness(Returns()).window({})


def test_two_methods_for_one_port_are_refused() -> None:
    """The first of them would never be called; a subclass may replace a handler."""

    def first(self: Operator, record: bytes) -> None:
        """Called once per record."""

    def second(self: Operator, batch: RecordBatch) -> None:
        """Called once per batch."""

    methods = {"first": CallsFunctions.input.each(first), "second": CallsFunctions.input.batch(second)}
    with pytest.raises(TypeError, match=r"Both\.first\(\) and Both\.second\(\) both take the input of port input"):
        type("Both", (CallsFunctions,), methods)
    one: Any = type("One", (CallsFunctions,), {"second": methods["second"]})
    assert one.handlers == {"input": ("batch", "second")}
