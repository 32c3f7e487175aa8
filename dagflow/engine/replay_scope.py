"""Which windows a replay takes together, because a later window has merged the files that they held back."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import field, replace

from dagflow.engine.corrections import chosen_files
from dagflow.engine.window_repair import unpublished
from dagflow.errors import JournalError
from dagflow.frozen import frozen
from dagflow.journal.journal import Journal
from dagflow.journal.windows import ProducedFiles, Window, WindowIntent, WindowPlan
from dagflow.plan.physical import merger_name
from dagflow.storage.location import name_of
from dagflow.storage.pending import PendingFile


@frozen
class ReplayScope:
    """The windows of a replay.

    Attributes:
        merged: The operators whose merged files the replay replaces, by the window that has merged the groups.
        beside: The names of the files that are replaced with others, by the names of these.
    """

    again: frozenset[int]
    merged: Mapping[int, frozenset[str]] = field(default_factory=dict)
    beside: Mapping[str, Collection[str]] = field(default_factory=dict)

    def replaces(self, planned: WindowPlan) -> Callable[[ProducedFiles], bool]:
        """Which files of a window are replaced: those of a group that runs again, and its own where it runs again."""
        merged = self.merged.get(planned.window_id, frozenset())
        is_again = planned.window_id in self.again
        mergers = {merger_name(name): name for name in planned.takes}
        return lambda part: mergers[part.stage] in merged if part.stage in mergers else is_again

    @property
    def all(self) -> list[int]:
        return sorted({*self.again, *self.merged})


def replaced_files(window: Window, scope: ReplayScope) -> list[PendingFile]:
    is_replaced, intent = scope.replaces(window.plan), window.intent or WindowIntent(window.plan.window_id)
    return chosen_files(intent.files, intent.produced, lambda part, file: is_replaced(part))[0]


@frozen
class MergedGroup:
    """Windows whose held files one window has merged."""

    operator: str
    windows: range
    merged_by: int


def replay_scope(
    journal: Journal,
    chosen: Iterable[int],
    beside: Callable[[Iterable[PendingFile]], Mapping[str, Collection[str]]],
    apart_from: Collection[str] = (),
) -> ReplayScope:
    """Windows with all others whose files are replaced with theirs, and whose refused records were read with theirs.

    Args:
        beside: What has to be replaced with files, see Publication.beside().
        apart_from: Operators whose files and groups stay as they are; windows with no others do not run again.

    Raises:
        JournalError: As for _with_their_groups(); or files of a target are concerned that is not the app's any more.
    """
    ids = set(chosen)
    while True:
        scope = _with_their_groups(journal, ids, apart_from)
        intents = [journal.window(window_id).intent for window_id in scope.all]
        files = [file for intent in intents if intent is not None for file in intent.files]
        others = beside(file for file in files if file.target and file.target not in apart_from)
        names = {*itertools.chain.from_iterable(others.values())} - {name_of(file.final_url) for file in files}
        # All windows of the journal are read only where there is something to look for.
        all_windows = journal.windows() if names else ()
        more = {window.plan.window_id for window in all_windows if _has_made(window, names)}
        more |= with_retries(journal.windows() if journal.state.retried else (), scope.all, journal.state.forgotten)
        if not more - set(scope.all):
            return replace(scope, beside=others)
        ids |= more


def with_retries(windows: Iterable[Window], chosen: Iterable[int], forgotten: int) -> set[int]:
    """Windows with those that have read refused records of theirs again, and all that had refused what these have read.

    Args:
        windows: All windows that are kept.
        forgotten: The newest window that is not.
    """
    ids, plans = set(chosen), (window.plan for window in windows)
    together = [
        {each for each in (plan.window_id, *plan.retries) if each > forgotten} for plan in plans if plan.retries
    ]
    while more := set().union(*(each for each in together if not each.isdisjoint(ids))) - ids:
        ids |= more
    return ids


def _has_made(window: Window, names: Collection[str]) -> bool:
    return window.intent is not None and any(name_of(file.final_url) in names for file in window.intent.files)


def _with_their_groups(journal: Journal, chosen: Iterable[int], apart_from: Collection[str]) -> ReplayScope:
    """Windows with all others of their groups: a file of a group has rows of all of its windows.

    Args:
        apart_from: As for replay_scope().

    Raises:
        JournalError: A group is not published yet, or the journal does not keep all of its windows.
    """
    ids = set(chosen)
    windows = [journal.window(window_id) for window_id in sorted(ids)]
    if apart_from and not any(_has_others(window, apart_from) for window in windows):
        return ReplayScope(frozenset(), dict.fromkeys(ids, frozenset()))
    if not any(window.plan.takes or (window.intent is not None and window.intent.held) for window in windows):
        return ReplayScope(frozenset(ids))
    groups, holders = _groups(journal, apart_from)
    merged: dict[int, set[str]] = defaultdict(set)
    waiting = sorted(ids)
    # Their rows are decided for a table, and may not be there yet; others may wait.
    taken = {held.window_id for own in journal.state.held.taken.values() for files in own.values() for held in files}
    while waiting:
        window_id = waiting.pop()
        if window_id in taken:
            raise unpublished(f"the group of window {window_id}", journal.state, journal.url)
        for group in groups:
            is_member = window_id in holders and window_id in group.windows
            # Files that a merging window holds back itself are part of the next group.
            is_asked_for = group.merged_by == window_id and window_id in chosen
            if is_member or is_asked_for:
                _require_kept(journal, group, window_id)
                if members := holders.intersection(group.windows):
                    merged[group.merged_by].add(group.operator)
                waiting += members - ids
                ids |= members
    return ReplayScope(frozenset(ids), {key: frozenset(names) for key, names in merged.items()})


def _has_others(window: Window, outputs: Collection[str]) -> bool:
    """Whether a window has made something that is not for some outputs."""
    intent = window.intent
    return intent is None or bool(intent.refused) or any(f.target not in outputs for f in [*intent.files, *intent.held])


def groups_merged_by(takers: Iterable[WindowPlan]) -> Iterator[MergedGroup]:
    """The groups that windows have merged; the windows in their order."""
    newest: dict[str, int] = defaultdict(int)
    for planned in takers:
        for operator, last in planned.takes.items():
            yield MergedGroup(operator, range(newest[operator] + 1, last + 1), planned.window_id)
            newest[operator] = last


def _groups(journal: Journal, apart_from: Collection[str]) -> tuple[list[MergedGroup], set[int]]:
    """All groups that were merged, and the windows that have held files back."""
    takers: list[WindowPlan] = []
    holders: set[int] = set()
    for window in journal.windows():
        if window.intent is not None and any(file.target not in apart_from for file in window.intent.held):
            holders.add(window.plan.window_id)
        takers += [window.plan] if window.plan.takes else []
    return [group for group in groups_merged_by(takers) if group.operator not in apart_from], holders


def _require_kept(journal: Journal, group: MergedGroup, window_id: int) -> None:
    """Refuse a group whose first windows the journal does not keep any more."""
    if group.windows.start <= journal.state.forgotten:
        raise JournalError(
            f"window {window_id} is part of a group of windows; those before window "
            f"{journal.state.forgotten + 1} are no longer kept",
            hint="attributes: {retain_windows: all} keeps those to come for ever",
        )
