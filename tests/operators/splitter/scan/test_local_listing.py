from __future__ import annotations

from pathlib import Path

import pytest

from operators.splitter.scan.local_listing import LocalLister
from tests.operators.splitter.splitter_driver import write


@pytest.mark.parametrize("held_names", [1, 2, 3, 7, 19, 20, 21, 1000])
def test_a_large_directory_is_listed_in_parts(tmp_path: Path, held_names: int) -> None:
    """However few names are held, each comes once and in order."""
    for number in range(20):
        write(tmp_path / f"{number * 7 % 20:02}")
    (tmp_path / "05-").mkdir()
    found = [name for entries in LocalLister(held_names).entries(bytes(tmp_path) + b"/") for name in entries.names]
    assert found == sorted([b"%02d" % number for number in range(20)] + [b"05-/"])
