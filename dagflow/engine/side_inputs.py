"""Side inputs of a run: copies in the checkpoint, which the plans of windows name."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from dagflow.api.capabilities import SideInput, read_consistently
from dagflow.api.context import SideData
from dagflow.api.operator import Operator
from dagflow.execution.failures import located
from dagflow.journal.windows import SideVersion, WindowPlan
from dagflow.storage.context import StorageContext
from dagflow.storage.objects import ObjectStore

DIRECTORY = "side_inputs/"


class SideInputs:
    """The side inputs of one driver.

    Guarantee: a copy exists before a plan names it, and as long as a planned window does. A driver names only its own
    copies in new plans, so that no other driver, however late, removes a copy that a window needs.
    """

    def __init__(
        self, operators: Mapping[str, Operator], store: ObjectStore, storage: StorageContext, epoch: int
    ) -> None:
        self._operators = {name: each for name, each in operators.items() if isinstance(each, SideInput)}
        self._store = store
        self._storage = storage
        self._epoch = epoch
        self._current: dict[str, SideVersion] = {}
        self._own: set[str] = set()

    def current(self) -> dict[str, SideVersion]:
        """The versions of side inputs for a window that is planned now, by operator; their copies are durable."""
        for name, operator in self._operators.items():
            with located(name, operator.side_input_version):
                version = operator.side_input_version(self._storage)
            known = self._current.get(name)
            if known is None or known.version != version:
                self._current[name] = self._copied(name, operator, version)
        return dict(self._current)

    def _copied(self, name: str, operator: SideInput, version: str) -> SideVersion:
        with located(name, operator.read_side_input):
            version, data = read_consistently(operator, self._storage, version)
        digest = hashlib.blake2b(data, digest_size=16).hexdigest()
        copy = f"{DIRECTORY}{self._epoch:08d}-{digest}"
        if copy not in self._own:
            self._store.create(copy, data)
            self._own.add(copy)
        return SideVersion(version, copy)

    def data_of(self, versions: Mapping[str, SideVersion]) -> dict[str, SideData]:
        return {name: SideData(each.copy, each.version, self._store) for name, each in versions.items()}

    def committed(self, planned: Iterable[WindowPlan]) -> None:
        """Remove copies of this driver that no window needs any more."""
        current = {each.copy for each in self._current.values()}
        if len(self._own) > len(current):
            self._remove(self._own, _named(planned) | current)

    def sweep(self, planned: Iterable[WindowPlan]) -> None:
        """Remove the copies of this driver, and of earlier ones, that no planned window needs."""
        self._current = {}
        present = set(self._store.list(DIRECTORY))
        epochs = {name: name.removeprefix(DIRECTORY).partition("-")[0] for name in present}
        known = {name for name, epoch in epochs.items() if epoch.isdecimal() and int(epoch) <= self._epoch}
        self._remove(known, _named(planned))

    def _remove(self, names: Iterable[str], needed: Iterable[str]) -> None:
        if stale := sorted(set(names) - set(needed)):
            self._store.delete(stale)
            self._own.difference_update(stale)


def _named(planned: Iterable[WindowPlan]) -> set[str]:
    return {each.copy for plan in planned for each in plan.side_inputs.values()}
