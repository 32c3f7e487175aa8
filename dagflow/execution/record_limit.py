"""Ends the reading of a run after a number of records, for a try-out."""

from __future__ import annotations

import functools
from collections.abc import Iterable

from dagflow.execution.chain import Chain
from dagflow.plan.physical import PortRef


class RecordLimit:
    """How many records ports may still emit; shared by all tasks, which run in one process one after the other."""

    def __init__(self, records: int, ports: Iterable[PortRef]) -> None:
        self._left = dict.fromkeys(ports, records)

    @property
    def is_reached(self) -> bool:
        """Whether every record that may be read was read."""
        return not any(self._left.values())

    def attach(self, chain: Chain) -> bool:
        """Limit the ports of a chain; returns whether the chain has one of them."""
        ports = self._left.keys() & chain.buffers.keys()
        for port in ports:
            chain.buffers[port].admit = functools.partial(self._admit, port)
        return bool(ports)

    def is_reached_in(self, chain: Chain) -> bool:
        """Whether the ports of a chain may emit no more."""
        return not any(self._left[port] for port in self._left.keys() & chain.buffers.keys())

    def _admit(self, port: PortRef, count: int) -> int:
        admitted = min(count, self._left[port])
        self._left[port] -= admitted
        return admitted
