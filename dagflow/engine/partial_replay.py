"""Which data files of windows are made anew where these lose versions of files, so that no window runs again."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from dagflow.api.context import Skipped, VersionKey, version_key_of
from dagflow.api.control import Grouper
from dagflow.api.operator import Operator, defines
from dagflow.api.sources import block_id_of, decode_sources, encode_sources
from dagflow.api.transactions import TransactionalSink
from dagflow.engine.corrections import sources_of
from dagflow.engine.kept_totals import is_by_file
from dagflow.frozen import frozen
from dagflow.journal.planned_tuples import source_ranges
from dagflow.journal.windows import ProducedFiles, Window
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
class PartialReplay:
    """The data files that are written again without the rows of versions, which no input is needed for.

    Attributes:
        jobs: By window and merger, what writes these files again from themselves.
        concerned: The locations of the files that go.
    """

    jobs: Mapping[int, Mapping[str, list[Any]]]
    concerned: frozenset[str]


def partial_replay(
    windows: Mapping[int, Window],
    lost: Mapping[int, Collection[VersionKey]],
    apart_from: Collection[str],
    beside: Mapping[str, Collection[str]],
    groupers: Mapping[str, Grouper],
    is_there: Callable[[PendingFile], bool],
) -> PartialReplay | None:
    """The part of windows that is made anew where these lose versions; None where all of them have to run again.

    So it is unless all data files concerned are there and say of which block their rows are, and nothing else has
    records of the versions.

    Args:
        windows: All windows that have made or merged files with rows of these.
        apart_from: Targets whose files stay.
        beside: The names of the files that are made anew with others, by the names of these.
        groupers: What gives the jobs, by target.
        is_there: Whether a file can be read.
    """
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
        job = groupers[file.target].rewriting(file, ids) if is_there(file) else None
        if job is None:
            return None
        jobs[at][merger_name(file.target)].append(job)
    return PartialReplay(jobs, frozenset(made[name][1].final_url for name in leaving))
