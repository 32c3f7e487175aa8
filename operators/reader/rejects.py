"""What became of the bytes of a block that are in no record."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Callable

from dagflow.errors import RecordError
from dagflow.metrics.names import REJECTED, REJECTED_BYTES, SKIPPED_BYTES

Listener = Callable[[bytes], object]


class BlockAccount:
    """Counts what a format refuses and passes over, and tells of the former.

    Args:
        url: The file.
        counters: Where it is counted.
        listener: Takes in one JSON object in UTF-8 per reject; None if nobody listens, and a reject is an error.
    """

    def __init__(self, url: str, counters: Counter[str], listener: Listener | None) -> None:
        self.url = url
        self.counters = counters
        self.listener = listener

    def reject(self, offset: int, length: int, reason: str, raw: bytes) -> None:
        """Refuse a stretch of bytes that should be a record.

        Raises:
            RecordError: Nobody listens.
        """
        if self.listener is None:
            hint = "connect the reader's port errors to take such records aside"
            raise RecordError(reason, url=self.url, offset=offset, length=length, hint=hint)
        self.counters[REJECTED] += 1
        self.counters[REJECTED_BYTES] += length
        facts = {"url": self.url, "offset": offset, "length": length, "reason": reason}
        self.listener(json.dumps({**facts, "raw": base64.b64encode(raw).decode()}).encode())

    def skip(self, offset: int, length: int, reason: str) -> None:
        """Pass over bytes that are not meant to be records."""
        self.counters[SKIPPED_BYTES] += length
