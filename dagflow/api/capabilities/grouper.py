"""Files that windows hold back, so that a later window merges and publishes them as a group."""

from __future__ import annotations

from abc import abstractmethod

from dagflow.api.control import InputOperator
from dagflow.api.operator import Capability, Operator


class Grouper(InputOperator):
    """Emits tuples about the held files of another operator's windows.

    Its tuples of a window name all held files up to one of the windows before. When that window is committed, the files
    are not held any more. It keeps no state: ControlServices.held_files has its remaining work.
    """

    @property
    @abstractmethod
    def taken_through(self) -> int:
        """The newest window whose files have been emitted; read after an emission."""

    @abstractmethod
    def emit_rest(self) -> None:
        """Emit all held files, due or not: all input is processed, or the run shall stop."""


class HoldsFiles(Capability):
    """Declares a partitioned operator whose windows may hold files back, if OperatorContext.may_hold is true.

    It closes such a file with FileFacts whose `held` is set. dagflow adds two operators, its parts: the grouper, which
    runs in the driver and emits when a group is due, and the merger, which is partitioned and takes in these tuples.

    Guarantee: exactly one window takes in a held file, despite any crashes and restarts; the file exists until that
    window is published.
    """

    @abstractmethod
    def grouper(self) -> Grouper | None:
        """Called when the app is planned: a new operator with an output port `jobs`.

        None if no window shall hold anything back: then neither operator is added, and a run does not start while files
        wait that windows of an earlier app have held back.
        """

    @abstractmethod
    def merger(self) -> Operator:
        """Called when the app is planned: a new operator with an input port `jobs` of the grouper's type."""
