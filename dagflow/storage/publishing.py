"""Publishes sets of files on any stores: those on remote stores several at a time."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence

from dagflow.errors import MissingError
from dagflow.storage.context import StorageContext
from dagflow.storage.pending import Durability, PendingFile, request_threads


def publish_all(storage: StorageContext, files: Sequence[PendingFile], *, durability: Durability = "process") -> None:
    _for_all(storage, lambda file: storage.backend(file.final_url).pending.publish(file, durability), files)


def discard_all_rivals(storage: StorageContext, files: Sequence[PendingFile]) -> None:
    """End the unfinished uploads of dead attempts for all files; see PendingFiles.discard_rivals."""
    _for_all(storage, lambda file: storage.backend(file.final_url).pending.discard_rivals(file), files)


def discard_all(storage: StorageContext, files: Iterable[PendingFile]) -> None:
    for file in files:
        storage.backend(file.final_url).pending.discard(file)


def find_lost(storage: StorageContext, files: Sequence[PendingFile]) -> list[PendingFile]:
    """The files that neither wait nor have their final names; to be called before the first of a set is replaced."""
    lost: list[PendingFile] = []

    def look(file: PendingFile) -> None:
        if not storage.backend(file.final_url).pending.is_whole(file):
            lost.append(file)

    _for_all(storage, look, files)
    return sorted(lost, key=lambda file: file.final_url)


def replace_all(
    storage: StorageContext, files: Sequence[PendingFile], removed: Iterable[str], require_right: Callable[[], None]
) -> None:
    """Publish every file, then remove the files at the URLs in removed; durable when this returns.

    A name that exists before and after is never missing, if the store has a move or an upload that replaces. After a
    crash in between, doing it again completes it; files that already have their final names stay. `require_right` is
    called before each step that cannot detect itself that it comes too late; it raises where another driver has taken
    over.
    """
    require_right()
    _for_all(storage, lambda file: storage.backend(file.final_url).pending.replace(file), files)
    gone = sorted(removed)
    for url in gone:
        require_right()
        with contextlib.suppress(MissingError):
            storage.backend(url).files.remove(url)
    # The journal next records the replacement; after a power loss, no look at a pending file would repair a name.
    urls_by_backend: dict[int, list[str]] = {}
    for url in [*(file.final_url for file in files), *gone]:
        urls_by_backend.setdefault(id(storage.backend(url)), []).append(url)
    for urls in urls_by_backend.values():
        storage.backend(urls[0]).pending.sync_names(urls)


def publish_instead(
    storage: StorageContext,
    files: Sequence[PendingFile],
    earlier: Sequence[PendingFile],
    require_right: Callable[[], None],
    *,
    durability: Durability = "process",
) -> None:
    """Publish files in place of those of an earlier attempt, some of which may be published.

    May be repeated: after a crash in between, doing it again completes it. Files of other programs are not replaced.
    `require_right` is called before anything is replaced or removed; it raises where another driver has taken over.
    """
    require_right()
    # From here on no process can publish one of them any more, however late it wakes up.
    discard_all(storage, earlier)
    lost = {file.final_url for file in find_lost(storage, earlier)}
    earlier_urls = {file.final_url for file in earlier} - lost
    publish_all(storage, [file for file in files if file.final_url not in earlier_urls], durability=durability)
    in_place = [file for file in files if file.final_url in earlier_urls]
    replace_all(storage, in_place, earlier_urls - {file.final_url for file in files}, require_right)


def _for_all(storage: StorageContext, act: Callable[[PendingFile], None], files: Sequence[PendingFile]) -> None:
    """Call a function with each file; in several threads for stores that take several calls at a time."""
    concurrent = []
    for file in files:
        if storage.backend(file.final_url).is_concurrent:
            concurrent.append(file)
        else:
            act(file)
    for done in [request_threads().submit(act, file) for file in concurrent]:
        done.result()
