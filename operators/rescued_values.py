"""The text of the column `_rescued`."""

from __future__ import annotations

import base64
import json
from typing import Any

RESCUED = "_rescued"
"""The column for values that have no place in others: JSON of name and value, with file and offset."""

FILE, OFFSET = "_file", "_offset"
"""Where the record of rescued values is from, beside them."""


def rescued_text(values: dict[str, Any]) -> str:
    """Values by name as JSON; what JSON has no form for is text, and bytes are base64."""
    return json.dumps(values, ensure_ascii=False, default=_as_text)


def rescued_count(text: str) -> int:
    """How many values a text of rescued_text() holds."""
    return len(json.loads(text).keys() - {FILE, OFFSET})


def _as_text(value: Any) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
