"""Files that windows have held back, until the window that takes them is published."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from dagflow.journal.windows import WindowIntent, WindowPlan
from dagflow.storage.pending import HeldFile, PendingFile


@dataclass(slots=True)
class HeldFiles:
    """Files that windows have held back.

    Attributes:
        waiting: Files that no committed window has taken, oldest first, by operator.
        taken: Files that a committed, not yet published window has taken, by that window.
        withdrawn: Files of a window whose replay is decided, which publishes its rows at once, by the window.
    """

    waiting: dict[str, list[HeldFile]] = field(default_factory=dict)
    taken: dict[int, dict[str, list[HeldFile]]] = field(default_factory=dict)
    withdrawn: dict[int, dict[str, list[HeldFile]]] = field(default_factory=dict)

    def commit(self, plan: WindowPlan, intent: WindowIntent, since_window: int = 0) -> None:
        """Remove what a window takes, and add what it holds back; see HeldFile for since_window."""
        window_id = plan.window_id
        for operator, newest in plan.takes.items():
            waiting = self.waiting.pop(operator, [])
            taken = [held for held in waiting if held.window_id <= newest]
            self.taken.setdefault(window_id, {})[operator] = taken
            self._keep(operator, waiting[len(taken) :])
        for file in intent.held:
            operator = "" if file.facts is None else file.facts.operator
            self.waiting.setdefault(operator, []).append(HeldFile(window_id, intent.committed_ms, file, since_window))

    def publish(self, window_id: int) -> None:
        """Drop the files that a window has taken: it is published."""
        self.taken.pop(window_id, None)

    def take_back(self, window_id: int) -> None:
        """Undo the commit of the newest committed window."""
        for operator, waiting in list(self.waiting.items()):
            self._keep(operator, [held for held in waiting if held.window_id != window_id])
        for operator, taken in self.taken.pop(window_id, {}).items():
            self._keep(operator, [*taken, *self.waiting.get(operator, [])])

    def withdraw(self, window_id: int) -> None:
        """Stop the files of a window from waiting: its new files replace them."""
        for operator, waiting in list(self.waiting.items()):
            if own := [held for held in waiting if held.window_id == window_id]:
                self.withdrawn.setdefault(window_id, {})[operator] = own
                self._keep(operator, [held for held in waiting if held.window_id != window_id])

    def give_back(self, window_id: int) -> None:
        """Let the files of a window wait again."""
        for operator, own in self.withdrawn.pop(window_id, {}).items():
            waiting = [*own, *self.waiting.get(operator, [])]
            self._keep(operator, sorted(waiting, key=lambda held: held.window_id))

    def _keep(self, operator: str, files: list[HeldFile]) -> None:
        if files:
            self.waiting[operator] = files
        else:
            self.waiting.pop(operator, None)

    def free(self, operator: str, planned: Iterable[WindowPlan]) -> list[HeldFile]:
        """The files of an operator that no planned window takes, oldest first."""
        newest = max((plan.takes.get(operator, 0) for plan in planned), default=0)
        return [held for held in self.waiting.get(operator, []) if held.window_id > newest]

    def taken_by(self, window_id: int) -> list[PendingFile]:
        """The files that a committed, not yet published window has taken."""
        return [held.file for files in self.taken.get(window_id, {}).values() for held in files]

    def files(self, but: Collection[int] = ()) -> Iterator[PendingFile]:
        """All files, except those of some windows."""
        for by_operator in (self.waiting, *self.taken.values(), *self.withdrawn.values()):
            for files in by_operator.values():
                yield from (held.file for held in files if held.window_id not in but)

    def published_through(self, newest: int) -> int:
        """The newest window such that neither it nor any window before it has held files.

        Args:
            newest: The newest window that is published except for its held files.
        """
        held = (each for files in self.waiting.values() for each in files)
        return min([newest, *((each.since_window or each.window_id) - 1 for each in held)])
