"""What became of the bytes of a version of a file, over several windows."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from dagflow.api.context import Skipped
from dagflow.report.input_ranges import IN_PART, LEFT_OUT, PLANNED, READ, InputRange, VersionRanges


def part(start: int, end: int) -> InputRange:
    """Bytes of a version of ten."""
    return InputRange("f", 10, 0, "", start, end, 1, "reader.in", 0)


def test_what_a_later_window_has_read_is_not_left_out() -> None:
    """In whichever order the two are looked at."""
    left_out = [Skipped("f", 0, 10, "away")]
    for order in itertools.permutations([left_out, []]):
        ranges = VersionRanges()
        for skipped in order:
            ranges.add(part(0, 10), skipped, is_planned=False)
        assert (ranges.state, ranges.read_bytes) == (READ, 10)


def test_what_is_lost_elsewhere_than_planned_is_left_out() -> None:
    """As of a damaged archive, where a block has what begins in it, up to the next thing that is read."""
    ranges = VersionRanges()
    for start, end in ((0, 4), (4, 8), (8, 10)):
        ranges.add(part(start, end), [Skipped("f", 0, 4, "why", lost_start=1, lost_end=9)], is_planned=False)
    assert (ranges.state, ranges.read_bytes) == (IN_PART, 2)


def test_files_without_bytes_and_files_to_be_read_have_their_states() -> None:
    """Another file's ranges have nothing to do with them."""
    ranges = VersionRanges()
    ranges.add(part(0, 0), [Skipped("g", 0, 10, "away")], is_planned=False)
    assert (ranges.state, ranges.read_bytes) == (READ, 0)
    ranges.add(part(2, 4), [], is_planned=True)
    assert (ranges.state, ranges.read_bytes, ranges.planned_bytes) == (PLANNED, 0, 2)
    ranges.add(part(4, 10), [], is_planned=False)
    assert (ranges.state, ranges.read_bytes, ranges.planned_bytes) == (PLANNED, 6, 2)


RANGES = st.tuples(st.integers(0, 10), st.integers(0, 10)).map(sorted).map(tuple)


@given(st.lists(st.tuples(RANGES, st.lists(RANGES, max_size=3)), min_size=1, max_size=4))
def test_ranges_are_those_of_single_bytes(windows: list[tuple[tuple[int, int], list[tuple[int, int]]]]) -> None:
    """Each byte is read, or left out, or no window has had to do with it."""
    ranges = VersionRanges()
    read: set[int] = set()
    seen: set[int] = set()
    for (start, end), holes in windows:
        ranges.add(part(start, end), [Skipped("f", *hole, "why") for hole in holes], is_planned=False)
        seen |= set(range(start, end))
        read |= set(range(start, end)) - {byte for hole in holes for byte in range(*hole)}
    assert ranges.read_bytes == len(read)
    assert ranges.state == (READ if seen == read else IN_PART if read else LEFT_OUT)
