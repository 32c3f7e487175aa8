"""The error for a task whose Python process has died."""

from __future__ import annotations

from dagflow.errors import OperatorError
from dagflow.runtime.progress_board import LastReport


def death_of(last: LastReport, times: int, stack_is: str, fatal: str = "", trace: str = "") -> OperatorError:
    """The error for a task that lost its process in each attempt; `fatal` and `trace` are faulthandler's words."""
    work = last.work
    how = f"was killed {times} times, or called os._exit()"
    hint = "the system kills a process that takes more memory than there is, and `dmesg` says so"
    if last.is_timed_out:
        how, hint = f"was ended {times} times because it was stalled", "task_timeout_millis says after how long"
    elif fatal:
        how, hint = f"died {times} times: {fatal}", f"native code did this; {stack_is}"
    return OperatorError(
        f"its Python process {how}{f', in {work.what}' if work.what else ''}",
        operator=work.operator or f"stage {work.stage}",
        window_id=work.window_id,
        partition=work.partition,
        trace=trace,
        hint=hint,
    )
