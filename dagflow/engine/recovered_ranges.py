"""Ranges that were listed as left out, and that a later window or a replay has read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dagflow.api.context import MovedRange, Skipped, WaitingEnd
from dagflow.api.ports import unbatched
from dagflow.api.sources import SourceRange, is_source_range, moved_from_of
from dagflow.execution.messages import TaskResult
from dagflow.journal.planned_tuples import planned_tuples
from dagflow.journal.saved_state import LeftOut
from dagflow.journal.windows import WindowIntent, WindowPlan


def recovered(left_out: LeftOut, planned: WindowPlan, results: Sequence[TaskResult]) -> list[Skipped]:
    """The ranges that were listed as left out, and that a window has now read.

    A version that was gone counts as read when it came back, or was read under another name. A version that could not
    be read also counts as read when another version of its file was: the file was repaired, or has grown to its end.
    """
    moved = _joined(each for result in results for each in result.moved)
    read = set(_read_under_their_names(left_out, planned, [each for result in results for each in result.skipped]))
    return [each for each in left_out.newest if each in read or _is_within(each, moved)]


def ended(waiting: Sequence[WaitingEnd], planned: WindowPlan) -> list[WaitingEnd]:
    """The ends of files that were left, and that a window reads, or whose files are other ones by now."""
    if not waiting:
        return []
    read: set[str | int] = set()
    for _, _, item in planned_tuples(planned):
        for block in unbatched((item,)):
            if is_source_range(block):
                read |= {block.url, moved_from_of(block) or block.url, block.version.file_id}
    read.discard(0)
    return [end for end in waiting if end.url in read or end.file_id in read]


def recovered_by_replay(left_out: LeftOut, before: WindowIntent, skipped: Sequence[Skipped]) -> list[Skipped]:
    """The ranges that were listed as left out, and that a window which had left them out has read in its replay.

    Args:
        before: What the window did before; for an unfinished replay, what that replay did.
        skipped: The ranges that it has left out now.
    """
    again = {each.version_range for each in skipped}
    read = [each for each in [*before.skipped, *before.recovered] if each.version_range not in again]
    return [each for each in left_out.newest if any(_is_read_with(each, part) for part in read)]


def _is_read_with(each: Skipped, part: Skipped) -> bool:
    """Whether reading `part` counts as reading the listed `each`: the same range, or one of a newer version."""
    if each.version_range == part.version_range and each.is_gone == part.is_gone:
        return True
    is_newer = each.url == part.url and each.mtime_ns < part.mtime_ns and not each.is_gone
    return is_newer and part.start <= each.start and part.end >= min(each.end, part.size_bytes)


def _joined(moved: Iterable[MovedRange]) -> list[MovedRange]:
    """The ranges, with those that touch each other joined: blocks may have been cut elsewhere before."""
    joined: list[MovedRange] = []
    for each in sorted(moved):
        if joined and (joined[-1].url, joined[-1].end) == (each.url, each.start):
            joined[-1] = joined[-1]._replace(end=each.end)
        else:
            joined.append(each)
    return joined


def _is_within(each: Skipped, moved: Sequence[MovedRange]) -> bool:
    return any(part.url == each.url and part.start <= each.start and each.end <= part.end for part in moved)


def _read_under_their_names(left_out: LeftOut, planned: WindowPlan, skipped: Sequence[Skipped]) -> list[Skipped]:
    listed = {each.url for each in left_out.newest}
    if not listed:
        return []
    again = {(each.version, each.start) for each in skipped}
    read: dict[str, list[SourceRange]] = {}
    for _, _, item in planned_tuples(planned):
        for block in unbatched((item,)):
            if not is_source_range(block):
                continue
            url, version = block.url, block.version
            if ((url, version.size_bytes, version.mtime_ns, version.etag), block.start) not in again:
                for name in {url, moved_from_of(block) or url}:
                    read.setdefault(name, []).append(block)
    return [each for each in left_out.newest if any(_is_read_by(each, block) for block in read.get(each.url, ()))]


def _is_read_by(each: Skipped, block: SourceRange) -> bool:
    """Whether a block that was read contains a range that was left out; both are of the same file."""
    version, size = block.version, block.version.size_bytes
    is_end = block.end >= each.end
    if each.is_gone:
        is_same = each.version[1:] == (size, version.mtime_ns, version.etag) and each.file_id == version.file_id
    else:
        # A repaired file may be shorter than the damaged one.
        is_same, is_end = True, is_end or block.end == size
    return is_same and block.start <= each.start and is_end
