"""Reads the input of another checkpoint's windows once more, window by window, in place of new input."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from dagflow.api.ports import unbatched
from dagflow.api.sources import UNKNOWN_BLOCK, block_id_of
from dagflow.engine.control_graph import ControlGraph, Emission
from dagflow.engine.window_codec import WindowCodec
from dagflow.journal.journal import now_ms
from dagflow.journal.windows import WindowPlan
from dagflow.plan.physical import merger_name


class RepeatedWindows:
    """Emits the tuples of planned windows, with the partitions and the pre-scans that the app has now.

    Windows that only publish or merge what others have left are left out: the run publishes and merges by itself. So
    are those that have read refused records again, because the windows of these records read them.

    Args:
        blocks: For each window the blocks that are read, by id; empty where all are.
    """

    def __init__(
        self,
        control: ControlGraph,
        codec: WindowCodec,
        windows: Sequence[WindowPlan],
        blocks: Sequence[Collection[int]] = (),
    ) -> None:
        self._control = control
        self._codec = codec
        chosen = itertools.zip_longest(windows, blocks)
        self._left = iter([(window, ids) for window, ids in chosen if not window.retries])
        self.operator_index = control.operator_index

    def emit(self, window_id: int) -> Emission | None:
        for window, ids in self._left:
            mergers = {merger_name(name) for name in window.takes}
            inputs = {name: each for name, each in window.inputs.items() if name.rpartition(".")[0] not in mergers}
            if inputs:
                tuples = self._codec.emission_of(replace(window, inputs=inputs)).tuples
                if ids is not None:
                    tuples = {port: _chosen(items, ids) for port, items in tuples.items()}
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


def _chosen(items: Sequence[Any], ids: Collection[int]) -> list[Any]:
    """The tuples that are one of some blocks, or no block at all; those of batches by themselves."""
    return [each for each in unbatched(items) if block_id_of(each) in (UNKNOWN_BLOCK, *ids)]
