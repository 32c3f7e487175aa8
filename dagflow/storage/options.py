"""Options of stores by protocol, including credentials.

Options are not part of a URL, because URLs are journaled, logged and shown, and credentials never are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from dagflow.secret_names import HIDDEN, SHORTEST_SECRET

StorageOptions = Mapping[str, Mapping[str, Any]]
"""The arguments of fsspec's file systems, by protocol: `s3`, `gs`, `hdfs`, …"""

FAMILIES: Final = (("s3", "s3a"), ("gs", "gcs"), ("abfs", "abfss", "az", "adl"), ("http", "https"), ("sftp", "ssh"))
"""Names of one store: options for one of them hold for all."""

_BACKEND = "backend"

# Options that only say where a store is and how to reach it. Text in any other may be a secret.
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


def options_of(options: StorageOptions, protocol: str) -> dict[str, Any]:
    """The arguments of a protocol's client, also if they were given for another name of the same store."""
    return {name: value for name, value in _given(options, protocol).items() if name != _BACKEND}


def backend_option(options: StorageOptions, protocol: str) -> str:
    """The dotted path of the author's backend for a protocol; "" for none."""
    return str(_given(options, protocol).get(_BACKEND, ""))


def name_one_store(options: StorageOptions, protocol: str, other: str) -> bool:
    """Whether two protocols reach one store: they are names of one, and have the same options."""
    are_related = protocol == other or any(protocol in names and other in names for names in FAMILIES)
    return are_related and _given(options, protocol) == _given(options, other)


def is_plain_option(name: str) -> bool:
    """Whether an option only says where a store is and how to reach it."""
    return name in _PLAIN


def is_secret_text(value: str, *, is_plain: bool) -> bool:
    """Whether the text of an option may be a secret; in a plain option, a URL with a login is one."""
    return not is_plain or "@" in value


def secrets_of(options: StorageOptions) -> set[str]:
    """The values among options that must not be shown."""
    return {value for of_one in options.values() for value in _secrets(of_one) if len(value) >= SHORTEST_SECRET}


def without_credentials(text: str, options: StorageOptions) -> str:
    """The text of a client's error, without credentials from the client's options."""
    for secret in sorted(secrets_of(options), key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return text


def _given(options: StorageOptions, protocol: str) -> Mapping[str, Any]:
    family = next((names for names in FAMILIES if protocol in names), (protocol,))
    return next((options[name] for name in (protocol, *family) if name in options), {})


def _secrets(options: Mapping[str, Any]) -> Iterator[str]:
    for name, value in options.items():
        yield from _secrets_in(name, value)


def _secrets_in(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        yield from _secrets(value)
    elif isinstance(value, list):
        for item in value:
            yield from _secrets_in(name, item)
    elif isinstance(value, str) and is_secret_text(value, is_plain=is_plain_option(name)):
        yield value
