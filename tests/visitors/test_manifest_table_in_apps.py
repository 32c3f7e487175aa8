"""What the kind of table of a visitor does not do is refused before it is tried."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagflow.storage.context import StorageContext
from operators.lookup.kinds import lookup_source
from operators.sink.tables import TABLE_KINDS
from tests.visitors.manifest_table import ManifestTable


def test_windows_of_a_kind_that_replaces_no_files_are_not_replayed(tmp_path: Path) -> None:
    """A replay is refused before it is decided; once it were, no run could go on."""
    assert "cannot be taken out" in ManifestTable(str(tmp_path), ()).target(StorageContext.default()).why_not_replayed


@pytest.mark.parametrize("kind", ["sqlite", "manifests"])
def test_a_kind_that_is_not_read_is_refused(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Before anything runs, whether there is no such kind, or its tables have no reader."""
    monkeypatch.setitem(TABLE_KINDS, "manifest:PATH", "tests.visitors.manifest_table.ManifestTable")
    with pytest.raises(ValueError, match=r"table takes csv:PATH, .* got"):
        lookup_source(f"{kind}:out/table#x", {}, {})
