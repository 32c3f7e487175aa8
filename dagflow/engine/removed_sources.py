"""Apps that remove their source files, and advice for reading these files again."""

from __future__ import annotations

from collections.abc import Mapping

from dagflow.api.control import ControlOperator
from dagflow.api.operator import Operator
from dagflow.errors import JournalError
from dagflow.journal.state import JournalState
from dagflow.metrics.names import CLEANED


def removers_in(operators: Mapping[str, Operator]) -> list[str]:
    """The operators of an app that remove source files."""
    return [name for name, each in operators.items() if isinstance(each, ControlOperator) and each.removes_input]


def remover_of(operators: Mapping[str, Operator], state: JournalState) -> str:
    """An operator that removes source files, or has removed some and is no longer in the app; "" for none."""
    removers = removers_in(operators)
    removers += [name for name, counters in state.totals.operators.items() if CLEANED in counters.counts]
    return next(iter(removers), "")


def why_not_read_again(remover: str, checkpoint: str = "CHECKPOINT", windows: str = "--window N") -> JournalError:
    """The error that explains why windows of an app that removes source files cannot run again.

    Args:
        remover: The operator that removes them.
        checkpoint: The checkpoint, as a command takes it.
        windows: The options that name the windows.
    """
    return JournalError(
        f"operator '{remover}' has removed the source files of what is published, or archived them",
        url="journal",
        hint=f"put the source files back as they were, and let an app without operator '{remover}' read them again: "
        f"dagflow replay {checkpoint} --app APP {windows}",
    )
