"""What an operator does with a record that it refuses."""

from __future__ import annotations

from collections.abc import Callable

from dagflow.api.reject import Reject
from dagflow.errors import RecordError

RefusedListener = Callable[[int, int, str, bytes], None]
"""Takes down offset, length, reason and bytes of a refused record."""


def refused(reject: Reject, log: RefusedListener | None = None) -> bytes:
    """Take down where a refused record lies.

    Args:
        reject: The record.
        log: Takes it down; None where it lies in no block.

    Returns:
        What leaves at the port `errors`.
    """
    if log is not None:
        log(reject.offset, max(reject.length, 0), reject.reason, reject.raw)
    return reject.to_bytes()


def not_taken(reject: Reject, port: str) -> RecordError:
    """The error that ends a run at a refused record that no stream takes.

    Args:
        reject: The record.
        port: What the message calls the port that would take it.
    """
    return reject.error(hint=f"to take such records aside, connect {port}, and run again")
