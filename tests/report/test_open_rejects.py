"""What a window has refused, with the blocks that it lies in."""

from __future__ import annotations

import pytest

from dagflow.api.refused_records import RefusedLog
from dagflow.errors import JournalError
from dagflow.journal.windows import (
    PlannedTuples,
    RefusedPart,
    Window,
    WindowIntent,
    WindowPlan,
    encode_tuples,
    kind_name,
)
from dagflow.report.open_rejects import rejects_of
from operators.files.metadata import BlockMetadata, FileMetadata, FileVersion

VERSION = FileVersion(9)
BLOCK = BlockMetadata(7, "a", VERSION, 0, 9, is_last=True)
FILE = FileMetadata("a", "a", VERSION, 9, 7, 1)


def window(*tuples: BlockMetadata | FileMetadata, block_id: int = 7) -> Window:
    """A window with an input port for each tuple, in which an operator behind them refused a record of a block."""
    log = RefusedLog()
    log.add(block_id, [3], [2], ["no date"], [b"xx"])
    inputs = {
        f"taker{number}.input": PlannedTuples(kind_name(type(each)), encode_tuples(type(each), [each]), [1])
        for number, each in enumerate(tuples)
    }
    refused = [RefusedPart("behind", log.to_bytes())]
    return Window(WindowPlan(1, inputs=inputs), WindowIntent(1, refused=refused))


def test_refused_records_are_found_beside_tuples_that_have_no_id() -> None:
    """Such as files, which another operator of the app takes in."""
    (found,) = rejects_of(window(FILE, BLOCK))
    assert (found.operator, found.port, found.blocks) == ("behind", "taker1.input", {7: BLOCK})


def test_a_block_that_no_tuple_is_is_reported() -> None:
    """Its class cannot be imported here."""
    with pytest.raises(JournalError, match="refused records of operator 'behind' in blocks of a class that cannot"):
        list(rejects_of(window(FILE, BLOCK, block_id=8)))
