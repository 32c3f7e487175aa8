"""The types that an app may give columns."""

from __future__ import annotations

import sys

import pytest

from operators.reader.columns.types import arrow_type, is_zone


@pytest.mark.parametrize("name", ["UTC", "Europe/Paris", "America/Argentina/Buenos_Aires", "Etc/GMT+3"])
def test_a_time_zone_is_known_by_its_name(name: str) -> None:
    """As the system has it."""
    assert str(arrow_type(f"timestamp[us, {name}]").tz) == name


@pytest.mark.parametrize(
    "name",
    [
        "Mars",
        "Europe",
        "utc\0",
        "",
        "../UTC",
        "/etc/passwd",
        "zone.tab",
        "posix/UTC",
        "posixrules",
        "right/UTC",
        "é" * 200,
    ],
)
def test_what_is_no_time_zone_is_none(name: str) -> None:
    """A directory, another file beside the zones, and their copies with other rules are none."""
    assert not is_zone(name)


def test_a_time_zone_is_looked_up_without_a_look_at_the_others() -> None:
    """To list all, Python opens each of their files, which takes longer than the rest of the check of an app."""
    opened: list[str] = []
    is_noting = True

    def note(event: str, arguments: tuple[object, ...]) -> None:
        if is_noting and event == "open":
            opened.append(str(arguments[0]))

    sys.addaudithook(note)
    assert is_zone("Pacific/Auckland")
    is_noting = False
    assert len(opened) <= 2
