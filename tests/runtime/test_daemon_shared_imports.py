"""Tests of dagflow.runtime.daemon."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from dagflow.runtime.daemon import shared_imports


@pytest.fixture
def _thawed() -> Iterator[None]:
    """What the test freezes is collected again afterwards; what was frozen before is frozen anew."""
    had_frozen = gc.get_freeze_count() > 0
    gc.unfreeze()
    yield
    gc.unfreeze()
    if had_frozen:
        gc.freeze()


@pytest.mark.usefixtures("_thawed")
def test_what_is_imported_is_frozen_before_collections_go_on() -> None:
    """No garbage is collected meanwhile, and none in what was imported afterwards."""
    with shared_imports():
        assert not gc.isenabled()
    assert gc.isenabled() and gc.get_freeze_count() > 0


@pytest.mark.usefixtures("_thawed")
def test_collections_go_on_after_a_failed_import() -> None:
    """No objects are frozen then."""
    with pytest.raises(ImportError, match="missing"), shared_imports():
        raise ImportError("missing")
    assert gc.isenabled() and gc.get_freeze_count() == 0
