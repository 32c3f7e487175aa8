"""Which locations a pattern matches."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagflow.report.input_ranges import matcher_of


@pytest.mark.parametrize(
    ("pattern", "matched", "others"),
    [
        ("*", ["/data/in/a", "s3://bucket/in/a", "file"], []),
        ("*/a", ["/data/in/a", "s3://bucket/in/a"], ["/data/in/b", "/data/a/b"]),
        ("/data/*", ["/data/in/a"], ["/other/data/a", "s3://data/a"]),
        ("s3://bucket/*.csv", ["s3://bucket/in/a.csv"], ["/s3/bucket/a.csv", "s3://other/a.csv"]),
        ("/data/[x].csv", ["/data/[x].csv", "/data/x.csv"], ["/data/y.csv"]),
        ("?data/in/", ["/data/in/"], ["/data/in/a"]),
    ],
)
def test_a_pattern_is_compared_as_it_is_written(pattern: str, matched: list[str], others: list[str]) -> None:
    """Wherever the working directory is, and in every store."""
    matches = matcher_of(pattern)
    assert [url for url in (*matched, *others) if matches(url)] == matched


def test_a_pattern_is_relative_to_the_working_directory_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any part of it may be a pattern; what lies elsewhere has another path."""
    monkeypatch.chdir(tmp_path)
    for pattern in ("in/a*", "./in/ab", "../*/in/ab", "i[n]/ab"):
        assert matcher_of(pattern)(f"{tmp_path}/in/ab")
        assert not matcher_of(pattern)("/elsewhere/in/ab")
