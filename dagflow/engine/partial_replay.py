"""Which part of windows has to run again where these lose versions of files: that of the data files concerned."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dagflow.api.context import Skipped, VersionKey
from dagflow.api.control import Grouper
from dagflow.api.operator import Operator, defines
from dagflow.api.sources import decode_sources, encode_sources
from dagflow.api.transactions import TransactionalSink
from dagflow.engine.corrections import sources_of
from dagflow.engine.kept_totals import is_by_file
from dagflow.frozen import frozen
from dagflow.journal.windows import ProducedFiles, WindowIntent
from dagflow.plan.physical import PhysicalPlan, merger_name
from dagflow.storage.location import name_of
from dagflow.storage.pending import PendingFile


def works_record_by_record(plan: PhysicalPlan, operators: Mapping[str, Operator]) -> bool:
    """Whether what an app makes of a record depends on no other one, as far as its operators show.

    Totals that are kept by file do not count: no file that is made anew has any.
    """
    return all(
        isinstance(operator, TransactionalSink)
        or is_by_file(operator)
        or not any(port.carries_records for port in operator.input_ports.values())
        or not (defines(operator, "begin_window") or defines(operator, "end_window"))
        for operator in (operators[name] for stage in plan.stages for name in stage.operators)
    )


def chosen_files(
    files: Iterable[PendingFile],
    produced: Iterable[ProducedFiles],
    is_chosen: Callable[[ProducedFiles, PendingFile], bool],
) -> tuple[list[PendingFile], list[ProducedFiles]]:
    """Some of the files of a window, and where they come from."""
    rest, chosen, parts = iter(files), [], []
    for part in produced:
        made = zip(itertools.islice(rest, part.files), decode_sources(part.sources, part.files), strict=True)
        if own := [(file, sources) for file, sources in made if is_chosen(part, file)]:
            parts.append(replace(part, files=len(own), sources=encode_sources([sources for _, sources in own])))
            chosen += [file for file, _ in own]
    return chosen, parts


def unbooked(accounting: Mapping[str, Mapping[str, int]], lost: Iterable[Skipped]) -> dict[str, dict[str, int]]:
    """What a window has booked into the byte accounting, without what it has of some versions of files."""
    # As accounting_key() names them.
    keys = {f"{name_of(each.url)} of {each.size_bytes} bytes, {each.mtime_ns} {each.etag}".rstrip() for each in lost}
    left = {name: {key: value for key, value in own.items() if key not in keys} for name, own in accounting.items()}
    return {name: own for name, own in left.items() if own}


@frozen
class ReadWindow:
    """A window that has run: the blocks that it has read, by id with their versions, and what it did."""

    blocks: Sequence[tuple[int, VersionKey]]
    intent: WindowIntent


@frozen
class PartialReplay:
    """Windows without some versions: which files are made anew, and what does not run again for them.

    Attributes:
        again: The windows that run again.
        spared: By window, the versions that do not: none of the files that are made anew has records of them.
        concerned: The locations of the files that go.
        rewriting: By window and merger, what writes these files again from themselves; None where blocks are read.
    """

    again: frozenset[int]
    spared: Mapping[int, Mapping[VersionKey, Skipped]]
    concerned: frozenset[str]
    rewriting: Mapping[int, Mapping[str, list[Any]]] | None = None

    def kept(self, intent: WindowIntent) -> tuple[list[PendingFile], list[ProducedFiles]]:
        """The files of a window that stay, and where they come from."""
        return chosen_files(intent.files, intent.produced, lambda part, file: file.final_url not in self.concerned)

    def intent(self, before: WindowIntent, did: WindowIntent, lost: Iterable[Skipped]) -> WindowIntent:
        """The new intent of a window, from what it did before and what a part of it did now.

        What it has counted stays, since the part that is lost is not known by itself.
        """
        corrected = (
            [*lost] if self.rewriting is not None else [each for each in did.skipped if each.cause == "corrected"]
        )
        files, produced = self.kept(before)
        return replace(
            before,
            files=[*files, *did.files],
            produced=[*produced, *did.produced],
            skipped=[*before.skipped, *corrected],
            recovered=[],
            accounting=unbooked(before.accounting, corrected),
        )


def rewriting_replay(
    windows: Mapping[int, ReadWindow],
    lost: Mapping[int, Mapping[VersionKey, Skipped]],
    waiting: Collection[int],
    apart_from: Collection[str],
    beside: Mapping[str, Collection[str]],
    groupers: Mapping[str, Grouper],
    is_there: Callable[[PendingFile], bool],
) -> PartialReplay | None:
    """The data files that are written again without the rows of versions, which no input is needed for.

    None if not all of them are there and say of which block their rows are, or if other output has records of the
    versions, too. The arguments are those of partial_replay(); the groupers have the names of their targets.
    """
    if any(windows[at].intent.refused for at in lost) or not lost.keys().isdisjoint(waiting):
        return None
    blocks = {block for at, own in lost.items() for block, version in windows[at].blocks if version in own}
    made: dict[str, tuple[int, PendingFile]] = {}
    leaving: dict[str, Collection[int]] = {}
    for at, window in windows.items():
        for file, found in sources_of(window.intent):
            if file.target in apart_from:
                continue
            if found is None or file.target not in groupers:
                return None
            name = name_of(file.final_url)
            made[name] = at, file
            if own := {each for each, n in zip(found.ids(), found.counts, strict=True) if n and each in blocks}:
                leaving[name] = own
    others = itertools.chain.from_iterable(beside.get(name, ()) for name in leaving)
    leaving = dict.fromkeys(filter(made.__contains__, others), ()) | leaving
    jobs: dict[int, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for at, file, gone in ((*made[name], gone) for name, gone in sorted(leaving.items())):
        job = groupers[file.target].rewriting(file, gone) if is_there(file) else None
        if job is None:
            return None
        jobs[at][merger_name(file.target)].append(job)
    concerned = frozenset(made[name][1].final_url for name in leaving)
    return PartialReplay(frozenset(jobs), {}, concerned, jobs)


def partial_replay(
    windows: Mapping[int, ReadWindow],
    lost: Mapping[int, Mapping[VersionKey, Skipped]],
    members: Collection[int],
    waiting: Collection[int],
    apart_from: Collection[str],
    beside: Mapping[str, Collection[str]],
) -> PartialReplay | None:
    """What has to run again where windows lose versions; None where all of them have to.

    Args:
        windows: All windows that have made, held back or merged files with rows of these.
        members: Those that may run again; the others have only merged files.
        waiting: Those whose rows wait to be merged, and which run again as a whole.
        apart_from: Targets whose files stay.
        beside: The names of the files that are made anew with others, by the names of these.
    """
    files: dict[str, set[tuple[int, VersionKey]]] = {}
    part_of = {block: (at, version) for at, window in windows.items() for block, version in window.blocks}
    for window in windows.values():
        made = [(file, found) for file, found in sources_of(window.intent) if file.target not in apart_from]
        if window.intent.refused or any(found is None or not file.target for file, found in made):
            return None
        for file, found in made:
            ids = found.ids() if found is not None else []
            if any(block not in part_of for block in ids):
                return None
            files[file.final_url] = {part_of[block] for block in ids}
    again = {(at, version) for at, own in lost.items() for version in own}
    concerned: set[str] = set()
    size = 0
    # All records of a version that runs again come anew, so that all files with some of them are made anew.
    while size < (size := len(again) + len(concerned)):
        concerned |= {url for url, own in files.items() if own & again}
        others = {*itertools.chain.from_iterable(beside.get(name_of(url), ()) for url in concerned)}
        concerned |= {url for url in files if name_of(url) in others}
        again |= {part for url in concerned for part in files[url]}
        whole = {at for at in waiting if any(part[0] == at for part in again)}
        again |= {part for part in part_of.values() if part[0] in whole}
    spared: dict[int, dict[VersionKey, Skipped]] = defaultdict(dict)
    for at, version in set(part_of.values()) - again:
        spared[at][version] = Skipped(version[0], 0, 0, "", "spared")
    chosen = frozenset(at for at, _ in again)
    return PartialReplay(chosen, spared, frozenset(concerned)) if spared and chosen <= set(members) else None
