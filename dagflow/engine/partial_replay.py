"""Which part of a window has to run again where it loses versions of files: that of the data files concerned."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from dagflow.api.context import Skipped, VersionKey
from dagflow.api.operator import Operator, defines
from dagflow.api.sources import FileSources, decode_sources, encode_sources
from dagflow.api.transactions import TransactionalSink
from dagflow.journal.windows import ProducedFiles, WindowIntent
from dagflow.plan.physical import PhysicalPlan
from dagflow.storage.location import name_of
from dagflow.storage.pending import PendingFile


def works_record_by_record(plan: PhysicalPlan, operators: Mapping[str, Operator]) -> bool:
    """Whether what an app makes of a record depends on no other one, as far as its operators show."""
    return all(
        isinstance(operator, TransactionalSink)
        or not any(port.carries_records for port in operator.input_ports.values())
        or not (defines(operator, "begin_window") or defines(operator, "end_window"))
        for operator in (operators[name] for stage in plan.stages for name in stage.operators)
    )


@dataclass(frozen=True, slots=True)
class PartialReplay:
    """A window without some versions: which of its files stay, and what does not run again for the others.

    Attributes:
        files: The files that stay.
        produced: Where these come from.
        spared: The versions that do not run again: none of the files that are made anew has records of them.
    """

    files: list[PendingFile]
    produced: list[ProducedFiles]
    spared: dict[VersionKey, Skipped]

    def intent(self, before: WindowIntent, did: WindowIntent) -> WindowIntent:
        """The new intent of the window, from what it did before and what a part of it did now.

        What it has counted stays, since the part that is lost is not known by itself.
        """
        corrected = [each for each in did.skipped if each.cause == "corrected"]
        # As accounting_key() names them.
        keys = {
            f"{name_of(each.url)} of {each.size_bytes} bytes, {each.mtime_ns} {each.etag}".rstrip()
            for each in corrected
        }
        accounting = {
            name: {key: value for key, value in booked.items() if key not in keys}
            for name, booked in before.accounting.items()
        }
        return replace(
            before,
            files=[*self.files, *did.files],
            produced=[*self.produced, *did.produced],
            skipped=[*before.skipped, *corrected],
            recovered=[],
            accounting={name: booked for name, booked in accounting.items() if booked},
        )


def partial_replay(
    blocks: Sequence[tuple[int, VersionKey]], intent: WindowIntent, lost: Mapping[VersionKey, Skipped]
) -> PartialReplay | None:
    """What stays of a window that loses versions; None where all of it has to run again.

    Args:
        blocks: The blocks that it has read: their ids, and their versions.
    """
    sources = list(_sources_of(intent))
    if intent.held or intent.refused or not all(file.target for file in intent.files) or None in sources:
        return None
    versions = dict(blocks)
    by_file = [{versions[each] for each in found.ids() if each in versions} for found in sources if found is not None]
    again, concerned = set(lost), set[int]()
    # A version in a file that is made anew runs again, and so all of its records: all files with some are made anew.
    while more := {at for at, own in enumerate(by_file) if own & again} - concerned:
        concerned |= more
        again |= {version for at in more for version in by_file[at]}
    spared = {version: Skipped(version[0], 0, 0, "", "spared") for version in set(versions.values()) - again}
    if not spared:
        return None
    files = [file for at, file in enumerate(intent.files) if at not in concerned]
    return PartialReplay(files, list(_kept(intent, sources, concerned)), spared)


def _sources_of(intent: WindowIntent) -> Iterator[FileSources | None]:
    for each in intent.produced:
        yield from decode_sources(each.sources, each.files)
    yield from [None] * (len(intent.files) - sum(each.files for each in intent.produced))


def _kept(intent: WindowIntent, sources: Sequence[FileSources | None], concerned: set[int]) -> Iterator[ProducedFiles]:
    at = 0
    for each in intent.produced:
        own = [sources[position] for position in range(at, at + each.files) if position not in concerned]
        at += each.files
        if own:
            yield replace(each, files=len(own), sources=encode_sources(own))
