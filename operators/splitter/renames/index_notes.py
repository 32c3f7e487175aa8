"""What the index must know of versions that are replaced, or that are found under another name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from operators.splitter.comparison import noted
from operators.splitter.index.entries import MOVED, IndexEntry
from operators.splitter.renames.verdicts import EARLIER, SHORTER, Suspect, Verdict, earlier_name
from operators.splitter.scan.listed_files import ListedFiles


def notes_before(verdicts: Sequence[Verdict], read: Mapping[bytes, IndexEntry]) -> list[ListedFiles]:
    """What must be known before the files are taken: what their names held, and what was read of their tails before.

    Args:
        verdicts: What the files are.
        read: What was read of versions, by name.
    """
    notes = []
    for name, suspect in _replaced(verdicts).items():
        if (entry := read[name]).size_bytes > 0:
            notes.append(noted(suspect.files, earlier_name(name, entry), entry))
            notes.append(noted(suspect.files, name + SHORTER, IndexEntry(MOVED, 0, 0)))
    for verdict in verdicts:
        if verdict.source is not None and not verdict.is_read:
            notes.append(noted(verdict.suspect.files, verdict.suspect.name + SHORTER, read[verdict.source.name]))
    return notes


def notes_after(verdicts: Sequence[Verdict], read: Mapping[bytes, IndexEntry]) -> list[ListedFiles]:
    """That what has moved is not under its old name any more; see notes_before()."""
    notes = []
    replaced = _replaced(verdicts)
    tails = {each.suspect.name + SHORTER for each in verdicts if each.source is not None and not each.is_read}
    # What is replaced may have taken the place of what has moved.
    kept = {earlier_name(name, read[name]) for name in replaced if read[name].size_bytes > 0}
    for verdict in verdicts:
        if (source := verdict.source) is not None:
            before = source.taken_name
            is_kept = before in replaced and source.entry in (replaced[before].entry, read[before])
            name = earlier_name(before, read[before]) if is_kept else source.name
            in_use = tails if is_kept else tails | kept
            for consumed in {name, source.name.partition(EARLIER)[0] + SHORTER} - in_use:
                notes.append(noted(verdict.suspect.files, consumed, IndexEntry(MOVED, 0, 0)))
    return notes


def _replaced(verdicts: Sequence[Verdict]) -> dict[bytes, Suspect]:
    return {each.suspect.name: each.suspect for each in verdicts if each.suspect.entry is not None}
