"""The log file of a run: everything that it logs from INFO on, as JSON lines, in a file of bounded size."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any, Final

from dagflow.errors import trace_of

DIRECTORY: Final = Path(".dagflow") / "logs"
MOST_BYTES: Final = 8 << 20
"""A log that grows beyond this continues in a new file; the last one is kept as `.1`, older ones are removed."""

KEPT_RUNS: Final = 20
"""Number of logs of an app that are kept, this one included."""

OWN_LOGGERS = ("dagflow", "operators")


class RunLog:
    def __init__(self, app: str, redact: Callable[[str], str], path: Path) -> None:
        self.path = path
        self._redact = redact
        self.handler = _PrivateFileHandler(path, maxBytes=MOST_BYTES, backupCount=1, encoding="utf-8", delay=False)
        self.handler.setFormatter(_JsonFormatter(app, redact))
        self.handler.handleError = lambda record: None  # type: ignore[method-assign]  # a full disk ends no run

    def say(self, level: int, text: str, error: BaseException | None = None) -> None:
        """Write a message that comes from no logger."""
        record = logging.LogRecord("dagflow", level, "", 0, text, None, None)
        record.fields = {}
        if error is not None:
            trace = self._redact(getattr(error, "trace", "") or trace_of(error))
            record.fields = {**error_fields(error, self._redact), "trace": trace}
        self.handler.handle(record)

    def end(self, text: str, error: BaseException | None = None) -> None:
        self.say(logging.INFO if error is None else logging.ERROR, text, error)
        with suppress(OSError, ValueError):  # on a full disk, or after rolling over failed
            self.handler.close()


@contextmanager
def attached(log: RunLog | None) -> Iterator[None]:
    if log is None:
        yield
        return
    levels = {name: logging.getLogger(name).level or logging.INFO for name in OWN_LOGGERS}
    logging.getLogger().addHandler(log.handler)
    try:
        with levels_set({name: min(level, logging.INFO) for name, level in levels.items()}):
            yield
    finally:
        logging.getLogger().removeHandler(log.handler)


@contextmanager
def levels_set(level_by_logger: Mapping[str, int]) -> Iterator[None]:
    """Give loggers another level for as long as the block lasts."""
    before = {name: logging.getLogger(name).level for name in level_by_logger}
    try:
        for name, level in level_by_logger.items():
            logging.getLogger(name).setLevel(level)
        yield
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)


class _PrivateFileHandler(RotatingFileHandler):
    """Writes files that only their owner may read: operators may print records."""

    def _open(self) -> TextIOWrapper:
        def private(path: str, flags: int) -> int:
            return os.open(path, flags, 0o600)

        return open(self.baseFilename, "a", encoding=self.encoding, errors=self.errors, opener=private)


class _JsonFormatter(logging.Formatter):
    def __init__(self, app: str, redact: Callable[[str], str]) -> None:
        super().__init__()
        self._app = app
        self._redact = redact

    def format(self, record: logging.LogRecord) -> str:
        text = record.getMessage()
        if record.exc_info:
            text += f"\n{self.formatException(record.exc_info)}"
        fields = {"logger": record.name, **getattr(record, "fields", {})}
        return json_line(self._app, record.levelname.lower(), self._redact(text), **fields)


def open_run_log(app: str, redact: Callable[[str], str]) -> RunLog | None:
    """Begin the log of a run, and remove the oldest ones; None where it cannot be written."""
    started = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
    with suppress(OSError):
        DIRECTORY.mkdir(mode=0o700, parents=True, exist_ok=True)
        of_app = re.compile(rf"{re.escape(app)}-\d{{8}}T\d{{6}}-\d+\.log")
        logs = sorted(name for name in os.listdir(DIRECTORY) if of_app.fullmatch(name))
        for name in logs[: max(len(logs) - KEPT_RUNS + 1, 0)]:
            for file in (DIRECTORY / name, DIRECTORY / f"{name}.1"):
                with suppress(OSError):
                    file.unlink()
        return RunLog(app, redact, DIRECTORY / f"{app}-{started}-{os.getpid()}.log")
    return None


_WINDOW: Final = re.compile(r"\bwindow[ =](\d+)")
_OPERATOR: Final = re.compile(r"\boperator '([^']+)'")
_FILE: Final = re.compile(r"\b(?:url|path)=(\S+)")


def json_line(app: str, level: str, text: str, **fields: Any) -> str:
    """Format one log message as a line of JSON.

    Args:
        text: The message; its window, operator and file become fields of their own where it names them.
    """
    window, operator, file = (pattern.search(text) for pattern in (_WINDOW, _OPERATOR, _FILE))
    known = {
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "level": level,
        "app": app,
        "window": int(window[1]) if window else None,
        "operator": operator[1] if operator else None,
        "file": file[1] if file else None,
    }
    given = {name: value for name, value in {**known, **fields}.items() if value not in (None, "")}
    # Characters outside of ASCII are escaped, so that any terminal or pipe takes the line, and so are ends of lines.
    return json.dumps({**given, "message": text})


def error_fields(error: BaseException, redact: Callable[[str], str]) -> dict[str, str]:
    """The operator and the file of an error, where it knows them."""
    found = {"operator": getattr(error, "operator", None), "file": getattr(error, "url", None)}
    return {name: redact(text) for name, text in found.items() if isinstance(text, str)}
