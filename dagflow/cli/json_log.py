"""Messages of a run as JSON: one object a line, for programs that gather logs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

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
