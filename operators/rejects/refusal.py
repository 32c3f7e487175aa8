"""What an operator does with a record that it refuses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from dagflow.api.reject import Reject
from dagflow.errors import RecordError
from dagflow.metrics.names import REJECTED

RefusedListener = Callable[[int, int, str, bytes], None]
"""Takes down offset, length, reason and bytes of a refused record."""


def refused(reject: Reject, counters: Counter[str], log: RefusedListener | None = None) -> bytes:
    """Count a refused record, and take down where it lies.

    Args:
        reject: The record.
        counters: Where it is counted.
        log: Takes it down; None where it lies in no block.

    Returns:
        What leaves at the port `errors`.
    """
    counters[REJECTED] += 1
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
