"""The log of the newest run: its last lines, read from the end of the file backwards."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from dagflow.web.checkpoints import Checkpoint
from dagflow.web.query import Query

ROWS = 300
LOGS = Path(".dagflow") / "logs"
_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_CHUNK_BYTES = 1 << 16
_MOST_BYTES = 16 << 20


def log(checkpoint: Checkpoint, query: Query) -> dict[str, Any]:
    """Lines of the log, oldest first: the last ones that end at or before the byte `before`."""
    state = checkpoint.journal()[1]
    path = _newest(Path(state.directory or "."), state.app)
    if path is None:
        return {"file": None, "lines": [], "next": None}
    search, wanted = query.text("search").casefold(), query.text("level").upper()
    lowest = _LEVELS.index(wanted) if wanted in _LEVELS else 0
    rows: list[dict[str, Any]] = []
    limit, following = query.limit(ROWS), None
    for start, text in _lines_backwards(path, query.number("before")):
        row = _row(text)
        if _LEVELS.index(row["level"]) < lowest or search not in row["text"].casefold():
            continue
        if len(rows) == limit:
            following = start + len(text) + 1
            break
        rows.append(row)
    return {"file": str(path), "lines": rows[::-1], "next": following}


def _newest(directory: Path, app: str) -> Path | None:
    """The log of the newest run of an app, by the time in its name."""
    pattern = re.compile(rf"{re.escape(app)}-\d{{8}}T\d{{6}}-\d+\.log")
    try:
        names = [name for name in os.listdir(directory / LOGS) if pattern.fullmatch(name)]
    except OSError:
        return None
    return directory / LOGS / max(names) if names else None


def _lines_backwards(path: Path, before: int) -> Iterator[tuple[int, bytes]]:
    """The lines of a file, the last one first, each with its first byte; at most the last 16 MiB."""
    try:
        file = path.open("rb")
    except OSError:
        return
    with file:
        end = min(before or os.fstat(file.fileno()).st_size, os.fstat(file.fileno()).st_size)
        least, rest = max(end - _MOST_BYTES, 0), b""
        while end > least:
            start = max(end - _CHUNK_BYTES, least)
            file.seek(start)
            *lines, last = (file.read(end - start) + rest).split(b"\n")[::-1] or [b""]
            position = start + len(last) + sum(len(line) + 1 for line in lines)
            for line in lines:
                position -= len(line)
                if line:
                    yield position, line
                position -= 1
            rest, end = last, start
        if rest:
            yield end, rest


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
