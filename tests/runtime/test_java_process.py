"""How the Java process of a run is started."""

from __future__ import annotations

import pytest

from dagflow.runtime.java_process import with_utf8


@pytest.mark.parametrize(
    ("given", "is_changed"),
    [
        ({}, True),
        ({"LANG": "C"}, True),
        ({"LC_ALL": "POSIX", "LANG": "de_DE.UTF-8"}, True),
        ({"LC_ALL": "", "LANG": "de_DE.UTF-8"}, False),
        ({"LC_CTYPE": "en_US.ISO-8859-1", "LANG": "C"}, False),
    ],
)
def test_java_takes_file_names_for_utf8_where_python_does(given: dict[str, str], is_changed: bool) -> None:
    """Python does so in the locale C; any other locale is a person's choice."""
    assert with_utf8(given) == ({**given, "LC_ALL": "C.UTF-8"} if is_changed else given)
