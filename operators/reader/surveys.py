"""First passes over files whose blocks cannot be read apart from each other: what each block is entered in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from dagflow.storage.roots import expanded, shortened
from operators.metadata import BlockMetadata, FileVersion
from operators.reader.formats.base import ReaderContext


class Surveys:
    """Folds what a format found of each block into the state that the next block is entered in.

    Args:
        format: The format.
    """

    def __init__(self, format: ReaderContext) -> None:
        self._format = format
        self._exit_states: dict[tuple[str, FileVersion], int] = {}

    def is_needed(self, item: Any) -> bool:
        """Whether the format must look at a tuple before its file can be read; a pack holds whole files."""
        return isinstance(item, BlockMetadata) and self._format.needs_survey(item)

    def resolve(self, items: Sequence[Any], findings: Sequence[Any]) -> list[Any]:
        """The tuples with their entry states.

        Args:
            items: In the order of emission.
            findings: For each what the format found, or None where it did not look.
        """
        return [self._entered(item, finding) for item, finding in zip(items, findings, strict=True)]

    def _entered(self, item: Any, finding: Any) -> Any:
        if not isinstance(item, BlockMetadata):
            return item
        file = (item.url, item.version)
        state = self._exit_states.pop(file, 0) if item.start else 0
        if finding is not None:
            self._exit_states[file] = self._format.exit_state(state, finding)
        return replace(item, entry_state=state) if state != item.entry_state else item

    @property
    def state(self) -> Any:
        """The states of the files whose next blocks come in a later window; None if there are none."""
        return {(shortened(url), version): state for (url, version), state in self._exit_states.items()} or None

    @state.setter
    def state(self, state: Any) -> None:
        self._exit_states = {(expanded(url), version): left for (url, version), left in state.items()}
