"""The answer whether a splitter would take a file, given without a scan, agrees with its scan."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagflow.errors import MissingError
from dagflow.storage.context import StorageContext
from operators import FileSplitterInput
from tests.nightly import examples
from tests.operators.splitter.splitter_driver import SplitterDriver
from tests.storage.shared import put

STORAGE = StorageContext.default()

NAMES = st.sampled_from(
    [
        "a.log",
        "b.txt",
        ".hidden",
        "x.part",
        "d~",
        "_SUCCESS",
        "[1]",
        "sub/a.log",
        "sub/.c/a.log",
        "sub/x/y.log",
        "a_/b.log",
    ]
)
PATTERNS = st.sampled_from([None, r".*\.log", "a.*", r"[^.]*"])
ROOTS = st.sampled_from([".", "sub", "*.log", "**/*.log", "sub/*", "a.log", "*"])


@settings(max_examples=examples(150), deadline=None)
@given(st.sets(NAMES, min_size=1), ROOTS, PATTERNS, PATTERNS, st.booleans())
def test_an_explanation_is_what_the_scan_does(
    names: set[str], root: str, keeps: str | None, ignores: str | None, recursive: bool
) -> None:
    """For every file below any location, with any patterns, both agree."""
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            (Path(folder) / name).parent.mkdir(parents=True, exist_ok=True)
            (Path(folder) / name).write_bytes(b"x")
        properties: dict[str, Any] = {"file_pattern": keeps, "ignore_pattern": ignores, "recursive": recursive}
        splitter = FileSplitterInput(files=f"{folder}/{root}", follow=True, **properties)
        explained = {name for name in names if splitter.explain_input(f"{folder}/{name}", STORAGE)[0]}
        assert explained == {os.path.relpath(url, folder) for url in taken(f"{folder}/{root}", properties)}


def taken(files: str, properties: Mapping[str, Any]) -> set[str]:
    """The files that a scan takes; none where the location does not exist."""
    try:
        return {
            each.url
            for each in SplitterDriver(FileSplitterInput(files=files, **properties)).window().files
            if not each.is_directory
        }
    except MissingError:
        return set()


@pytest.mark.parametrize(
    ("properties", "name", "sentence"),
    [
        ({"file_pattern": r".*\.log"}, "b.txt", r"file_pattern '.*\.log' does not match the name 'b.txt'"),
        ({"ignore_pattern": "sub"}, "sub/a.log", "ignore_pattern 'sub' matches the directory 'sub'"),
        ({"recursive": False}, "sub/a.log", "the directory 'sub' is not entered, because of recursive: false"),
        ({}, "x.part", "scans skip the name 'x.part', as hidden files, markers, unfinished copies"),
        ({}, "none.log", "its name would be selected, and there is no such file now"),
        ({}, "sub", "it is a directory, whose files are taken one by one"),
        ({"settle_millis": 10**9}, "b.txt", "it does not count as complete yet, by settle_millis 1000000000"),
        (
            {"done_marker": "{name}.ok"},
            "b.txt",
            "does not count as complete yet, by settle_millis 0",
        ),
        ({"done_marker": "{name}.txt"}, "b.txt", "it is a marker of done_marker '{name}.txt'"),
        ({}, "/elsewhere/c.txt", "begins."),
        ({}, "/elsewhere/b.txt", "/b.txt does: ask for that."),
    ],
)
def test_the_rule_that_decides_is_named(tmp_path: Path, properties: dict[str, Any], name: str, sentence: str) -> None:
    """The sentence says which property, or which kind of name, keeps a file out."""
    for path in ("b.txt", "sub/a.log", "x.part"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_bytes(b"x")
    splitter = FileSplitterInput(files=str(tmp_path), **properties)
    is_taken, explanation = splitter.explain_input(str(tmp_path / name), STORAGE)
    assert not is_taken
    assert sentence in explanation
    assert explanation.startswith("It is not taken: ") and explanation.endswith(".")


def test_an_object_and_what_lies_below_its_name_are_taken(s3_root: str) -> None:
    """In an object store a location may be a file, and a directory as well."""
    urls = [put(f"{s3_root}/{key}", b"x") for key in ("in", "in/a.log")]
    splitter = FileSplitterInput(files=f"{s3_root}/in")
    assert [splitter.explain_input(url, STORAGE)[0] for url in (*urls, f"{s3_root}/in-b")] == [True, True, False]
