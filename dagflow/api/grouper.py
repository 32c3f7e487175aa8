"""Files that windows hold back, so that a later window merges and publishes them as a group."""

from __future__ import annotations

from abc import abstractmethod

from dagflow.api.control import InputOperator
from dagflow.api.operator import Capability, Operator


class Grouper(InputOperator):
    """Emits what is to be made of the files that the windows of another operator hold back.

    What it emits in a window names all held files up to one of the windows before. When that window is committed, the
    files are not held any more. It keeps no state: ControlServices.held_files is what there is to do.
    """

    @property
    @abstractmethod
    def taken_through(self) -> int:
        """The newest window whose files have been emitted; asked after an emission."""

    @abstractmethod
    def emit_rest(self) -> None:
        """Emit what is held, whether it is due or not: all input is processed, or the run shall stop."""


class HoldsFiles(Capability):
    """Declares a partitioned operator whose windows may hold files back, where OperatorContext.may_hold says so.

    It closes such a file with FileFacts whose `held` is set. dagflow adds two operators: `<name>/groups`, which runs in
    the driver and emits when a group is due, and `<name>/merger`, which is partitioned and takes in what that emits.

    Guarantee: what a window has held back is taken in by exactly one window, whatever crashes and restarts come
    between; a held file is there until that window is published.
    """

    @abstractmethod
    def grouper(self) -> Grouper | None:
        """Called when the app is planned: a new operator with an output port `jobs`.

        None where no window is to hold anything back: neither operator is added then, and a run does not begin while
        files wait that windows of an app before have held back.
        """

    @abstractmethod
    def merger(self) -> Operator:
        """Called when the app is planned: a new operator with an input port `jobs` of the grouper's type."""
