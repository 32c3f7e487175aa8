"""Runs of mended apps, and repairs, that die before each change of the disk."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
from collections import Counter
from pathlib import Path

import pytest

from dagflow.engine.run import run
from dagflow.engine.window_repair import repair
from dagflow.errors import DagflowError, LostOutputError
from dagflow.runtime.local import InlineRuntime
from dagflow.storage.backends.local import LocalPendingFiles
from dagflow.storage.context import StorageContext
from dagflow.storage.pending import Durability, PendingFile
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


def lost_file(source: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run an app until it dies when it has published a file of its second window, and remove another one."""
    publish = LocalPendingFiles.publish
    count = itertools.count()

    def some(self: LocalPendingFiles, pending: PendingFile, durability: Durability = "process") -> None:
        if next(count) == 3:
            os.unlink(pending.pending_url)
            raise InjectedCrash("died")
        publish(self, pending, durability)

    with monkeypatch.context() as patch, pytest.raises(InjectedCrash, match="died"):
        patch.setattr(LocalPendingFiles, "publish", some)
        run(files_app(source, root), runtime=InlineRuntime)


@pytest.mark.nightly
def test_a_crash_of_a_repair_and_the_run_behind_it_is_mended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At any disk change: where the window still cannot be published it is repaired again; all is there once.

    Every other time, the app that goes on names its files by partition, and no longer by block.
    """
    source = tmp_path / "source"
    source.mkdir()
    (source / "a").write_bytes(LINES)
    wanted = Counter(line for line in LINES.splitlines() if not line.startswith(b"."))
    refusals = 0
    for at in range(1, 500):
        root, name = tmp_path / str(at), ("block", "part")[at % 2]
        lost_file(source, root, monkeypatch)
        with crashing_disk(str(root), at) as faults, contextlib.suppress(InjectedCrash):
            repair(str(root / "journal"), 2, StorageContext.default())
            run(files_app(source, root, name=name), runtime=InlineRuntime)
        for _ in range(2):
            with contextlib.suppress(LostOutputError):
                run(files_app(source, root, name=name), runtime=InlineRuntime)
                break
            refusals += 1
            repair(str(root / "journal"), 2, StorageContext.default())
        assert records_of(published(root / "out")) == wanted
        assert leftovers(root / "out") == []
        shutil.rmtree(root)
        if not faults.has_struck:
            assert refusals > 3
            return
    pytest.fail("the run never came through")


@pytest.mark.nightly
def test_a_crash_of_a_mended_app_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """Whether the windows are planned again or not yet, the next run of the mended app goes on."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "a").write_bytes(LINES)
    wanted = [line for line in LINES.splitlines() if not line.startswith(b".")]
    for at in range(1, 500):
        root = tmp_path / str(at)
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
