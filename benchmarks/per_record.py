"""What a record costs that a per-record method handles: all of it, and the part that no framework can save.

    python -m benchmarks.per_record

Prints nanoseconds of CPU for each record, the least of several passes in this process: `floor` makes the records as
objects of Python and calls the method, and does nothing else; `dagflow` gives batches to an operator and takes batches
from it, with the place and the type of each value. Reading and writing come on top; see benchmarks.throughput.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from apps.drop_comments import DropComments
from benchmarks.measuring import table
from dagflow import InputPort, Operator, OutputPort
from dagflow.api.context import Counts
from dagflow.api.records import Origin, RecordBatch
from dagflow.execution.chain import Chain
from dagflow.execution.emitted_records import PIECE_RECORDS
from dagflow.execution.task_process import keep_freed_memory
from dagflow.plan.physical import PortRef

RECORDS = 10_000
BATCHES = 12
PASSES = 9


class DropShop(Operator):
    """Drops the rows of a shop."""

    input = InputPort()
    output = OutputPort()

    @input.each
    def drop(self, row: dict[str, Any]) -> None:
        """Called once per record."""
        if row["shop"] != "shop 3":
            self.output.emit(row)


def lines() -> RecordBatch:
    """Lines of about 100 bytes; one in ten begins with a dot."""
    dice = random.Random(1)
    made = [b"." * (dice.random() < 0.1) + b"x" * dice.randint(60, 140) for _ in range(RECORDS)]
    return RecordBatch.from_records(made, origin=Origin(("file",), np.arange(RECORDS)))


def rows() -> RecordBatch:
    """Two texts, a number, a price and a time."""
    dice, first = random.Random(1), datetime(2026, 1, 1)
    numbers = range(RECORDS)
    columns = {
        "sold_at": pa.array([first + timedelta(minutes=dice.randint(0, 500_000)) for _ in numbers]),
        "shop": pa.array([f"shop {dice.randint(0, 9)}" for _ in numbers]),
        "product": pa.array([f"product {dice.randint(0, 9999)} of many" for _ in numbers]),
        "qty": pa.array([dice.randint(0, 99) for _ in numbers], pa.int32()),
        "price": pa.array([Decimal(dice.randint(1, 99_999)) / 100 for _ in numbers], pa.decimal128(9, 2)),
    }
    return RecordBatch(pa.RecordBatch.from_pydict(columns), origin=Origin(("file",), np.arange(RECORDS)))


def least_ns(work: Callable[[], object]) -> float:
    """Nanoseconds of CPU for each record of a piece of work that is done several times."""
    taken = []
    for _ in range(PASSES):
        began = time.process_time()
        work()
        taken.append(time.process_time() - began)
    return min(taken) / (RECORDS * BATCHES) * 1e9


def measure(operator: Any, batch: RecordBatch) -> tuple[float, float]:
    """Nanoseconds of the floor, and of dagflow."""
    taken: list[Any] = []
    alone = type(operator)()
    alone.output.emit = taken.append

    def floor() -> None:
        for _ in range(BATCHES):
            for start in range(0, RECORDS, PIECE_RECORDS):
                for record in batch.slice(start, PIECE_RECORDS).to_pylist():
                    alone.drop(record)
                taken.clear()

    chain = Chain({"drop": operator}, (), {"drop": Counts()})
    chain.connect(PortRef("drop", "output"), lambda _: None)
    chain.begin_window(1)

    def dagflow() -> None:
        for _ in range(BATCHES):
            for _ in chain.feed(PortRef("drop", "input"), batch):
                pass

    return least_ns(floor), least_ns(dagflow)


def main() -> None:
    """Print the table."""
    keep_freed_memory()
    cases = [("a line", DropComments(), lines()), ("five columns", DropShop(), rows())]
    gc.collect()
    gc.freeze()
    found = [(name, *measure(operator, batch)) for name, operator, batch in cases]
    print(table(["record", "floor ns", "dagflow ns"], [(name, f"{a:.0f}", f"{b:.0f}") for name, a, b in found]))


if __name__ == "__main__":
    main()
