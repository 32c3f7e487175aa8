"""Handles a record that an operator refuses."""

from __future__ import annotations

from collections.abc import Callable

from dagflow.api.rejects.reject import Reject
from dagflow.errors import RecordError

RefusedListener = Callable[[int, int, str, bytes], None]
"""Records offset, length, reason and bytes of a refused record."""


def refused(reject: Reject, log: RefusedListener | None = None) -> bytes:
    """Record the position of a refused record.

    Args:
        reject: The record.
        log: Records it; None where the record is in no block.

    Returns:
        The record to emit at the port `errors`.
    """
    if log is not None:
        log(reject.offset, max(reject.length, 0), reject.reason, reject.raw)
    return reject.to_bytes()


def not_taken(reject: Reject, port: str) -> RecordError:
    """The error that ends a run at a refused record that no stream takes.

    Args:
        reject: The record.
        port: The name in the message of the port that would take it.
    """
    return reject.error(hint=f"to take such records aside, connect {port}, and run again")
