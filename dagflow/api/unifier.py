"""Merging what the partitions of an operator emit, in one place, at the end of each window."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from dagflow.api.operator import Operator


@runtime_checkable
class Unified(Protocol):
    """An operator whose partitions see only their share of a window, and whose results must be merged.

    dagflow puts a unifier behind the port: an operator in one partition, which takes in what all partitions
    emit in a window, and emits in its end_window. The app's streams begin at the unifier.

    Source:
        The role and its name follow com.datatorrent.api.Operator.Unifier of Apache Apex.
    """

    def unifier(self, port: str) -> Operator | None:
        """Called in the driver when the app is planned, for each output port that a stream leaves.

        Args:
            port: The output port's name.

        Returns:
            A new operator with an input port `input` and an output port `output`, both of the port's type;
            None where what the port emits needs no merging.
        """
        ...
