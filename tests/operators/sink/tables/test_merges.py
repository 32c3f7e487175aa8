"""What became of files that other programs have merged, from what the versions of a table did."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from dagflow.storage.pending import PendingFile
from operators.sink.tables.merges import Changes, MergeHistory, not_merged


def history(versions: str, gone: Collection[str] = ()) -> MergeHistory[str]:
    """Versions, the oldest first: what each removes and adds, as in `ab>C`, with `!` for a change of data."""
    found = []
    for text in versions.split():
        removed, _, added = text.rstrip("!").partition(">")
        found.append([Changes(dict.fromkeys(added, "there"), {each: each for each in removed}, not text.endswith("!"))])
    return MergeHistory(reversed(found), lambda file: file not in gone)


@pytest.mark.parametrize(
    ("versions", "before", "after"),
    [
        (">a! >b! ab>C", "ab", "C"),
        (">a! a>C >b! Cb>D", "ab", "D"),
        (">a! >b! >c! bc>X aX>C", "Xa", "C"),
        (">a! >b! ab>CD D>E", "ab", "CE"),
        # Put back by a correction, and merged again.
        (">a! >b! ab>C C>b! >a! ab>D", "ab", "D"),
        # A merged file that was put back.
        (">a! >b! a>C Cb>D D>C!", "a", "C"),
        (">a! >b! ab>C C>D!", "", ""),
        (">a! >b! a>b!", "", ""),
        (">b!", "", ""),
        # Rows that would be there twice.
        (">a! >b! ab>C >b!", "", ""),
    ],
)
def test_the_files_that_have_the_rows_of_a_file_are_found(versions: str, before: str, after: str) -> None:
    """With all other files that they were made of; none where a version has changed their rows."""
    found = history(versions).merges_of("a")
    assert ["".join(sorted(each.before)) for each in found] == ([before] if before else [])
    assert ["".join(sorted(each.after)) for each in found] == ([after] if after else [])


def test_a_merged_file_that_is_gone_counts_as_those_that_it_was_made_of() -> None:
    """So that they can be made anew; others have to be put back."""
    (found,) = history(">a! >b! >c! >d! bc>X aXd>C", "bX").merges_of("a")
    assert (sorted(found.before), found.gone) == (["a", "b", "c", "d"], frozenset("b"))
    files = {name: PendingFile(f"table/{name}", "", 1, 1) for name in "ab"}
    assert not_merged([files["a"]], [found], [files["a"]]) == [files["a"]]
    assert not_merged([files["a"]], [found], files.values()) == []
