"""Names that say that a value is a secret: of options, properties, headers and variables.

All code that hides secrets uses this module, so that they are hidden in every place alike.
"""

from __future__ import annotations

import re
from typing import Final

HIDDEN: Final = "***"
"""What is shown in the place of a secret."""

SHORTEST_SECRET: Final = 4
"""A shorter value is no credential, and would be found in every text."""

_WORDS = (
    r"secret|token|passw|passphrase|passcode|credential|cookie|webhook|connection_?string"
    r"|auth(?!or)|authori[sz]"
    r"|(?:access|account|api|app|client|consumer|encryption|hmac|host|license|master|private|service|shared|signing"
    r"|ssh|ssl|storage|subscription|tls)[ ._-]?key"
)
_MENTION = re.compile(_WORDS)
# These are parts of many harmless words, such as passes and disaster.
_NAME = re.compile(rf"{_WORDS}|(?<![a-z])(?:creds?|pass|pin|pw|pwd|sas|sig)(?![a-z])")
# Elsewhere a key is a column more often than a credential.
_OPTION = re.compile(rf"{_NAME.pattern}|key|sas|auth")
_NEW_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_ASSIGNED = re.compile(r"""(?<![\w.-])([\w.-]+)["']?\s*[:=]""")
_FLAG = re.compile(r"(?<!\S)--?(\w[\w.-]*)\s")


def is_secret_name(name: str) -> bool:
    """Whether the name of a setting says that its value is a secret."""
    return _NAME.search(_in_words(name)) is not None


def is_secret_option(name: str) -> bool:
    """Whether the name of an option of a store, or of a header, says that its value is a secret."""
    return _OPTION.search(_in_words(name)) is not None


def is_secret(name: str, value: str) -> bool:
    """Whether a setting's value is a secret by the setting's name; truth values and nothing are none."""
    return is_secret_name(name) and value.lower() not in ("", "true", "false", "null")


def is_secret_flag(word: str) -> bool:
    """Whether a word of a command line says that the next one is a secret, as `--password` does."""
    return word.startswith("-") and "=" not in word and is_secret_name(word)


def assigns_secret(text: str) -> bool:
    """Whether a text gives a secret a value, as `host=db password=…` and `notify --token …` do."""
    return any(map(is_secret_name, (*_ASSIGNED.findall(text), *_FLAG.findall(text))))


def mentions_secret(text: str) -> bool:
    """Whether prose speaks of a secret, or gives an option of a store a value."""
    return _MENTION.search(_in_words(text)) is not None or any(map(is_secret_option, _ASSIGNED.findall(text)))


def _in_words(name: str) -> str:
    return _NEW_WORD.sub("_", name).lower()
