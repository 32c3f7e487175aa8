"""The checkpoints that a server shows, and how its pages name them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from dagflow.journal import JournalState, read_journal
from dagflow.report.reading import Reading, read_checkpoint
from dagflow.storage.context import StorageContext
from dagflow.storage.location import absolute, redacted
from dagflow.storage.objects import ObjectStore

_ODD = re.compile(r"[^a-z0-9]+")
_ENDINGS = re.compile(r"\.journal$")


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint that is shown.

    Attributes:
        id: Names it in addresses: lower-case letters, digits and hyphens.
        url: Where it is.
        storage: Reaches it.
        app: The app file that was named on the command line, or "".
        live: Gives the figures of a run in this process; None for any other run.
    """

    id: str
    url: str
    storage: StorageContext
    app: str = ""
    live: Callable[[], Reading] | None = None

    def read(self) -> Reading:
        """What is known of it now; it does not raise."""
        return read_checkpoint(self.url, self.storage) if self.live is None else self.live()

    def journal(self) -> tuple[ObjectStore, JournalState]:
        """The store, with named roots where the newest run had them, and what the journal amounts to.

        Raises:
            MissingError: There is no journal.
            JournalError: It cannot be read.
            StorageError: The store failed.
        """
        return read_journal(self.storage, self.url)

    @property
    def shown_url(self) -> str:
        """The location without credentials."""
        return redacted(self.url)


@dataclass(frozen=True)
class CheckpointLocation:
    """A checkpoint as the command line names it.

    Attributes:
        url: Where it is.
        storage: Reaches it.
        app: Its app file, or "".
        live: As in Checkpoint.
    """

    url: str
    storage: StorageContext
    app: str = ""
    live: Callable[[], Reading] | None = None


def named(places: Iterable[CheckpointLocation]) -> Mapping[str, Checkpoint]:
    """Checkpoints by the ids that addresses name them by: the last part of their location, with a number if need be."""
    found: dict[str, Checkpoint] = {}
    urls: set[str] = set()
    for place in places:
        url = absolute(place.url)
        if url in urls:
            continue
        urls.add(url)
        stem = _ENDINGS.sub("", redacted(url).rstrip("/").rpartition("/")[2]).lower()
        base = _ODD.sub("-", stem).strip("-") or "checkpoint"
        number, name = 2, base
        while name in found:
            number, name = number + 1, f"{base}-{number}"
        found[name] = Checkpoint(name, url, place.storage, place.app, place.live)
    return found
