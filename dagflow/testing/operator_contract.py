"""The laws that every operator keeps, as tests to inherit."""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pydantic import ValidationError

from dagflow.api.control import CommitListener
from dagflow.api.operator import Operator
from dagflow.api.properties import property_model
from dagflow.api.records import RecordBatch
from dagflow.engine.preparation import LocationCollector
from dagflow.storage.context import StorageContext
from dagflow.storage.location import absolute, join
from dagflow.testing.operators import MemoryOutputs, OperatorHarness

Inputs = Mapping[str, Any]
"""The input of one window, by input port: a RecordBatch, or a list of bytes, of mappings or of tuples."""


@dataclass
class Outcome:
    """The results of an operator in some windows.

    Attributes:
        emitted: The emitted items, by output port.
        files: The contents of the files that it wrote, in the order of their names.
    """

    emitted: dict[str, list[Any]] = field(default_factory=dict)
    files: list[bytes] = field(default_factory=list)
    counters: Counter[str] = field(default_factory=Counter)

    def add(self, harness: OperatorHarness) -> None:
        """Add the results of an instance since it was made."""
        for port, items in harness.emitted.items():
            self.emitted.setdefault(port, []).extend(items)
        self.counters.update(harness.counters)


class OperatorContract(ABC):
    """Tests of one operator; a subclass, whose name begins with Test, creates it and provides its input.

    The operator should emit in these windows, and if it keeps state more than one of them should change it.
    """

    @abstractmethod
    def operator(self) -> Operator:
        """A new instance, the same each time."""

    @abstractmethod
    def windows(self) -> Sequence[Inputs]:
        """The input of each window; a mapping without ports for an input operator, until all is emitted."""

    def test_a_window_without_input_changes_nothing(self) -> None:
        """Windows without input may come at any time."""
        padded = [each for window in self.windows() for each in ({}, window, {})]
        assert self._outcome(padded) == self._outcome(self.windows())

    def test_records_that_were_all_dropped_give_nothing(self) -> None:
        """A batch without records, as a filter leaves it, has columns and nothing else."""
        ports = self.operator().input_ports
        emptied = [
            {name: _none_of(items) for name, items in window.items() if ports[name].carries_records}
            for window in self.windows()
        ]
        outcome = self._outcome([window for window in emptied if window])
        assert not any(outcome.emitted.values()) and not outcome.files

    def test_the_cut_into_batches_changes_nothing(self) -> None:
        """A window arrives in any number of batches: nothing may depend on where one ends."""
        whole, cut = self._outcome(self.windows()), self._outcome(self.windows(), at_once=1)
        did = any(whole.emitted.values()) or whole.files or whole.counters
        assert did, "the operator emits nothing, writes nothing and counts nothing in these windows"
        assert cut.emitted == whole.emitted, "other records when each of them arrives by itself"

    def test_a_restart_after_any_window_changes_nothing(self) -> None:
        """Later windows depend on nothing but the snapshot."""
        expected = self._outcome(self.windows())
        for position in range(1, len(self.windows()) + 1):
            assert self._outcome(self.windows(), restart_at=position) == expected

    def test_a_pickled_copy_does_the_same(self) -> None:
        """Operators are sent to executors, before and after they have run in the driver's process."""
        copy = pickle.loads(pickle.dumps(self.operator()))
        assert self._outcome(self.windows(), copy) == self._outcome(self.windows())

    def test_a_snapshot_is_of_the_declared_type(self) -> None:
        """A state that the journal keeps by the names of its fields has these fields."""
        harness = OperatorHarness(self.operator())
        for window in self.windows():
            _run_window(harness, window)
            harness.saved_state()
        harness.close()

    def test_an_unknown_property_is_refused(self) -> None:
        """A name that is misspelt in an app is not ignored."""
        try:
            type(self.operator())(no_such_property=1)
        except ValidationError as error:
            assert "no_such_property" in str(error)
        else:
            raise AssertionError("the property was accepted")

    def test_every_property_says_what_it_does(self) -> None:
        """`dagflow operators` shows it: a description, or an entry below `Attributes:` in the class's docstring."""
        cls: type = type(self.operator())
        fields = property_model(cls).model_fields.items()
        documented = "\n".join(base.__doc__ or "" for base in cls.__mro__)
        assert [name for name, info in fields if not info.description and f" {name}: " not in documented] == []

    def test_files_are_written_where_the_operator_claims(self) -> None:
        """The claims of prepare() are checked before a run; other locations are not known then."""
        outputs = MemoryOutputs()
        harness = OperatorHarness(self.operator(), outputs=outputs)
        for window in self.windows():
            _run_window(harness, window)
        harness.close()
        collector = LocationCollector(StorageContext.default())
        if outputs.files:
            self.operator().prepare(collector)
        claimed = tuple(join(url, "") for url in collector.outputs)
        elsewhere = [url for url in outputs.files if not absolute(url).startswith(claimed)]
        assert elsewhere == [], f"not below a location that prepare() claims, which are: {sorted(collector.outputs)}"

    def _outcome(
        self,
        windows: Iterable[Inputs],
        operator: Operator | None = None,
        restart_at: int | None = None,
        at_once: int | None = None,
    ) -> Outcome:
        outcome, outputs = Outcome(), MemoryOutputs()
        harness = OperatorHarness(operator or self.operator(), outputs=outputs)
        for position, window in enumerate(windows, 1):
            _run_window(harness, window, at_once)
            if position == restart_at:
                outcome.add(harness)
                other = harness.restart(self.operator())
                harness.close()
                harness = other
        harness.close()
        outcome.add(harness)
        outcome.files = [outputs.files[url] for url in sorted(outputs.files)]
        return outcome


def _run_window(harness: OperatorHarness, window: Inputs, at_once: int | None = None) -> None:
    harness.window(window, at_once=at_once)
    if isinstance(harness.operator, CommitListener):
        harness.operator.committed(harness.window_id)


def _none_of(items: Any) -> RecordBatch:
    batch = items if isinstance(items, RecordBatch) else RecordBatch.from_records(items)
    return batch.filter(pa.array([False] * len(batch)))
