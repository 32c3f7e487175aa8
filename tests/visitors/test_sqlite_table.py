"""The transactional target of a visitor keeps the laws of all targets."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dagflow.api.transactions import Target
from dagflow.storage.pending import FileFacts, PendingFile
from dagflow.testing.target_contract import TargetContract
from tests.visitors.sqlite_table import SqliteTarget


class TestSqliteTarget(TargetContract):
    """Two records for each window."""

    def target(self, root: Path) -> Target:
        """A database in the directory."""
        return SqliteTarget(str(root / "db"))

    def files(self, root: Path, window_id: int) -> Sequence[PendingFile]:
        """One file with both records."""
        path = root / os.urandom(8).hex()
        path.write_bytes(b"".join(record + b"\n" for record in self.rows_of([window_id])))
        return [PendingFile(str(path), "", path.stat().st_size, 2, facts=FileFacts("orders"))]

    def rows(self, root: Path) -> list[Any]:
        """All records."""
        with contextlib.closing(sqlite3.connect(root / "db")) as connection:
            return sorted(record for (record,) in connection.execute("SELECT record FROM records"))

    def rows_of(self, window_ids: Sequence[int]) -> list[Any]:
        """A lower and an upper one."""
        return sorted(b"%s %d" % (word, window_id) for window_id in window_ids for word in (b"lower", b"upper"))
