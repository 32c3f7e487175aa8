"""Options of stores by protocol, credentials among them.

Options are no part of a URL, because URLs are journaled, logged and shown, and credentials never are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

StorageOptions = Mapping[str, Mapping[str, Any]]
"""What fsspec's file system of a protocol is constructed with, by protocol: `s3`, `gs`, `hdfs`, …"""

FAMILIES: Final = (("s3", "s3a"), ("gs", "gcs"), ("abfs", "abfss", "az", "adl"), ("http", "https"), ("sftp", "ssh"))
"""Names of one store: options for one of them hold for all."""

_BACKEND = "backend"

# Options that only say where a store is and how to speak to it. Text in any other may be a secret.
_PLAIN = frozenset(
    [
        "account_host",
        "account_name",
        "addressing_style",
        "anon",
        _BACKEND,
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


def options_of(options: StorageOptions, protocol: str) -> dict[str, Any]:
    """What the client of a protocol is constructed with, also where it was given for another name of the same store."""
    return {name: value for name, value in _given(options, protocol).items() if name != _BACKEND}


def backend_option(options: StorageOptions, protocol: str) -> str:
    """The dotted path of the author's backend for a protocol; "" for none."""
    return str(_given(options, protocol).get(_BACKEND, ""))


def is_telling(option: str) -> bool:
    """Whether an option's name says that its value is a credential."""
    return _TELLING.search(option) is not None


def secrets_of(options: StorageOptions) -> set[str]:
    """The values among options that must not be shown."""
    return {value for of_one in options.values() for value in _secrets(of_one) if len(value) >= _SHORTEST_SECRET}


def without_secrets(text: str, options: StorageOptions) -> str:
    """The text of a client's error, which may quote what the client was given, without credentials."""
    for secret in sorted(secrets_of(options), key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return text


def _given(options: StorageOptions, protocol: str) -> Mapping[str, Any]:
    family = next((names for names in FAMILIES if protocol in names), (protocol,))
    return next((options[name] for name in (protocol, *family) if name in options), {})


def _secrets(options: Mapping[str, Any]) -> Iterator[str]:
    for name, value in options.items():
        if isinstance(value, Mapping):
            yield from _secrets(value)
        elif isinstance(value, str) and (name not in _PLAIN or "@" in value):
            yield value
