"""Reads what a checkpoint has added to its tables, by window, and the newest window that all tables show."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from dagflow.frozen import frozen
from dagflow.journal.reader import committed_windows, read_journal
from dagflow.storage.context import StorageContext

SHOWN_VERSIONS = 10
"""Number of newest windows whose versions are listed."""


@dataclass(slots=True)
class TableStatus:
    """The files that one operator has added to its table.

    Attributes:
        version: The table's version with the newest window, or with a replay after it; "" before the first.
        window_id: Id of that window, 0 for none.
        files: How many data files were added; other programs may have compacted or removed some since.
        waiting_windows: Windows whose rows wait for a later one.
        versions: The newest windows, each with the version of the table that shows it.
    """

    version: str = ""
    window_id: int = 0
    files: int = 0
    size_bytes: int = 0
    least_bytes: int = 0
    greatest_bytes: int = 0
    records: int = 0
    waiting_windows: int = 0
    versions: list[tuple[int, str]] = field(default_factory=list)

    def add_file(self, size_bytes: int, records: int) -> None:
        self.least_bytes = min(self.least_bytes, size_bytes) if self.files else size_bytes
        self.greatest_bytes = max(self.greatest_bytes, size_bytes)
        self.files += 1
        self.size_bytes += size_bytes
        self.records += records


@frozen
class TablesStatus:
    """The files that a checkpoint has added to all of its tables.

    Attributes:
        watermark: The newest window that all tables show, with all before it; 0 for none.
    """

    watermark: int
    tables: dict[str, TableStatus]

    def to_json(self) -> dict[str, Any]:
        return {"watermark": self.watermark, "tables": {name: asdict(each) for name, each in self.tables.items()}}


def tables_status(checkpoint: str, storage: StorageContext) -> TablesStatus:
    """The files that windows have added to tables, as far as the journal keeps them."""
    store, state = read_journal(storage, checkpoint)
    tables = {name: TableStatus(receipt.version, receipt.window_id) for name, receipt in sorted(state.receipts.items())}
    for name, held in state.held.waiting.items():
        waiting = tables.setdefault(name, TableStatus())
        waiting.waiting_windows = len({each.window_id for each in held})
    for window in committed_windows(store):
        # A window that is committed and not published is in no table, or not known to be.
        if window.intent is None or window.plan.window_id > state.last_done:
            continue
        for name, version in window.receipts.items():
            own = tables.setdefault(name, TableStatus())
            own.versions = [*own.versions, (window.plan.window_id, version)][-SHOWN_VERSIONS:]
        for file in window.intent.files:
            if file.facts is not None and file.facts.operator in tables:
                tables[file.facts.operator].add_file(file.size_bytes, file.records)
    return TablesStatus(state.held.published_through(state.last_done), tables)
