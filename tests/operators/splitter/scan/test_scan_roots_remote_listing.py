"""Scans of object stores, whose keys may be no paths."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from operators.splitter.scan.scanner import Scanner
from operators.splitter.scan.selection import Selection
from tests.operators.splitter.splitter_driver import each
from tests.storage.shared import put, s3_client


def scanned(location: str) -> list[str]:
    """The files of a scan, below the location; no more of them than any test makes."""
    found = each(Scanner([location], Selection()).scan())
    urls = [one.url(0) for one in itertools.islice(found, 20) if not one.is_directory(0)]
    return [url.removeprefix(location) for url in urls]


def test_keys_with_empty_parts_are_found(s3_root: str) -> None:
    """Once each, in the order of their bytes, wherever the empty part is."""
    keys = ["/in/a.log", "/in/b//c.log", "/in/b/d.log", "/in///e.log", "/in//f.log", "//in/g.log"]
    for key in keys:
        put(s3_root + key, b"x\n")
    assert scanned(f"{s3_root}/in") == ["///e.log", "//f.log", "/a.log", "/b//c.log", "/b/d.log"]
    assert scanned(s3_root) == sorted(keys)
    assert scanned(f"{s3_root}/*/**/f.log") == [f"{s3_root}/in//f.log"]


def test_an_object_does_not_hide_what_lies_below_its_name(s3_root: str) -> None:
    """Both are scanned; an empty object is one that some tools create to show a directory."""
    for key in ("a/in", "a/in/f.log", "b/in/f.log", "b/in-g.log"):
        put(f"{s3_root}/{key}", b"x\n")
    put(f"{s3_root}/b/in", b"")
    assert scanned(f"{s3_root}/a/in") == ["", "/f.log"]
    assert scanned(f"{s3_root}/b/in") == ["", "/f.log"]
    assert scanned(f"{s3_root}/b/in-g.log") == [""]


def test_content_under_a_key_that_ends_in_a_slash_is_reported(s3_root: str, caplog: pytest.LogCaptureFixture) -> None:
    """It cannot be read: it is counted, and said once a run. An empty one says nothing."""
    for key, data in (("in/", b"x\n"), ("in/b/", b"x\n"), ("in/c/", b""), ("in/c/f.log", b"x\n")):
        s3_client().location(f"{s3_root}/{key}").call("put_object", "put", Key=key, Body=data)
    counters: Counter[str] = Counter()
    scanner = Scanner([f"{s3_root}/in"], Selection(), counters)
    for _ in range(2):
        assert [one.url(0) for one in each(scanner.scan()) if not one.is_directory(0)] == [f"{s3_root}/in/c/f.log"]
    assert counters["ignored"] == 4
    assert [record.getMessage().rpartition("=")[2] for record in caplog.records] == [
        f"{s3_root}/in/",
        f"{s3_root}/in/b/",
    ]
