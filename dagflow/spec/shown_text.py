"""The text of an app file as it may be shown and kept: without secrets."""

from __future__ import annotations

import re
from pathlib import Path

MOST_TEXT_BYTES = 64 << 10
"""A longer app file is not kept in the journal, whose snapshots would all hold it."""

_SECRET = re.compile(
    r"""(?im)^(?P<key>[^#\n]*?\b[\w.-]*(?:secret|password|passwd|token|credential|api_?key|access_?key|account_?key)[\w.-]*
    ["']?\s*[:=]\s*)(?P<value>[^\s#{\[,}][^,#}\n]*)""",
    re.VERBOSE,
)
_URL_LOGIN = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*://)[^/\s\"'@]+@")


def without_secrets(text: str) -> str:
    """YAML without the values of keys that name a secret, and without logins in URLs; references to variables stay."""

    def covered(match: re.Match[str]) -> str:
        value = match["value"].rstrip()
        return match[0] if value.strip("\"'").startswith("${") else f"{match['key']}***"

    return _URL_LOGIN.sub(r"\g<scheme>***@", _SECRET.sub(covered, text))


def text_to_keep(file: str) -> str:
    """The text of an app file for the journal; "" where there is none, or more than is kept."""
    try:
        content = Path(file).read_bytes() if file else b""
    except OSError:
        return ""
    return without_secrets(content.decode(errors="replace")) if len(content) <= MOST_TEXT_BYTES else ""
