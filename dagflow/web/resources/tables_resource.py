"""Tables: their version by window, the sizes of the files that were added, and how their columns changed."""

from __future__ import annotations

import base64
import contextlib
import time
from collections import Counter
from dataclasses import field
from typing import Any

import pyarrow as pa

from dagflow.api.properties import parse_size
from dagflow.frozen import mutable
from dagflow.journal.reader import newest_windows
from dagflow.journal.state import JournalState
from dagflow.journal.windows import Window
from dagflow.storage.location import redacted
from dagflow.web.checkpoints import SOON_S, AppFile, Checkpoint, reading_deadline
from dagflow.web.resources.windows_resource import change_text, schemas_of

VERSIONS = 50
_TARGET = "target_file_bytes"


@mutable
class _Table:
    """The files that the windows that were looked at have added to one table, the newest first."""

    files: int = 0
    size_bytes: int = 0
    records: int = 0
    sizes: Counter[int] = field(default_factory=Counter)
    versions: list[dict[str, Any]] = field(default_factory=list)
    schema: str = ""


def tables(checkpoint: Checkpoint, app: AppFile) -> dict[str, Any]:
    """The files that the windows of a checkpoint have added to each of its tables."""
    store, state = checkpoint.journal()
    # A dataset of plain files has no versions, but its columns are decided as those of tables are.
    names = {*state.receipts, *state.held.waiting, *(each.operator for each in state.columns)}
    found = {name: _Table() for name in sorted(names)}
    deadline, since = reading_deadline(), state.last_planned + 1
    for index, window in enumerate(newest_windows(store, state) if found else ()):
        if index and time.monotonic() > deadline:
            break
        since = window.plan.window_id
        if window.published_ms:
            _add(window, found)
    return {
        "watermark": state.held.published_through(state.last_done),
        "since_window": since,
        "tables": [_shown(name, table, state, app) for name, table in found.items()],
    }


def _add(window: Window, found: dict[str, _Table]) -> None:
    if window.intent is None:
        return
    schemas = schemas_of(window.intent)
    for name, table in found.items():
        table.schema = table.schema or schemas.get(name, "")
        own = [each for each in window.intent.files if each.facts is not None and each.facts.operator == name]
        if name not in window.receipts and not own:
            continue
        size_bytes, records = sum(each.size_bytes for each in own), sum(each.records for each in own)
        table.files += len(own)
        table.size_bytes += size_bytes
        table.records += records
        table.sizes.update(max(each.size_bytes - 1, 0).bit_length() for each in own)
        if len(table.versions) < VERSIONS:
            facts = {"files": len(own), "size_bytes": size_bytes, "records": records}
            version = {"version": window.receipts.get(name, ""), "published_ms": window.published_ms}
            table.versions.append({"window": window.plan.window_id, **version, **facts})


def _shown(name: str, table: _Table, state: JournalState, app: AppFile) -> dict[str, Any]:
    facts = None if state.facts is None else state.facts.operators.get(name)
    properties = {} if facts is None else facts.properties
    # The size of file that the table aims at: in the newest run, or else the default.
    by_default = app.look(SOON_S).get("operators", {}).get(name, {}).get("properties", {}).get(_TARGET, {}).get("value")
    target = properties.get(_TARGET, by_default)
    target_bytes = None
    with contextlib.suppress(ValueError):
        target_bytes = None if target is None else parse_size(target)
    receipt, waiting = state.receipts.get(name), state.held.waiting.get(name, [])
    every_millis = properties.get("commit", {}).get("every_millis")
    newest = max((each["window"] for each in table.versions), default=0)
    bits = range(min(table.sizes), max(table.sizes) + 1) if table.sizes else ()
    return {
        "operator": name,
        "table": str(properties.get("table", "")),
        "version": "" if receipt is None else receipt.version,
        "window": newest if receipt is None else receipt.window_id,
        "waiting_windows": len({each.window_id for each in waiting}),
        "due_ms": waiting[0].held_ms + every_millis if waiting and every_millis else None,
        "files": table.files,
        "size_bytes": table.size_bytes,
        "records": table.records,
        "target_bytes": target_bytes,
        "sizes": [{"upto": 1 << each, "count": table.sizes[each]} for each in bits],
        "versions": table.versions[::-1],
        "columns": columns_of(table.schema),
        "changes": [
            {"window": each.window_id, "committed_ms": each.committed_ms, "text": change_text(each.change)}
            | {"cause": redacted(each.change.cause)}
            for each in state.columns
            if each.operator == name
        ],
    }


def columns_of(schema: str) -> list[dict[str, str]]:
    """The columns of a schema that the journal holds as Arrow IPC; none where a target uses another description."""
    try:
        found = pa.ipc.read_schema(pa.BufferReader(base64.b64decode(schema, validate=True)))
    except (ValueError, pa.ArrowException, OSError):
        return []
    return [{"name": column.name, "type": str(column.type)} for column in found]
