"""Repairs windows that cannot be published: takes back the decision, so that they are planned again."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import asdict, replace
from operator import itemgetter

from dagflow.api.sources import SourceVersion
from dagflow.engine.live_run import RunGate, StopRequest
from dagflow.engine.repeatable import remover_of, why_not_read_again
from dagflow.errors import ANOTHER_TABLE, DagflowError, JournalError, LostOutputError, MissingError, RunStoppedError
from dagflow.frozen import frozen
from dagflow.journal.events import Repair
from dagflow.journal.journal import Journal
from dagflow.journal.reader import JournalRetention, read_journal, read_state
from dagflow.journal.state import JournalState
from dagflow.journal.windows import source_ranges
from dagflow.storage.context import StorageContext
from dagflow.storage.files import FileStat
from dagflow.storage.location import absolute, redacted, require_located
from dagflow.storage.publishing import find_lost
from dagflow.suggestions import command_to_replay, command_to_run


@frozen
class RepairedWindow:
    """A window that the next run plans again.

    Attributes:
        lost: Locations of its files that could not be published; empty where nothing was decided, or none is lost.
        kept: Locations of its files that could be, or were, published; the next run replaces them.
    """

    window_id: int
    lost: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()


def repair_command(checkpoint: str, window_id: int) -> str:
    return f"dagflow repair {shlex.quote(redacted(checkpoint))} --window {window_id}"


def advise_repair(error: DagflowError, state: JournalState, checkpoint: str) -> None:
    """Name the repair in the error of a run that ends while a window is decided which a repair takes back.

    Errors of the journal say themselves what to do.
    """
    if isinstance(error, (JournalError, RunStoppedError)):
        return
    for window_id, intent in state.intents.items():
        if isinstance(error, LostOutputError) or any(file.target for file in intent.files):
            error.advise(
                hint=f"window {window_id} is decided, and each run first publishes its files as they are; to plan it "
                f"again instead, for the app and its tables as they are then: {repair_command(checkpoint, window_id)}"
            )


def advise_replay(error: DagflowError, state: JournalState, checkpoint: str, storage: StorageContext) -> None:
    """Say how all rows come back that waited to be merged and are gone, in the error about one of their files."""
    if not isinstance(error, LostOutputError):
        return
    waiting = state.held.all_waiting
    of_error = [held for held in waiting if redacted(held.file.pending_url) == error.url]
    if any(held.file.facts is not None and held.file.facts.keys for held in of_error):
        # A replay is refused: the rows that it adds would replace newer rows.
        error.advise(hint=f"put it back, or start over: {ANOTHER_TABLE}")
    elif of_error:
        pairs = ((held, held.file) for held in waiting)
        gone = [held for held, own in pairs if held in of_error or not storage.has(own.pending_url, own.size_bytes)]
        rows, windows = sum(held.file.records for held in gone), {held.window_id for held in gone}
        error.advise(
            hint=f"put it back; or read the input of all rows that are gone again, {rows:,} in all: "
            + command_to_replay(redacted(checkpoint), windows, is_local=state.is_local)
        )


def why_not_published(state: JournalState, windows: Iterable[int], checkpoint: str) -> JournalError | None:
    """Why windows cannot run again: one of them is not published yet."""
    missing = [window_id for window_id in windows if window_id > state.last_done]
    return unpublished(f"window {missing[0]}", state, checkpoint) if missing else None


def unpublished(what: str, state: JournalState, checkpoint: str) -> JournalError:
    """The error of a replay of what is not published yet."""
    decided = "".join(f"; if that fails for good: {repair_command(checkpoint, each)}" for each in state.intents)
    return JournalError(
        f"{what} is not published yet", url=redacted(checkpoint), hint=f"finish it first, with dagflow run{decided}"
    )


def repair(checkpoint: str, window_id: int, storage: StorageContext) -> RepairedWindow:
    """Take back the decision about a window that cannot be published, so that the next run plans its blocks again.

    One record of the journal does it; no file is touched. The next run plans the window with the app as it is then, and
    replaces the files that the window had published by its new ones. What a target has of the window stays there.

    Raises:
        MissingError: There is no journal, or no such window.
        JournalError: The window needs no repair; nothing was changed.
        LiveRunError: A run is at work; nothing was changed.
    """
    store = read_journal(storage, absolute(checkpoint))[0]
    storage = replace(storage, roots=store.roots)
    RunGate(store, lambda text: None, StopRequest()).require_free()
    _examined(read_state(store), window_id, checkpoint, storage)
    journal = Journal.take_over(store, None, JournalRetention())
    try:
        found = _examined(journal.state, window_id, checkpoint, storage)
        journal.append(Repair(window_id))
    finally:
        journal.close()
    return found


def _examined(state: JournalState, window_id: int, checkpoint: str, storage: StorageContext) -> RepairedWindow:
    """The damage of a window; a JournalError where nothing is wrong that a repair would fix."""
    url = redacted(checkpoint)
    if window_id > state.last_planned:
        raise MissingError(f"there is no window {window_id}; the newest one is {state.last_planned}", url=url)
    if window_id in state.planned:
        return RepairedWindow(window_id)
    if window_id not in state.intents:
        remover, windows = remover_of({}, state), f"--window {window_id}"
        raise JournalError(
            f"window {window_id} is published",
            url=url,
            hint=why_not_read_again(remover, shlex.quote(url), windows).hint
            if remover
            else f"to run it again: {command_to_replay(url, [window_id], is_local=state.is_local)}",
        )
    if again := [each for each, replayed in state.reprocessing.items() if replayed.correction == window_id]:
        raise JournalError(
            f"window {window_id} is published together with the windows that lose what it has replaced",
            url=url,
            hint="finish it, with dagflow run; if files are lost: "
            + command_to_replay(url, again, is_local=state.is_local),
        )
    files = state.intents[window_id].files
    require_located([*map(asdict, files)])
    lost = {file.final_url for file in find_lost(storage, files)}
    # Whether a target takes files is not known here, and what it has taken is looked up by the next run.
    if not lost and not any(file.target for file in files):
        raise JournalError(
            f"window {window_id} is committed, and all its files are complete or published",
            url=url,
            hint=f"to publish the rest: {command_to_run(state.source, is_local=state.is_local)}",
        )
    kept = tuple(redacted(file.final_url) for file in files if file.final_url not in lost)
    if kept:
        _require_input(state, window_id, storage, url)
    return RepairedWindow(window_id, tuple(map(redacted, sorted(lost))), kept)


def _require_input(state: JournalState, window_id: int, storage: StorageContext, url: str) -> None:
    """Refuse a window whose input is gone: its files are all that is left of the records."""
    sources = {part.url: part.version for part in source_ranges(state.committing[window_id])}
    for source, version in sorted(sources.items(), key=itemgetter(0)):
        if why := why_gone(source, version, storage):
            raise JournalError(
                f"window {window_id} has read {redacted(source)}, which {why}: its records are only in the files of "
                "the window",
                url=url,
                hint="put the file back, and repair the window then",
            )


def why_gone(url: str, version: SourceVersion, storage: StorageContext) -> str:
    """Why a version of a file cannot be read any more, as a clause about it; "" if it can, or was appended to."""
    planned = FileStat.of(url, version)
    if (now := storage.find(url)) is None:
        return "is gone"
    has_grown = planned.file_id == now.file_id != 0 and planned.size_bytes < now.size_bytes
    difference = "" if has_grown else planned.difference(now)
    return f"is another version now ({difference})" if difference else ""
