"""What a corrected file takes the place of: the windows that have read its earlier version, and their data files."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dagflow.api.context import Skipped, VersionKey, version_key_of
from dagflow.api.control import ControlOperator, Grouper
from dagflow.api.operator import defines
from dagflow.api.sources import (
    FileSources,
    SourceRange,
    VersionFacts,
    accounting_key,
    block_id_of,
    content_start_of,
    decode_sources,
    encode_sources,
    is_first_part,
    is_gone,
    moved_from_of,
    supersedes_of,
    version_facts_of,
)
from dagflow.api.transactions import TransactionalSink
from dagflow.engine.repeatable import is_by_file, why_not_replayed
from dagflow.errors import JournalError, Problem, own_name
from dagflow.execution.messages import TaskResult
from dagflow.frozen import frozen, mutable
from dagflow.journal.reader import newest_windows
from dagflow.journal.state import JournalState
from dagflow.journal.windows import Correction, ProducedFiles, Window, WindowIntent, WindowPlan, source_ranges
from dagflow.metrics.counters import Counters
from dagflow.metrics.names import SUPERSEDED_RECORDS, SUPERSEDING_RECORDS
from dagflow.plan.logical import LogicalPlan
from dagflow.plan.physical import holder_of, merger_name
from dagflow.plan.placement import PlacedApp
from dagflow.report.concerns import OldRows
from dagflow.storage.base import ObjectStore
from dagflow.storage.context import StorageContext
from dagflow.storage.files import FileStat
from dagflow.storage.location import name_of, redacted
from dagflow.storage.pending import PendingFile, output_of

BESIDE = (
    "read the later version of the file beside the rows of the earlier one, which then stay: let on_change say "
    "{replaced: reread, truncated: reread, deleted: keep}"
)
"""Advice where the records of an earlier version cannot be taken out."""

Lost = Mapping[int, Mapping[VersionKey, Skipped]]
"""The versions of files whose records windows lose, by window."""


def correction_problems(app: LogicalPlan) -> list[Problem]:
    """Why the records of a version of a file cannot leave the output of an app that is to replace them."""
    owners = [name for name, each in app.instances.items() if isinstance(each, ControlOperator) and each.corrects]
    obstacle = why_not_replayed(PlacedApp.of(app, app.attributes.storage_context()), by_file=True) if owners else None
    if obstacle is None:
        return []
    text = (
        f"operator '{own_name(owners[0])}' has on_change: supersede, and the records of a version that was read cannot "
        f"be taken out again: {obstacle.message}; let on_change say reread, ignore or fail"
    )
    return [app.written(owners[0]).place.problem(text)]


@mutable
class _Lineage:
    """The parts of a file's earlier version, looked for from the newest to the first one.

    Attributes:
        version: The version to look for next; None where only its name is known, or the part that continues it.
        continued: The part that continues it; None where that is not known.
        is_found: Whether a part was found, be it one that was left out.
    """

    version: VersionFacts | None
    names: set[str]
    continued: SourceRange | None = None
    is_found: bool = False
    is_done: bool = False

    @property
    def is_of_nothing(self) -> bool:
        """Whether the version is empty, so that it has no records."""
        return self.version is not None and not self.version[0]

    def found_in(self, parts: Sequence[SourceRange], storage: StorageContext) -> list[SourceRange]:
        """The parts among those of a window that belong to it; it may have been renamed since."""
        if self.version is None:
            before = [each for each in parts if self._is_before(each) and not is_gone(each)]
            self.version = version_facts_of(before[-1]) if before else None
            self.names |= {each.url for each in before[-1:]}
        own = [each for each in parts if version_facts_of(each) == self.version]
        return [each for each in own if each.url in self.names] or [each for each in own if _has_moved(each, storage)]

    def _is_before(self, part: SourceRange) -> bool:
        later = self.continued
        if later is None:
            return part.url in self.names
        # The file may have been renamed between the two.
        if part.version.file_id == later.version.file_id != 0:
            return part.end <= later.start
        return part.url in self.names and part.version.size_bytes == (later.start or content_start_of(later))

    def follow(self, found: Sequence[SourceRange], *, has_replaced: bool) -> None:
        """Decide where its next part is.

        Args:
            found: All parts of a window, also those that were left out.
            has_replaced: Whether the window has taken the place of what they supersede.
        """
        self.is_found = True
        first = min(found, key=lambda each: each.start)
        self.names = {first.url, moved_from_of(first) or first.url}
        if is_first_part(first):
            self.version = None if has_replaced else supersedes_of(first)
            self.is_done = self.version is None
        elif getattr(getattr(first, "continuation", first), "tail_start", 0) or not first.start:
            self.version, self.continued = None, first


def _has_moved(part: SourceRange, storage: StorageContext) -> bool:
    """Whether a part was read of an inode that its name does not have any more: a hard link still has it."""
    stat = FileStat.of(part.url, part.version)
    return stat.file_id != 0 and not storage.backend(part.url).files.has_version(stat)


class Superseded:
    """Finds the windows of a journal that have read what corrected files replace."""

    def __init__(self, store: ObjectStore, state: JournalState, storage: StorageContext) -> None:
        self._store, self.state, self._storage = store, state, storage

    def windows(self, before: int = 0) -> Iterator[Window]:
        """The windows before one, the newest first."""
        return newest_windows(self._store, self.state, before)

    def by(self, planned: WindowPlan, left_out: Collection[str]) -> Lost:
        """What earlier windows lose because of a window.

        Args:
            left_out: The files that it has left out, because they are gone or cannot be read; they replace nothing.

        Raises:
            JournalError: The journal does not keep a window that has read an earlier version.
        """
        lineages = {
            part.url: _Lineage(version, {part.url})
            for part in source_ranges(planned)
            if (version := supersedes_of(part)) is not None and part.url not in left_out
        }
        lost: dict[int, dict[VersionKey, Skipped]] = defaultdict(dict)
        self._look(lineages, planned.window_id, lost)
        # A version that was ignored is in no window: it has taken the place of the one that was read before.
        passed_over = {url: each for url, each in lineages.items() if not (each.is_found or each.is_of_nothing)}
        for each in passed_over.values():
            each.version = None
        self._look(passed_over, planned.window_id, lost)
        forgotten = self.state.forgotten
        for url, each in sorted(lineages.items()):
            if not (each.is_done or each.is_of_nothing):
                why = f"the windows up to {forgotten} are no longer kept" if forgotten else "its first part"
                raise JournalError(
                    f"{redacted(url)} was corrected, and which rows its earlier version gave is not known: {why}"
                    + ("" if forgotten else " is in no window under a name that it had"),
                    hint="attributes: {retain_windows: all} keeps those to come for ever" if forgotten else "",
                )
        return lost

    def in_output(self) -> Lost:
        """What windows have published of versions that later ones have superseded, and read beside them."""
        lineages: dict[str, _Lineage] = {}
        lost: dict[int, dict[VersionKey, Skipped]] = defaultdict(dict)
        for window in self.windows():
            parts = list(source_ranges(window.plan))
            self._look_in(window, parts, lineages, lost)
            for part in [] if window.plan.corrects else parts:
                version = supersedes_of(part)
                if version is not None and part.url not in lineages:
                    lineages[part.url] = _Lineage(version, {part.url})
        return lost

    def _look(self, lineages: Mapping[str, _Lineage], before: int, lost: dict[int, dict[VersionKey, Skipped]]) -> None:
        for window in self.windows(before) if lineages else ():
            self._look_in(window, list(source_ranges(window.plan)), lineages, lost)
            if all(each.is_done for each in lineages.values()):
                return

    def _look_in(
        self,
        window: Window,
        parts: Sequence[SourceRange],
        lineages: Mapping[str, _Lineage],
        lost: dict[int, dict[VersionKey, Skipped]],
    ) -> None:
        if window.intent is None:
            return
        left_out = {(each.version, each.start) for each in window.intent.skipped}
        for url, lineage in lineages.items():
            if lineage.is_done or not (found := lineage.found_in(parts, self._storage)):
                continue
            read = [each for each in found if (version_key_of(each), each.start) not in left_out]
            why = f"{redacted(url)} was corrected or deleted later"
            if read:
                lost[window.plan.window_id].update((version_key_of(each), Skipped.of(each, why)) for each in read)
            # The window that has refused records is older than the one that has read them again.
            if not window.plan.retries:
                # A version that was left out has taken the place of nothing.
                lineage.follow(found, has_replaced=bool(read) and window.plan.corrects)


def left_out_in(results: Iterable[TaskResult]) -> set[str]:
    """The files whose planned versions could not be read."""
    return {each.url for result in results for each in result.skipped if each.cause != "corrected"}


_MOST_NAMED = 3


def corrections_of(
    window_id: int, files: Collection[str], out: Counter[str], added: Counter[str], deleted: int
) -> list[Correction]:
    """What is changed in each output that loses records or gets some; see Replayer.corrections()."""
    urls = sorted(map(redacted, files))
    return [
        Correction(window_id, urls[:_MOST_NAMED], len(urls), each, out[each], added[each], deleted=deleted)
        for each in sorted(out | added)
    ]


def counters_of(corrections: Iterable[Correction], operators: Collection[str]) -> Counters:
    changed = {each.output: each for each in corrections if each.output in operators}
    return Counters.of_counts(
        {name: {SUPERSEDED_RECORDS: it.rows_out, SUPERSEDING_RECORDS: it.rows_in} for name, it in changed.items()}
    )


def urls_of(lost: Lost) -> set[str]:
    return {version[0] for own in lost.values() for version in own}


def old_rows(superseded: Superseded, command: str, obstacle: str = "") -> tuple[OldRows, ...]:
    """What outputs have of versions of files that others were read beside, output by output.

    Args:
        command: The command that takes the rows out; "" for none.
        obstacle: Why there is none.
    """
    if not (lost := superseded.in_output()):
        return ()
    state = superseded.state

    def concerned() -> Iterator[Window]:
        # Windows that merge rows of others come after these.
        return itertools.takewhile(lambda window: window.plan.window_id >= min(lost), superseded.windows())

    urls, ids = sorted(map(redacted, urls_of(lost))), set[int]()
    for window in concerned():
        own = lost.get(window.plan.window_id, {})
        ids |= {block_id_of(part) for part in source_ranges(window.plan) if version_key_of(part) in own}
    rows, unknown, keyed = Counter[str](), set[str](), set[str]()
    for window in concerned():
        for file, sources in sources_of(window.intent) if window.intent is not None else ():
            output = output_of(file, state.outputs)
            keyed |= {output} if file.facts is not None and file.facts.keys else set()
            if sources is None:
                unknown.add(output)
            elif own_rows := sum(n for each, n in zip(sources.ids(), sources.counts, strict=True) if each in ids):
                rows[output] += own_rows
    places = {name: receipt.place for name, receipt in state.receipts.items()}
    return tuple(
        OldRows(
            urls[:_MOST_NAMED],
            len(urls),
            places.get(each) or own_name(name_of(redacted(each))),
            None if each in unknown else rows[each],
            command,
            obstacle,
            each in keyed,
        )
        for each in sorted({*rows, *unknown})
    )


def sources_of(intent: WindowIntent) -> Iterator[tuple[PendingFile, FileSources | None]]:
    """The files of a window, each with its sources; None where these are not known."""
    files = iter(intent.files)
    for made in intent.produced:
        yield from zip(itertools.islice(files, made.files), decode_sources(made.sources, made.files), strict=True)
    yield from ((file, None) for file in files)


def _works_record_by_record(app: PlacedApp) -> bool:
    """Whether what an app makes of a record depends on no other one, as far as its operators show.

    Totals that are kept by file do not count: no file that is made anew has any.
    """
    return all(
        isinstance(operator, TransactionalSink)
        or is_by_file(operator)
        or not any(port.carries_records for port in operator.input_ports.values())
        or not (defines(operator, "begin_window") or defines(operator, "end_window"))
        for operator in (app.operators[name] for stage in app.plan.stages for name in stage.operators)
    )


def chosen_files(
    files: Iterable[PendingFile],
    produced: Iterable[ProducedFiles],
    is_chosen: Callable[[ProducedFiles, PendingFile], bool],
) -> tuple[list[PendingFile], list[ProducedFiles]]:
    rest, chosen, parts = iter(files), [], []
    for part in produced:
        made = zip(itertools.islice(rest, part.files), decode_sources(part.sources, part.files), strict=True)
        if own := [(file, sources) for file, sources in made if is_chosen(part, file)]:
            parts.append(replace(part, files=len(own), sources=encode_sources([sources for _, sources in own])))
            chosen += [file for file, _ in own]
    return chosen, parts


def without_versions(intent: WindowIntent, planned: WindowPlan, versions: Mapping[VersionKey, Skipped]) -> WindowIntent:
    """What a window did, without versions of files: the parts that it has read of them count as left out.

    What it has counted stays, since the part that is lost is not known by itself.
    """
    left_out = {(each.version, each.start) for each in intent.skipped}
    parts = [part for part in source_ranges(planned) if version_key_of(part) in versions]
    lost = [part for part in parts if (version_key_of(part), part.start) not in left_out]
    keys = set(map(accounting_key, lost))
    left = {name: {key: n for key, n in own.items() if key not in keys} for name, own in intent.accounting.items()}
    return replace(
        intent,
        skipped=[*intent.skipped, *(Skipped.of(part, versions[version_key_of(part)].reason) for part in lost)],
        accounting={name: own for name, own in left.items() if own},
        recovered=[],
    )


@frozen
class PartialReplay:
    """The data files that are written again without the rows of versions, which no input is needed for.

    Attributes:
        jobs: By window and merger, what writes these files again from themselves.
        concerned: The locations of the files that go.
    """

    jobs: Mapping[int, Mapping[str, list[Any]]]
    concerned: frozenset[str]


def partial_replay(
    app: PlacedApp,
    windows: Mapping[int, Window],
    lost: Mapping[int, Collection[VersionKey]],
    apart_from: Collection[str],
    beside: Mapping[str, Collection[str]],
) -> PartialReplay | None:
    """The part of windows that is made anew where these lose versions; None where all of them have to run again.

    So it is unless all data files concerned are there and say of which block their rows are, and nothing else has
    records of the versions.

    Args:
        apart_from: Targets whose files stay.
        beside: The names of the files that are made anew with others, by the names of these.
    """
    if not _works_record_by_record(app):
        return None
    groupers = {holder_of(name): each for name, each in app.operators.items() if isinstance(each, Grouper)}
    blocks: set[int] = set()
    for at, own in lost.items():
        intent = windows[at].intent
        if intent is None or intent.refused:
            return None
        blocks |= {block_id_of(part) for part in source_ranges(windows[at].plan) if version_key_of(part) in own}
    made: dict[str, tuple[int, PendingFile]] = {}
    leaving: dict[str, Collection[int]] = {}
    for at, window in windows.items():
        for file, found in sources_of(window.intent) if window.intent is not None else ():
            if file.target in apart_from:
                continue
            if found is None or file.target not in groupers:
                return None
            name = name_of(file.final_url)
            made[name] = at, file
            if gone := {each for each, n in zip(found.ids(), found.counts, strict=True) if n and each in blocks}:
                leaving[name] = gone
    others = itertools.chain.from_iterable(beside.get(name, ()) for name in leaving)
    leaving = dict.fromkeys(filter(made.__contains__, others), ()) | leaving
    jobs: dict[int, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for at, file, ids in ((*made[name], ids) for name, ids in sorted(leaving.items())):
        # It may not be part of its table any more.
        is_there = name_of(file.final_url) not in beside or app.storage.has(file.final_url, file.size_bytes)
        job = groupers[file.target].rewriting(file, ids) if is_there else None
        if job is None:
            return None
        jobs[at][merger_name(file.target)].append(job)
    return PartialReplay(jobs, frozenset(made[name][1].final_url for name in leaving))
