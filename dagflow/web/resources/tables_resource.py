"""Tables: their version by window, the sizes of the files that were added, and how their columns changed."""

from __future__ import annotations

import base64
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from dagflow.api.properties import parse_size
from dagflow.journal import JournalState, Window, newest_windows
from dagflow.web.checkpoints import Checkpoint
from dagflow.web.resources.windows_resource import schemas_of

VERSIONS = 50
LOOK_S = 2.0
"""The journal is read from its newest window back for so long; the answer says how far."""


@dataclass(slots=True)
class _Table:
    """What was added to one table by the windows that were looked at, the newest first."""

    files: int = 0
    size_bytes: int = 0
    records: int = 0
    sizes: Counter[int] = field(default_factory=Counter)
    versions: list[dict[str, Any]] = field(default_factory=list)
    schemas: list[tuple[int, str]] = field(default_factory=list)


def tables(checkpoint: Checkpoint) -> dict[str, Any]:
    """What the windows of a checkpoint have added to each of its tables."""
    store, state = checkpoint.journal()
    found = {name: _Table() for name in sorted({*state.receipts, *state.held.waiting})}
    deadline, since = time.monotonic() + LOOK_S, state.last_planned + 1
    for window in newest_windows(store, state) if found else ():
        if time.monotonic() > deadline:
            break
        since = window.plan.window_id
        if window.published_ms:
            _add(window, found)
    return {
        "watermark": state.held.published_through(state.last_done),
        "since_window": since,
        "tables": [_shown(name, table, state) for name, table in found.items()],
    }


def _add(window: Window, found: dict[str, _Table]) -> None:
    if window.intent is None:
        return
    for name, schema in schemas_of(window.intent).items():
        table = found.get(name)
        if table is None:
            continue
        if table.schemas and table.schemas[-1][1] == schema:
            table.schemas.pop()
        table.schemas.append((window.plan.window_id, schema))
    for name, version in window.receipts.items():
        own = [each for each in window.intent.files if each.facts is not None and each.facts.operator == name]
        table = found.setdefault(name, _Table())
        size_bytes, records = sum(each.size_bytes for each in own), sum(each.records for each in own)
        table.files += len(own)
        table.size_bytes += size_bytes
        table.records += records
        table.sizes.update(max(each.size_bytes - 1, 0).bit_length() for each in own)
        if len(table.versions) < VERSIONS:
            facts = {"files": len(own), "size_bytes": size_bytes, "records": records}
            place = {"window": window.plan.window_id, "version": version, "published_ms": window.published_ms}
            table.versions.append({**place, **facts})


def _shown(name: str, table: _Table, state: JournalState) -> dict[str, Any]:
    properties = (
        {} if state.facts is None or name not in state.facts.operators else state.facts.operators[name].properties
    )
    receipt = state.receipts.get(name)
    waiting = {each.window_id for each in state.held.waiting.get(name, ())}
    bits = range(min(table.sizes), max(table.sizes) + 1) if table.sizes else ()
    return {
        "operator": name,
        "table": str(properties.get("table", "")),
        "version": "" if receipt is None else receipt.version,
        "window": 0 if receipt is None else receipt.window_id,
        "waiting_windows": len(waiting),
        "files": table.files,
        "size_bytes": table.size_bytes,
        "records": table.records,
        "target_bytes": _size(properties.get("target_file_bytes")),
        "sizes": [{"upto": 1 << each, "count": table.sizes[each]} for each in bits],
        "versions": table.versions[::-1],
        "schemas": [{"window": each, "columns": columns_of(text)} for each, text in reversed(table.schemas)],
    }


def _size(value: Any) -> int | None:
    try:
        return None if value is None else parse_size(value)
    except ValueError:
        return None


def columns_of(schema: str) -> list[dict[str, str]]:
    """The columns of a schema that the journal holds as Arrow IPC; none where a target describes them otherwise."""
    try:
        found = pa.ipc.read_schema(pa.BufferReader(base64.b64decode(schema, validate=True)))
    except (ValueError, pa.ArrowException, OSError):
        return []
    return [{"name": column.name, "type": str(column.type)} for column in found]
