"""Replays windows of a checkpoint: opens its journal, prepares the app as it is now, and starts Spark."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType

from dagflow.engine.corrections import Lost, Superseded, old_rows
from dagflow.engine.live_run import StopRequest
from dagflow.engine.publication import Publication
from dagflow.engine.repeatable import why_not_replayed
from dagflow.engine.replay_scope import replay_scope
from dagflow.engine.replayer import ReplayedWindow, Replayer
from dagflow.engine.run_setup import RunOptions, RuntimeFactory, SilentObserver, in_session, open_journal, open_run
from dagflow.engine.window_repair import unpublished, why_not_published
from dagflow.errors import JournalError, MissingJournalError
from dagflow.journal.journal import Journal
from dagflow.journal.reader import find_window, read_journal, read_state
from dagflow.journal.state import JournalState
from dagflow.plan.logical import LogicalPlan
from dagflow.plan.placement import PlacedApp
from dagflow.report.snapshot import RunSnapshot
from dagflow.storage.base import ObjectStore
from dagflow.storage.context import StorageContext
from dagflow.storage.location import absolute, join, moved_with, redacted


def app_file(checkpoint: str, storage: StorageContext) -> str:
    """The app file of the newest run on a checkpoint; a JournalError where the journal does not name it."""
    url = absolute(checkpoint)
    source = read_state(storage.objects(url)).source
    if not source:
        raise JournalError(
            "the journal does not say which app file it is of", url=redacted(url), hint="name the app with --app"
        )
    return source


def _require_same_locations(outputs: Iterable[str], journal: Journal) -> None:
    """Refuse a working directory in which the app's relative locations differ from those of the run.

    Otherwise files would be removed in one directory and made in another, instead of being replaced.
    """
    was, now = journal.state.directory, os.getcwd()
    for output in outputs if was not in ("", now) else ():
        before = moved_with(output, was, now)
        if before != output and any(url.startswith(join(before, "")) for url in journal.published()):
            raise JournalError(
                f"the run published into {before}, and in this working directory the app would into {output}",
                hint=f"run it in {was}, or let the app name its output by an absolute path",
            )


def _require_possible(app: PlacedApp, store: ObjectStore, windows: Sequence[int]) -> None:
    """Refuse what is known to be impossible before the replay shows as a run: it must not count as a failed one."""
    state = _state_of(store)
    _require_known(store, state, windows)
    if (obstacle := why_not_published(state, windows, store.url) or why_not_replayed(app)) is not None:
        raise obstacle


def _state_of(store: ObjectStore) -> JournalState:
    """The state of a journal; a checkpoint without one has no window."""
    with contextlib.suppress(MissingJournalError):
        return read_state(store)
    return JournalState()


def _require_known(store: ObjectStore, state: JournalState, windows: Sequence[int]) -> None:
    for window_id in windows:
        if not state.forgotten < window_id <= state.last_planned:
            find_window(store, state, window_id)


def windows_of(ranges: Iterable[range], checkpoint: str, storage: StorageContext) -> list[int]:
    """The windows of ranges; memory grows with the existing windows, not with the size of a range.

    Raises:
        MissingError: A window does not exist; the message names the first such window.
    """
    store = storage.objects(absolute(checkpoint))
    state = _state_of(store)
    found: list[int] = []
    for each in ranges:
        _require_known(store, state, each)
        found += each
    return found


def superseded_in(checkpoint: str, storage: StorageContext) -> Lost:
    """The versions that windows have published, and that later ones have read other versions of beside them."""
    store = storage.objects(absolute(checkpoint))
    return Superseded(store, _state_of(store), storage).in_output()


def with_old_rows(summary: RunSnapshot, checkpoint: str, storage: StorageContext) -> RunSnapshot:
    """The snapshot of all runs, with what they have left of versions that they have read others of."""
    store, state = read_journal(storage, absolute(checkpoint))
    command = shlex.join(["dagflow", "replay", redacted(checkpoint), "--superseded"])
    return replace(summary, old_rows=old_rows(Superseded(store, state, storage), command))


def replay_windows(
    app: LogicalPlan,
    options: RunOptions,
    windows: Sequence[int],
    stop: StopRequest | None = None,
    runtime: RuntimeFactory | None = None,
    notice: Callable[[str], None] = SilentObserver().notice,  # noqa: B008  # it has no state
    lost: Lost = MappingProxyType({}),
) -> list[ReplayedWindow]:
    """Run windows again, and replace what they published: all of it, or nothing.

    Args:
        options: Checkpoint, master, Spark settings, and whether to replace a run that is at work on the checkpoint.
        lost: Versions of files that the windows leave out from now on.

    Raises:
        LiveRunError: A run is at work on the checkpoint; nothing was done.
        RunStoppedError: A stop was requested before anything was replaced.
        DagflowError: A window could not be replayed, and nothing was replaced; or a decided replay could not be
            finished, and the next run or replay does it.
    """
    options = in_session(options, runtime)
    storage, stop = app.attributes.storage_context(), stop or StopRequest()
    options = replace(options, checkpoint=absolute(options.checkpoint or app.attributes.checkpoint))
    placed = PlacedApp.of(app, storage)
    _require_possible(placed, storage.objects(options.checkpoint or ""), windows)
    with open_run(app, options, "replay", notice, stop, partial(open_journal, app)) as opened:
        journal = opened.journal
        opened.live.set_state("running")
        publication = Publication(placed.operators, journal, storage, "power")
        chosen = replay_scope(journal, windows, publication.beside)
        for planned in journal.state.planned.values():
            if not chosen.again.isdisjoint(planned.retries):
                what = f"window {planned.window_id}, which reads refused records of these windows again,"
                raise unpublished(what, journal.state, journal.url)
        if more := len(chosen.again - set(windows)):
            notice(f"{more:,} more windows run again: they share files of a table, or refused records, with these")
        locations = opened.prepare(chosen.all)
        _require_same_locations(locations.outputs, journal)
        with opened.assembled(placed, locations, runtime, is_replay=True) as parts:
            try:
                changed = Replayer(parts, chosen, stop, opened.watch, lost).replay()
                for correction in journal.state.corrections if lost else ():
                    if correction.window_id == max(chosen.all):
                        notice(correction.text)
            finally:
                parts.side_inputs.sweep(journal.state.planned.values())
            if set(chosen.all) >= set(range(journal.state.forgotten + 1, journal.state.last_committed + 1)):
                # All output is now by this app: the next run has no change to report.
                journal.note_app(placed.facts)
                journal.flush()
            return changed
