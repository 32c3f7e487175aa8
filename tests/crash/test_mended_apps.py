"""Runs of a mended app that die before each change of the disk."""

from __future__ import annotations

import contextlib
import shutil
from collections import Counter
from pathlib import Path

import pytest

from dagflow.engine.run import run
from dagflow.errors import DagflowError
from dagflow.runtime.inline import InlineRuntime
from dagflow.testing.faults import InjectedCrash, crashing_disk
from operators.transform.record_filter import RecordFilter
from tests.crash.apps import files_app, leftovers, published, records_of
from tests.engine.test_driver import crashing

LINES = b"".join(b"%sline %d\n" % (b"." if n % 3 == 0 else b"", n) for n in range(25))


def failed(source: Path, root: Path) -> dict[str, bytes]:
    """Run an app that fails in its second window, when more are planned; return what it published."""
    with pytest.raises(DagflowError, match="lights"):
        run(files_app(source, root), runtime=crashing(2))
    return published(root / "out")


def test_a_crash_of_a_mended_app_loses_and_doubles_nothing(quick_disk: Path) -> None:
    """Whether the windows are planned again or not yet, the next run of the mended app goes on."""
    source = quick_disk / "source"
    source.mkdir()
    (source / "a").write_bytes(LINES)
    wanted = [line for line in LINES.splitlines() if not line.startswith(b".")]
    for at in range(1, 500):
        root = quick_disk / str(at)
        done = failed(source, root)
        mended = files_app(source, root, RecordFilter(drop={"suffix": "4"}))
        with crashing_disk(str(root), at) as faults, contextlib.suppress(InjectedCrash):
            run(mended, runtime=InlineRuntime)
        assert published(root / "out").items() >= done.items()
        run(files_app(source, root, RecordFilter(drop={"suffix": "4"})), runtime=InlineRuntime)
        by_old_app = [line for line in records_of(done).elements() if line.endswith(b"4")]
        assert records_of(published(root / "out")) == Counter(
            [*by_old_app, *(line for line in wanted if not line.endswith(b"4"))]
        )
        assert leftovers(root / "out") == []
        shutil.rmtree(root)
        if not faults.has_struck:
            assert by_old_app
            return
    pytest.fail("the run never came through")
