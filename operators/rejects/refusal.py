"""Handles a record that an operator refuses."""

from __future__ import annotations

from dagflow.api.rejects.reject import Reject
from dagflow.errors import RecordError


def not_taken(reject: Reject, port: str) -> RecordError:
    """The error that ends a run at a refused record that no stream takes.

    Args:
        reject: The record.
        port: The name in the message of the port that would take it.
    """
    return reject.error(hint=f"to take such records aside, connect {port}, and run again")
