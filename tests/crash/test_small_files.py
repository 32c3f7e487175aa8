"""Apps that merge small files and remove the source files, and die before each change of the disk."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

from dagflow.engine.run import run
from dagflow.runtime.local import InlineRuntime
from dagflow.storage.concatenated import INDEX_SUFFIX
from dagflow.testing.faults import InjectedCrash, crashing_disk
from tests.crash.apps import leftovers
from tests.nightly import every
from tests.operators.reader.test_small_file_batch_reader import written
from tests.operators.sink.test_merger import app_in, source_files_of

MOST_CALLS = 1000
CONTENTS = {f"{number:03}": bytes([65 + number]) * (number % 5) for number in range(9)}


def merges(root: Path) -> None:
    """Run an app that merges small files in windows of three and removes them."""
    app = app_in(root, splitter="blocks_threshold: 3, batch_bytes: 80", merger="max_bytes: 8", cleaner="action: remove")
    run(app, runtime=InlineRuntime)


def grown(root: Path) -> Path:
    """Make a directory with the source files."""
    (root / "in").mkdir(parents=True)
    written(root / "in", list(CONTENTS.values()))
    return root


def published(root: Path) -> dict[str, bytes]:
    """Return the visible merged files, without their indexes."""
    found = (root / "out").glob("merged-*")
    return {path.name: path.read_bytes() for path in found if not path.name.endswith(INDEX_SUFFIX)}


@every(40)
def test_a_crash_at_any_disk_change_loses_and_repeats_no_source_file(tmp_path: Path, step: int) -> None:
    """At each moment each source file exists or is merged; after a restart all are merged once."""
    merges(grown(tmp_path / "undisturbed"))
    expected = published(tmp_path / "undisturbed")
    assert source_files_of(tmp_path / "undisturbed") == CONTENTS
    for at in range(1, MOST_CALLS, step):
        root = grown(tmp_path / str(at))
        with crashing_disk(str(root), at) as faults, contextlib.suppress(InjectedCrash):
            merges(root)
        # What has a hidden name is about to be removed, and merged.
        there = {path.name: path.read_bytes() for path in (root / "in").glob("[!.]*")}
        found = source_files_of(root) if (root / "out").exists() else {}
        assert {**there, **found} == CONTENTS
        assert published(root).items() <= expected.items()
        merges(root)
        assert (published(root), source_files_of(root), list((root / "in").iterdir())) == (expected, CONTENTS, [])
        assert leftovers(root / "out") == []
        shutil.rmtree(root)
        if not faults.has_struck:
            assert at > 50
            return
    raise AssertionError("the run never came through")
