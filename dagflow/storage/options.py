"""How this process reaches stores: the options of each protocol, credentials among them.

Options are no part of a URL, because URLs are journaled, logged and shown, and credentials never are.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

StorageOptions = Mapping[str, Mapping[str, Any]]
"""What fsspec's file system of a protocol is constructed with, by protocol: `s3`, `gs`, `hdfs`, …"""

# One store by several names: what is said for one of them holds for all.
_FAMILIES = (("s3", "s3a"), ("gs", "gcs"), ("abfs", "abfss", "az", "adl"), ("http", "https"), ("sftp", "ssh"))
# Options that only say where a store is and how to speak to it. Text in any other may be a secret.
_PLAIN = frozenset(
    [
        "account_host",
        "account_name",
        "addressing_style",
        "anon",
        "consistency",
        "encoding",
        "endpoint_url",
        "host",
        "location",
        "mode",
        "profile",
        "project",
        "protocol",
        "region",
        "region_name",
        "signature_version",
        "user",
        "username",
        "verify",
    ]
)
_TELLING = re.compile(r"key|secret|token|passw|credential|sas|auth", re.IGNORECASE)
_SHORTEST_SECRET = 4
"""A shorter value is no credential, and would be found in every text."""

HIDDEN = "***"

_options: StorageOptions = {}


def use_options(options: StorageOptions) -> None:
    """Let this process reach stores with these options from now on; tasks call it before they touch a store."""
    global _options
    _options = options


@contextlib.contextmanager
def options_in_use(options: StorageOptions) -> Iterator[None]:
    """Let this process reach stores with these options for a while."""
    before = _options
    use_options(options)
    try:
        yield
    finally:
        use_options(before)


def options_of(protocol: str) -> dict[str, Any]:
    """The options for a protocol; none for what nobody has said anything about."""
    family = next((names for names in _FAMILIES if protocol in names), (protocol,))
    return dict(next((_options[name] for name in (protocol, *family) if name in _options), {}))


def known_protocols() -> list[str]:
    """The protocols that options can be given for."""
    import fsspec  # only apps that have options pay for its import

    return sorted({*fsspec.available_protocols(), *(name for family in _FAMILIES for name in family)})


def is_telling(option: str) -> bool:
    """Whether an option's name says that its value is a credential."""
    return _TELLING.search(option) is not None


def secrets_of(options: StorageOptions) -> set[str]:
    """The values among options that nobody may see."""
    return {value for of_one in options.values() for value in _secrets(of_one) if len(value) >= _SHORTEST_SECRET}


def without_secrets(text: str) -> str:
    """The text of a client's error, which may quote what the client was given."""
    for secret in sorted(secrets_of(_options), key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return text


def _secrets(options: Mapping[str, Any]) -> Iterator[str]:
    for name, value in options.items():
        if isinstance(value, Mapping):
            yield from _secrets(value)
        elif isinstance(value, str) and (name not in _PLAIN or "@" in value):
            yield value
