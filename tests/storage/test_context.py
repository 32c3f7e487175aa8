"""How a run reaches storage."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagflow.errors import StorageError
from dagflow.storage.context import StorageContext


def test_an_empty_location_is_not_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a user works on is never listed or deleted because a location was not set."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StorageError, match="an empty location holds no objects"):
        StorageContext.default().objects("")
