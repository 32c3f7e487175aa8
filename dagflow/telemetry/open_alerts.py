"""Keeps in the checkpoint which alerts were sent, so that the next run does not send them again."""

from __future__ import annotations

from dataclasses import dataclass, field

from dagflow.errors import AlreadyExistsError, JournalError, MissingError
from dagflow.journal.frames import decode, encode
from dagflow.journal.typed_json import from_json, to_json
from dagflow.report.alert_rules import Cause
from dagflow.storage.location import redacted
from dagflow.storage.objects import ObjectStore

_NAME = "alerts/open"


@dataclass(frozen=True, slots=True)
class OpenAlerts:
    """The alerts that were sent and are not over.

    Attributes:
        since_ms: When each was sent, in milliseconds since 1970, by cause.
    """

    since_ms: dict[Cause, int] = field(default_factory=dict)


def read_open(store: ObjectStore) -> OpenAlerts:
    """The open alerts of a checkpoint; none where they cannot be read, so that they are sent once more.

    Raises:
        StorageError: The store failed.
    """
    url = redacted(f"{store.url}/{_NAME}")
    try:
        return from_json(OpenAlerts, decode(store.read(_NAME), url), url)
    except (MissingError, JournalError):
        return OpenAlerts()


def write_open(store: ObjectStore, alerts: OpenAlerts) -> None:
    """Write the open alerts of a checkpoint.

    Raises:
        StorageError: The store failed.
    """
    said = encode(to_json(alerts))
    try:
        store.create(_NAME, said)
    except AlreadyExistsError:
        store.replace(_NAME, said)
