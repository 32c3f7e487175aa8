"""Directories of CSV files, some of whose heads cannot be used: the others are read, whatever becomes of these."""

from __future__ import annotations

import base64
import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from dagflow.errors import DagflowError
from dagflow.report.manifest import window_manifest
from dagflow.storage.context import StorageContext
from tests.operators.reader.test_block_processor_accounting import published, run_app

GOOD = {
    "a.csv": b"id,name\n1,ann\n2,bob\n",
    "b.csv": b'\n\r\nname,id\n"e\nve",3\n',
    "c.csv.gz": gzip.compress(b"\nid,name\n4,dan\n"),
    "z.csv": b"\xef\xbb\xbfid,name\n5,\n",
}
NAMES = ["ann", "bob", "e\nve", "dan", ""]
BAD = {
    "doubled.csv": b"id,id\n6,7\n8,9\n",
    "empty_lines.csv": b"\n\nname\n6\n",
    "latin.csv": "id,näme\n6,x\n".encode("latin-1"),
    "utf16.csv": "id,name\n6,x\n".encode("utf-16-le"),
    "page.csv": b"<!DOCTYPE html>\n<p>404\n",
    "packed.csv.gz": gzip.compress(b"id,id\n6,7\n"),
}
REFUSED = "cannot be used: |the file is in UTF-16-LE"
FORMAT = "format: {type: csv, columns: {id: int64}}"
CUTS = [{"block_size": 5}, {"block_size": 1 << 20}, {"block_size": 1 << 20, "batch_bytes": 1 << 20}]


def names_in(folder: Path) -> list[str]:
    """The names that were published, in order of the ids."""
    rows = [json.loads(line) for line in published(folder).splitlines()]
    return [row["name"] for row in sorted(rows, key=lambda row: int(row["id"]))]


@pytest.mark.parametrize("cut", CUTS, ids=["blocks", "files", "batches"])
def test_bad_files_are_rejects_where_rejects_are_taken_in(tmp_path: Path, cut: dict[str, Any]) -> None:
    """One for each, from its head to its end, with file, place and reason; each byte is accounted for."""
    summary = run_app(tmp_path, FORMAT, GOOD | BAD, **cut)
    assert names_in(tmp_path / "out") == NAMES
    rejects = [json.loads(line) for line in published(tmp_path / "rejects").splitlines()]
    assert sorted(Path(each["url"]).name for each in rejects) == sorted(BAD)
    for each in rejects:
        name = Path(each["url"]).name
        content = gzip.decompress(BAD[name]) if name.endswith(".gz") else BAD[name]
        assert base64.b64decode(each["raw"]) == content[each["offset"] :]
        assert re.search(REFUSED, each["reason"])
    accounting = summary.byte_accounting()
    everything = [gzip.decompress(c) if n.endswith(".gz") else c for n, c in (GOOD | BAD).items()]
    assert accounting.pop("bytes") == sum(accounting.values()) == sum(map(len, everything))


@pytest.mark.parametrize("cut", CUTS, ids=["blocks", "files", "batches"])
def test_bad_files_are_left_out_where_the_app_says_so(tmp_path: Path, cut: dict[str, Any]) -> None:
    """Each stays listed with the reason; the others are published."""
    run_app(tmp_path, f"{FORMAT}, on_error: skip", GOOD | BAD, takes_rejects=False, **cut)
    assert names_in(tmp_path / "out") == NAMES
    left_out = window_manifest(str(tmp_path / "journal"), 1, StorageContext.default()).skipped
    assert {Path(each.url).name for each in left_out} == set(BAD)
    for name, content in BAD.items():
        parts = [each for each in left_out if Path(each.url).name == name]
        assert sum(each.end - each.start for each in parts) == len(content)
        assert all(re.search(REFUSED, each.reason) for each in parts)


@pytest.mark.parametrize("cut", CUTS, ids=["blocks", "files", "batches"])
def test_a_bad_head_fails_a_run_and_each_remedy_works(tmp_path: Path, cut: dict[str, Any]) -> None:
    """The same checkpoint completes with what the error names, and nothing is missing."""
    twice = {"a.csv": GOOD["a.csv"], "doubled.csv": BAD["doubled.csv"]}
    message = r"(?s)doubled\.csv offset 0: the header in line 1 cannot be used: column 'id' is there twice; "
    named = "format: {type: csv, columns: [id, name], skip_header: 1, header: false}"
    remedies = {
        "skip": (f"{FORMAT}, on_error: skip", False, ["1", "2"]),
        "names": (named, False, ["1", "2", "6", "8"]),
        "errors": (FORMAT, True, ["1", "2"]),
    }
    for remedy, (reader, takes_rejects, ids) in remedies.items():
        work = tmp_path / remedy
        work.mkdir()
        with pytest.raises(DagflowError, match=message + "got id, id.*on_error: skip.*skip_header: 1"):
            run_app(work, FORMAT, twice, takes_rejects=False, **cut)
        assert published(work / "out") == b""
        run_app(work, reader, takes_rejects=takes_rejects, **cut)
        assert len(published(work / "rejects").splitlines()) == takes_rejects
        assert sorted(str(json.loads(line)["id"]) for line in published(work / "out").splitlines()) == ids
