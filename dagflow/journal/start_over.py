"""Starting over: the old journal is kept under another name, and the files that it published are removed."""

from __future__ import annotations

from collections.abc import Iterator

from dagflow.errors import AlreadyExistsError
from dagflow.journal.events import Cleared, SetAside
from dagflow.journal.frames import decode, encode
from dagflow.journal.journal import Journal
from dagflow.journal.log import LOG, SNAPSHOTS
from dagflow.journal.retention import JournalRetention, published_urls
from dagflow.journal.state import JournalState
from dagflow.journal.typed_json import from_json
from dagflow.storage.location import redacted
from dagflow.storage.objects import ObjectStore
from dagflow.storage.roots import require_located


def set_aside(store: ObjectStore) -> Iterator[str]:
    """Begin the journal in a store anew, and name the files that the old one published.

    The old state stays readable under aside/, its windows in the archive. The caller removes each file as it is
    yielded; after the last one the journal records that all are removed. If that point is not reached, the journal
    cannot be opened before set_aside() is called again, which yields all files once more.

    Yields:
        The final URL of every file that was published, or would have been.
    """
    if not any(True for directory in (SNAPSHOTS, LOG) for _ in store.list(directory)):
        return
    journal = Journal.take_over(store, None, JournalRetention())
    if not journal.state.setting_aside:
        # Otherwise half of the files would be removed, and the other half could not be found.
        for url in published_urls(store, journal.state):
            require_located(url)
        journal.archive()
        name = f"aside/{journal.epoch:012d}"
        _keep(store, name, journal.state)
        journal.append(SetAside(name))
    name = journal.state.setting_aside
    url = redacted(f"{store.url}/{name}")
    old = from_json(JournalState, decode(store.read(name), url, store.roots), url)
    for published in published_urls(store, old):
        require_located(published)
        yield published
    journal.append(Cleared())
    journal.close()


def _keep(store: ObjectStore, name: str, state: JournalState) -> None:
    try:
        store.create(name, encode(state.to_json(), store.roots))
    except AlreadyExistsError as error:
        raise AlreadyExistsError(
            "the name for the old journal is taken", url=error.url, hint="move the existing one away, and run again"
        ) from error
