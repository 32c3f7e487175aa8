"""What the index must know of versions that are replaced, or that are found under another name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from operators.splitter.comparison import noted
from operators.splitter.index.entries import MOVED, IndexEntry
from operators.splitter.index.version_slots import (
    EARLIER,
    PART,
    SHORTER,
    ReadVersion,
    earlier_name,
    earlier_names,
    shorter_name,
)
from operators.splitter.renames.verdicts import Suspect, Verdict
from operators.splitter.scan.listed_files import ListedFiles


def names_to_know(read: Mapping[bytes, ReadVersion]) -> list[bytes]:
    """The names in the index whose entries the notes depend on; see notes_before().

    Args:
        read: What was read of versions, by name.
    """
    parts = {name.partition(EARLIER)[0] + PART for name in read}
    taken = (earlier_names(name, version) for name, version in read.items() if EARLIER not in name)
    return [*parts, *(slot for slots in taken for slot in slots)]


def notes_before(
    verdicts: Sequence[Verdict], read: Mapping[bytes, ReadVersion], known: Mapping[bytes, IndexEntry]
) -> list[ListedFiles]:
    """Entries to note in the index before the files are taken: what their names held, and how far it was read.

    Args:
        verdicts: What the files are.
        read: What was read of versions, by name.
        known: The entries of names_to_know().
    """
    notes = []
    for name, suspect in _replaced(verdicts).items():
        if (before := read[name]).entry.size_bytes > 0:
            notes.append(noted(suspect.files, earlier_name(name, before, known), before.entry))
            for slot in (SHORTER, PART) if name + PART in known else (SHORTER,):
                notes.append(noted(suspect.files, name + slot, IndexEntry(MOVED, 0, 0)))
    for verdict in verdicts:
        if verdict.source is not None and not verdict.is_read:
            before = read[verdict.source.name]
            notes.append(noted(verdict.suspect.files, shorter_name(verdict.suspect.name, before), before.entry))
    return notes


def notes_after(
    verdicts: Sequence[Verdict], read: Mapping[bytes, ReadVersion], known: Mapping[bytes, IndexEntry]
) -> list[ListedFiles]:
    """Entries to note after the files are taken: old names no longer hold what has moved; see notes_before()."""
    notes = []
    replaced = _replaced(verdicts)
    tails = {
        shorter_name(each.suspect.name, read[each.source.name])
        for each in verdicts
        if each.source is not None and not each.is_read
    }
    # What is replaced may have taken the place of what has moved.
    kept = {earlier_name(name, read[name], known) for name in replaced if read[name].entry.size_bytes > 0}
    for verdict in verdicts:
        if (source := verdict.source) is not None:
            before = source.taken_name
            is_kept = before in replaced and any(
                _is_same(source.entry, each) for each in (replaced[before].entry, read[before].entry)
            )
            name = earlier_name(before, read[before], known) if is_kept else source.name
            in_use = tails if is_kept else tails | kept
            path = source.name.partition(EARLIER)[0]
            # The file that has the path by now may have been read in part before this is noted.
            part = {path + PART} if path + PART in known and path not in replaced else set()
            for consumed in {name, path + SHORTER, *part} - in_use:
                notes.append(noted(verdict.suspect.files, consumed, IndexEntry(MOVED, 0, 0)))
    return notes


def _is_same(entry: IndexEntry, other: IndexEntry | None) -> bool:
    """Whether two entries are of one version; that it was found rewritten may be known to one of them only."""
    return other is not None and entry[:3] == other[:3]


def _replaced(verdicts: Sequence[Verdict]) -> dict[bytes, Suspect]:
    return {each.suspect.name: each.suspect for each in verdicts if each.suspect.entry is not None}
