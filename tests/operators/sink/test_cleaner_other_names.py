"""Source files that get other names between being read and being removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagflow.metrics.names import CLEANED, CLEANED_NOT
from tests.operators.sink.test_cleaner import Cleaning, left
from tests.operators.splitter.splitter_driver import write


@pytest.mark.parametrize("is_restarted", [True, False])
@pytest.mark.parametrize("batch_bytes", [0, 1 << 20])
def test_a_source_file_goes_that_was_renamed_and_appended_to(
    batch_bytes: int, is_restarted: bool, tmp_path: Path
) -> None:
    """When its end is read under the new name. A repetition that finds it gone has not removed it itself."""
    with Cleaning(tmp_path, batch_bytes=batch_bytes) as cleaning:
        cleaning.take(cleaning.reports)
        with cleaning.path.open("a") as file:
            file.write("2\n")
        if is_restarted:
            cleaning.restart()
        cleaning.path.rename(tmp_path / "in" / "a.1")
        cleaning.cleaner.committed(1)
        assert (cleaning.counters, cleaning.remembered) == ({CLEANED_NOT: 1}, 1)
        write(cleaning.path, "new\nw")
        cleaning.take(cleaning.scan())
        cleaning.cleaner.committed(2)
    assert cleaning.counters == {CLEANED: 1, CLEANED_NOT: 2}
    assert left(tmp_path) == {"a": b"new\nw"}


@pytest.mark.parametrize("is_published_in_one", [True, False])
def test_what_was_appended_before_a_rename_may_wait_to_be_published(
    is_published_in_one: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is read by then, under the old name; then the file has the new one, and stays there as any renamed file."""
    with Cleaning(tmp_path, batch_bytes=0) as cleaning:
        cleaning.take(cleaning.reports)
        cleaning.take(cleaning.append("2\n"))
        cleaning.path.rename(tmp_path / "in" / "a.1")
        for window_id in (2,) if is_published_in_one else (1, 2):
            cleaning.cleaner.committed(window_id)
        assert caplog.text.count("it is gone, or has another name by now") == 2
        with (tmp_path / "in" / "a.1").open("a") as file:
            file.write("3\n")
        cleaning.take(cleaning.scan())
        cleaning.cleaner.committed(3)
    assert (left(tmp_path), cleaning.remembered) == ({}, 0)


def test_what_has_another_name_from_the_beginning_counts_as_removed(tmp_path: Path) -> None:
    """A repetition that finds it gone has removed it before: the other name is no sign of a rename."""
    with Cleaning(tmp_path) as cleaning:
        cleaning.take(cleaning.reports)
        (tmp_path / "in" / ".a").hardlink_to(cleaning.path)
        cleaning.restart()
        cleaning.path.unlink()
        cleaning.cleaner.committed(1)
    assert (cleaning.counters, cleaning.remembered) == ({CLEANED: 1}, 0)


def test_a_new_file_is_not_taken_for_a_source_file_that_was_removed(tmp_path: Path) -> None:
    """Although it has its inode: what the repetition does not find was removed, and is forgotten."""
    with Cleaning(tmp_path) as cleaning:
        cleaning.take(cleaning.reports)
        cleaning.restart()
        cleaning.path.rename(tmp_path / "in" / "b")
        write(tmp_path / "in" / "b", "another\n")
        cleaning.cleaner.committed(1)
    assert (cleaning.counters, cleaning.remembered, left(tmp_path)) == ({CLEANED: 1}, 0, {"b": b"another\n"})
