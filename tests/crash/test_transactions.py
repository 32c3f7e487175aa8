"""Apps that write by transactions, and die before each change of the disk and each transaction."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

import pytest

from dagflow.testing.faults import Faults, InjectedCrash, crashing_disk
from tests.engine.sample_app import words
from tests.engine.table_app import TEXTS, app, rows, with_faults, work

MOST_CALLS = 500


def test_every_record_is_there_once_wherever_a_run_dies(monkeypatch: pytest.MonkeyPatch, quick_disk: Path) -> None:
    """Before any change of the disk or any transaction: a run of before, or two of them, and one that comes through."""
    for at in range(1, MOST_CALLS):
        root = quick_disk / str(at)
        for step in (0, 7):
            with crashing_disk(str(root), at + step) as faults, contextlib.suppress(InjectedCrash):
                with_faults(monkeypatch, faults)
                work(app(root, TEXTS))
            seen = rows(root / "db") if (root / "db").exists() else []
            assert len(set(seen)) == len(seen), f"doubled at {at}"
            if not step:
                has_died = faults.has_struck
        with_faults(monkeypatch, Faults())
        work(app(root, TEXTS))
        assert rows(root / "db") == words(TEXTS), f"died at {at}"
        assert not list(root.rglob(".dagflow-pending/*"))
        shutil.rmtree(root)
        if not has_died:
            assert at > 50
            return
    pytest.fail("the run never came through")
