"""Scans of object stores, whose keys may be no paths."""

from __future__ import annotations

import itertools

from operators.splitter.scan.scanner import Scanner
from operators.splitter.scan.selection import Selection
from tests.operators.splitter.driving import each
from tests.storage.shared import put


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
