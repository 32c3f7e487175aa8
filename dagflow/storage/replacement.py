"""A set of files in the place of another one: each at once, and all of them or, for those who come later, none."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Sequence

from dagflow.errors import MissingError
from dagflow.storage.local_disk import sync_directory, translated
from dagflow.storage.location import is_local
from dagflow.storage.pending import PendingFile, for_all, is_whole, remove, replace


def lost_of(files: Sequence[PendingFile]) -> list[PendingFile]:
    """The files that neither wait nor are in their places; to be asked before the first of a set is replaced.

    Raises:
        StorageError: A store refused.
    """
    lost: list[PendingFile] = []
    for_all(lambda file: None if is_whole(file) else lost.append(file), files)
    return sorted(lost, key=lambda file: file.final_url)


def replace_all(files: Sequence[PendingFile], removed: Iterable[str], require_right: Callable[[], None]) -> None:
    """Put every file in its place, then remove what has none any more; durable when this returns.

    No name is ever missing that is there before and after, where the store has a move or an upload that replaces.
    After a death in between, doing it again completes it; what is in its place already stays.

    Args:
        files: Complete pending files.
        removed: URLs that go, after everything new is there.
        require_right: Called before each step that cannot tell by itself that it comes too late; raises where
            somebody else has taken over.

    Raises:
        StorageError: A file is lost, or a store refused.
    """
    require_right()
    for_all(replace, files)
    gone = sorted(removed)
    for url in gone:
        require_right()
        with contextlib.suppress(MissingError):
            remove(url)
    # The names, whatever else a power loss may take: who reads that the set was replaced looks at no pending file.
    for directory in sorted({os.path.dirname(url) for url in [*(f.final_url for f in files), *gone] if is_local(url)}):
        with translated(directory, "sync"), contextlib.suppress(FileNotFoundError):
            sync_directory(directory)
