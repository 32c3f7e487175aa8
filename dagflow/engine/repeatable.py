"""Refuses to start over where the published output cannot be made again."""

from __future__ import annotations

import shlex
from concurrent.futures import ThreadPoolExecutor

from dagflow.engine.placed_app import PlacedApp
from dagflow.engine.publication import windows_in_targets
from dagflow.engine.removed_sources import remover_of
from dagflow.engine.replayer import why_not_replayed
from dagflow.errors import JournalError, MissingError
from dagflow.journal.reader import committed_windows, read_state
from dagflow.journal.windows import Window
from dagflow.report.manifest import inputs_of
from dagflow.storage.context import StorageContext
from dagflow.storage.location import redacted
from dagflow.storage.objects import ObjectStore

_LOOKS_AT_ONCE = 16

_WAY_ON = "use another checkpoint and another output, or remove both yourself where copies of the files exist"


def require_repeatable(app: PlacedApp, store: ObjectStore) -> None:
    """Refuse to start over where published files cannot be made again, or windows cannot be removed from a target.

    Args:
        app: The app.
        store: The checkpoint.

    Raises:
        JournalError: An operator of the app, now or in an earlier run, removes source files; or a source file is gone,
            or shorter than the part of it that was read; or a transactional target has windows of the journal.
        DagflowError: The input or a target cannot be reached.
    """
    try:
        state = read_state(store)
    except MissingError:
        return
    if state.last_committed and (remover := remover_of(app.operators, state)):
        raise JournalError(
            f"--fresh would remove what was published, and operator '{remover}' has removed the source files: "
            "it may be the only copy",
            url=redacted(store.url),
            hint=_WAY_ON,
        )
    for target, newest in windows_in_targets(app.operators, state, app.storage):
        command = f"dagflow replay {shlex.quote(redacted(store.url))} --window 1-{newest}"
        raise JournalError(
            f"--fresh would write the rows of windows 1 to {newest} into {target.name} a second time",
            url=redacted(store.url),
            hint="let the app name another table, or move this one away, and run again with --fresh"
            + ("" if why_not_replayed(app) else f"; or write its rows again: {command}"),
        )
    _require_sources(store, app.storage)


def _require_sources(store: ObjectStore, storage: StorageContext) -> None:
    """Refuse where a file with published records is gone, or shorter than the part of it that was read."""

    def is_there(source: tuple[str, int]) -> bool:
        url, end = source
        try:
            return storage.stat(url).size_bytes >= end
        except MissingError:
            return False

    with ThreadPoolExecutor(_LOOKS_AT_ONCE) as pool:
        for window in committed_windows(store):
            sources = list(_sources(window).items())
            for (url, _), found in zip(sources, pool.map(is_there, sources), strict=True):
                if not found:
                    raise JournalError(
                        f"--fresh would remove what window {window.plan.window_id} has published of {redacted(url)}, "
                        "and what was read there is gone: it may be the only copy",
                        url=redacted(store.url),
                        hint=_WAY_ON,
                    )


def _sources(window: Window) -> dict[str, int]:
    """The files that a window has read, each with the end of the part that was read."""
    left_out = {} if window.intent is None else {(each.url, each.start): each.end for each in window.intent.skipped}
    ends: dict[str, int] = {}
    for _, part in inputs_of(window.plan):
        if left_out.get((part.url, part.start), -1) < part.end:
            # For a compressed file that was cut, ranges may be in its content, which is longer than the file.
            ends[part.url] = max(ends.get(part.url, 0), min(part.end, part.size_bytes))
    return ends
