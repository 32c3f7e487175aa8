"""Where links lead a walk: not back up, and not into what the app writes; which are left out is said once."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from operators.splitter.scan.listed_files import InTasks
from operators.splitter.scan.scanner import Scanner
from operators.splitter.scan.selection import Selection
from tests.nightly import by_day
from tests.operators.splitter.splitter_driver import each, write

IN_TASKS: list[InTasks | None] = [None, lambda function, items: list(map(function, items))]


def read(
    root: Path,
    *locations: str,
    in_tasks: InTasks | None = None,
    written: Sequence[str] = (),
    counters: Counter[str] | None = None,
    **patterns: str,
) -> list[str]:
    """The files below root that two scans find, the same ones each time."""
    selection = Selection(True, **patterns)
    paths = [str(root / place) for place in written]
    names = [str(root / location) for location in locations]
    scanner = Scanner(names, selection, counters, in_tasks=in_tasks, written=paths)
    scans = [[one.url(0) for one in each(scanner.scan()) if not one.is_directory(0)] for _ in range(2)]
    assert scans[0] == scans[1]
    return [os.path.relpath(url, root) for url in scans[0]]


@pytest.mark.parametrize("in_tasks", by_day(1, IN_TASKS))
@pytest.mark.parametrize(
    ("locations", "found"),
    [
        (["top/in"], ["top/in/a", "top/in/deep/b"]),
        (["top/in/*"], ["top/in/a", "top/in/deep/b"]),
        (["top/in/**/*"], ["top/in/a", "top/in/deep/b"]),
        (["other/link"], ["other/link/a", "other/link/deep/b"]),
        (["top/in/a", "top/in/deep"], ["top/in/a", "top/in/deep/b"]),
        (["other/link/deep", "top/in"], ["top/in/a", "top/in/deep/b"]),
    ],
)
def test_a_link_to_a_directory_above_the_input_is_not_followed(
    tmp_path: Path,
    locations: list[str],
    found: list[str],
    in_tasks: InTasks | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """However far above, from wherever below, and under whatever name the input is given; it is said once."""
    for name in ("top/in/a", "top/in/deep/b", "top/outside", "outside"):
        write(tmp_path / name)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "link").symlink_to("../top/in")
    (tmp_path / "top" / "in" / "up").symlink_to("..")
    (tmp_path / "top" / "in" / "deep" / "up").symlink_to(tmp_path)
    assert read(tmp_path, *locations, in_tasks=in_tasks) == found
    said = [record.getMessage() for record in caplog.records if "up/" in record.getMessage()]
    assert said
    assert len(said) == len(set(said))
    assert all(message.startswith("a link leads back to where it lies, left out") for message in said)


@pytest.mark.parametrize("in_tasks", IN_TASKS)
def test_a_link_behind_a_link_does_not_lead_up_either(tmp_path: Path, in_tasks: InTasks | None) -> None:
    """Neither above what the first one leads to nor above the input; to the side it leads on."""
    for name in ("top/in/a", "top/outside", "far/beside/c", "far/deep/b", "far/outside"):
        write(tmp_path / name)
    (tmp_path / "top" / "in" / "link").symlink_to(tmp_path / "far" / "deep")
    (tmp_path / "far" / "deep" / "back").symlink_to(tmp_path / "top")
    (tmp_path / "far" / "deep" / "side").symlink_to("../beside")
    (tmp_path / "far" / "deep" / "up").symlink_to("..")
    found = ["top/in/a", "top/in/link/b", "top/in/link/side/c"]
    assert read(tmp_path, "top/in", in_tasks=in_tasks) == found


@pytest.mark.parametrize("in_tasks", by_day(1, IN_TASKS))
@pytest.mark.parametrize("location", ["in", "in/*", "in/**/*", "link"])
@pytest.mark.parametrize(
    ("target", "written", "found", "left_out"),
    [
        ("out", ["out"], [], "to"),
        ("out/deep", ["out"], [], "to"),
        ("out", ["nowhere", "also"], [], "to"),
        ("out", ["out/deep"], ["to/x"], "to/deep"),
        ("out", ["outer", "out/de", "out/deep/y", "other"], ["to/deep/y", "to/x"], ""),
        ("", ["out"], [], ""),
    ],
)
def test_a_link_does_not_lead_into_what_the_app_writes(
    tmp_path: Path,
    location: str,
    target: str,
    written: list[str],
    found: list[str],
    left_out: str,
    in_tasks: InTasks | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Whether that is where it leads, above it or below it; what lies beside is read."""
    for name in ("in/a", "out/deep/y", "out/x"):
        write(tmp_path / name)
    (tmp_path / "also").symlink_to("out")
    (tmp_path / "link").symlink_to("in")
    (tmp_path / "in" / "to").symlink_to(tmp_path / target)
    counters: Counter[str] = Counter()
    base = location.partition("/")[0]
    expected = [f"{base}/{name}" for name in ("a", *found)]
    assert read(tmp_path, location, in_tasks=in_tasks, written=written, counters=counters) == expected
    said = [record.getMessage() for record in caplog.records if "the app writes" in record.getMessage()]
    why = "a link leads to where the app writes, or below, left out; name that directory itself to read it"
    assert said == ([f"{why} path={tmp_path}/{base}/{left_out}/"] if left_out else [])
    assert counters["ignored"] == 2 * bool(left_out)


def test_patterns_do_not_let_a_link_into_what_the_app_writes(tmp_path: Path) -> None:
    """They were made for the input; and a name that is passed over anyway is no match of the link."""
    for name in ("in/a.txt", "out/b.txt"):
        write(tmp_path / name)
    (tmp_path / "in" / "to").symlink_to("../out")
    assert read(tmp_path, "in", written=["out"], file_pattern=".*[.]txt") == ["in/a.txt"]
    assert read(tmp_path, "in/**/*.txt", written=["out"]) == ["in/a.txt"]
    counters: Counter[str] = Counter()
    assert read(tmp_path, "in/*.txt", written=["out"], counters=counters) == ["in/a.txt"]
    assert counters["ignored"] == 0
    assert read(tmp_path, "in/t*", written=["out"]) == []


def test_an_input_within_what_the_app_writes_keeps_its_links(tmp_path: Path) -> None:
    """An app that publishes above its input reads there on purpose; links to the side are a part of that."""
    for name in ("top/in/a", "top/side/b"):
        write(tmp_path / name)
    (tmp_path / "top" / "in" / "link").symlink_to("../side")
    assert read(tmp_path, "top/in", written=["top"]) == ["top/in/a", "top/in/link/b"]


def test_what_no_link_leads_to_is_read_under_its_own_name(tmp_path: Path) -> None:
    """As the notice advises."""
    write(tmp_path / "out" / "raw" / "a")
    assert read(tmp_path, "out/raw", written=["out"]) == ["out/raw/a"]
