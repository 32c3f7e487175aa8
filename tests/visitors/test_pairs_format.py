"""The record format of a visitor keeps the laws of all formats."""

from __future__ import annotations

from typing import Any

from operators.testing import FormatContract, Records, Rejects


class TestPairs(FormatContract):
    """Reads every two bytes as a record."""

    formats = ("tests.visitors.pairs_format.Pairs",)
    pieces = (b"a", b"b")

    def reference(self, content: bytes, format: Any) -> tuple[Records, Rejects]:
        """Cut the content into pairs."""
        return [(at, content[at : at + 2]) for at in range(0, len(content), 2)], []
