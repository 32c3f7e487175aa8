"""What a format makes of a whole file that is cut into blocks, as columns."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from operators.reader.formats.base import ByteAccounting, RecordFormat, with_entry_state
from operators.testing import URL, MemorySource, block_of


def columns_of(made: RecordFormat, content: bytes, block_size: int = 1 << 20) -> tuple[list[Any], list[dict[str, Any]]]:
    """The rows of a file that is cut at multiples of block_size, and its rejects."""
    rows: list[Any] = []
    refused: list[bytes] = []
    accounting = ByteAccounting(URL, Counter(), refused.append)
    for start in range(0, len(content), block_size):
        block = block_of(content, start, min(start + block_size, len(content)))
        block = with_entry_state(made, MemorySource(content), block)
        for batch in made.read(MemorySource(content), block, accounting):
            parsed = accounting.parse(made, batch)
            rows += [] if parsed.columns is None else parsed.columns.to_pylist()
    return rows, [json.loads(reject) for reject in refused]
