"""The log of the newest run: its last lines."""

from __future__ import annotations

import json
import re
from datetime import datetime
from pathlib import Path
from typing import Any

from dagflow.web.checkpoints import Checkpoint, Query

ROWS = 300
LOGS = Path(".dagflow") / "logs"
_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_MOST_BYTES = 16 << 20


def log(checkpoint: Checkpoint, query: Query) -> dict[str, Any]:
    """Lines of the log, oldest first: the last ones that end at or before the byte `before`."""
    state = checkpoint.journal()[1]
    # The time in a name says which run is the newest.
    pattern = re.compile(rf"{re.escape(state.app)}-\d{{8}}T\d{{6}}-\d+\.log")
    try:
        logs = Path(state.directory or ".", LOGS)
        path = max(each for each in logs.iterdir() if pattern.fullmatch(each.name))
        with path.open("rb") as file:
            end = min(query.number("before") or path.stat().st_size, path.stat().st_size)
            position = max(end - _MOST_BYTES, 0)
            file.seek(position)
            lines = file.read(end - position).split(b"\n")
    except (OSError, ValueError):
        return {"file": None, "lines": [], "next": None}
    search, wanted = query.text("search").casefold(), query.text("level").upper()
    lowest = _LEVELS.index(wanted) if wanted in _LEVELS else 0
    rows: list[dict[str, Any]] = []
    limit = query.limit(ROWS)
    for line in reversed(lines):
        row = _row(line)
        if line and _LEVELS.index(row["level"]) >= lowest and search in row["text"].casefold():
            if len(rows) == limit:
                return {"file": str(path), "lines": rows[::-1], "next": end + 1}
            rows.append(row)
        end -= len(line) + 1
    return {"file": str(path), "lines": rows[::-1], "next": None}


def _row(text: bytes) -> dict[str, Any]:
    try:
        value = json.loads(text)
        time_ms = int(datetime.fromisoformat(value["time"]).timestamp() * 1000)
        level = str(value["level"]).upper()
    except (ValueError, KeyError, TypeError):
        return {"time_ms": None, "level": "INFO", "text": text.decode(errors="replace")}
    return {
        "time_ms": time_ms,
        "level": level if level in _LEVELS else "INFO",
        "text": str(value.get("message", "")),
        **{name: value.get(name) for name in ("logger", "window", "operator", "file")},
    }
