"""Replaces an output port's emitter while a per-record method is called: its emit is a list's append."""

from __future__ import annotations

from typing import Any

from dagflow.api.ports import Emitter, EmitterBase


class RecordEmitter(list[Any], EmitterBase):
    """Gathers what a per-record method emits, in order; for the method it is an Emitter.

    Python calls a built-in method found in a class faster than a function found in an attribute: a small per-record
    method takes a sixth less time.

    Args:
        emitter: The replaced emitter.
    """

    __slots__ = ("port", "sinks")

    emit = list.append

    def __init__(self, emitter: Emitter[Any]) -> None:
        super().__init__()
        self.port = emitter.port
        self.sinks = emitter.sinks

    def __bool__(self) -> bool:
        """True like every emitter, also while nothing is gathered."""
        return True
