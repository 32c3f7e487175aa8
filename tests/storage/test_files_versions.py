"""What distinguishes one version of a file from another."""

from __future__ import annotations

from dataclasses import replace

from dagflow.storage.files import FileStat


def test_etags_decide_where_there_are_any() -> None:
    """Object stores give times in whole seconds, so their times decide nothing."""
    planned = FileStat("s3://b/k", 3, mtime_ns=1, etag="a")
    assert planned.difference(replace(planned, mtime_ns=2)) == ""
    assert "etag" in planned.difference(replace(planned, etag="b"))
    assert "modified" in replace(planned, etag="").difference(replace(planned, mtime_ns=2))
