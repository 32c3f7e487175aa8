"""Reads the input of another checkpoint's windows once more, window by window, in place of new input."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from dagflow.engine.control_graph import ControlGraph, Emission
from dagflow.engine.window_codec import WindowCodec
from dagflow.journal.journal import now_ms
from dagflow.journal.windows import WindowPlan
from dagflow.plan.physical import merger_name


class RepeatedWindows:
    """Emits the tuples of planned windows, with the partitions and the pre-scans that the app has now.

    Windows that only publish or merge what others have left are left out: the run publishes and merges by itself. So
    are those that have read refused records again, because the windows of these records read them.
    """

    def __init__(self, control: ControlGraph, codec: WindowCodec, windows: Sequence[WindowPlan]) -> None:
        self._control = control
        self._codec = codec
        self._left: Iterator[WindowPlan] = iter([window for window in windows if not window.retries])
        self.operator_index = control.operator_index

    def emit(self, window_id: int) -> Emission | None:
        for window in self._left:
            mergers = {merger_name(name) for name in window.takes}
            inputs = {name: each for name, each in window.inputs.items() if name.rpartition(".")[0] not in mergers}
            if inputs:
                tuples = self._codec.emission_of(replace(window, inputs=inputs)).tuples
                return Emission(WindowPlan(window_id, emitted_ms=now_ms(), keeps_states=True), tuples, is_complete=True)
        return None

    def emit_rest(self, window_id: int) -> Emission | None:
        """The files that windows have held back; see ControlGraph."""
        return self._control.emit_rest(window_id)

    def unemitted_bytes(self) -> dict[str, int]:
        """Empty: the source does not count."""
        return {}

    def at_work(self) -> str:
        return ""

    def scan_now(self) -> None:
        """Do nothing: there is no input to scan."""
