"""Objects of the checkpoint beside the journal: large parts of operators' states, and copies of side inputs."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterable, Mapping

from dagflow.api.capabilities import SideInput, read_consistently
from dagflow.api.context import SideData
from dagflow.api.operator import Operator
from dagflow.errors import START_OVER, JournalError, MissingError
from dagflow.execution.failures import located
from dagflow.journal.windows import SideVersion, WindowPlan
from dagflow.storage.context import StorageContext
from dagflow.storage.fingerprint import updated_crc32
from dagflow.storage.objects import ObjectStore

SEGMENTS = "segments/"

INLINE_BYTES = 2048
"""A smaller segment costs more as an object of its own than in every intent until it is merged."""

_NAME_CHARACTERS = 200  # of an operator in a segment's name: file systems take 255, and a nonce makes it unique

KEPT_WINDOWS = 8
"""A segment that no state names any more is removed this many windows later, when no driver can still need it."""


class SegmentStore:
    def __init__(self, store: ObjectStore, epoch: int) -> None:
        self._store = store
        self._epoch = epoch
        self._dropped: list[tuple[int, str]] = []

    def create(self, window_id: int, operator: str, partition: int, data: bytes) -> str:
        """Make a segment durable, before the intent of its window names it.

        Returns:
            The name of its object; "" for a segment that belongs into the intent itself.
        """
        if len(data) <= INLINE_BYTES:
            return ""
        # A slash, as in the names of operators in modules, would make directories, whose objects no listing shows.
        short = operator.replace("/", ".")[-_NAME_CHARACTERS:]
        nonce, checksum = os.urandom(8).hex(), updated_crc32(data, 0)
        name = f"{self._epoch:08d}-{window_id}-{short}-{partition}-{nonce}-{checksum:08x}"
        self._store.create(SEGMENTS + name, data)
        return name

    def read(self, name: str) -> bytes:
        try:
            data = self._store.read(SEGMENTS + name)
        except MissingError as error:
            raise self._refused(name, "is gone") from error
        # The name is in the journal, so the checksum also reveals another segment under this name.
        if f"{updated_crc32(data, 0):08x}" != name.rpartition("-")[2]:
            raise self._refused(name, "was damaged after it was written")
        return data

    def _refused(self, name: str, what: str) -> JournalError:
        return JournalError(
            f"the state of an operator {what}: {SEGMENTS}{name}",
            url=self._store.url,
            hint=f"put the checkpoint back as it was, with its segments, or {START_OVER}",
        )

    def drop(self, window_id: int, names: Iterable[str]) -> None:
        """Mark segments that no state names from a window on."""
        self._dropped += [(window_id, name) for name in sorted(names)]

    def committed(self, window_id: int) -> None:
        """Remove segments that no state has named for a while; called when a window's intent is durable."""
        due = {name for dropped_at, name in self._dropped if dropped_at + KEPT_WINDOWS <= window_id}
        if due:
            self._store.delete(SEGMENTS + name for name in sorted(due))
            self._dropped = [entry for entry in self._dropped if entry[1] not in due]

    def sweep(self, named: Collection[str]) -> None:
        """Remove segments of earlier drivers that no state names."""
        present = {name.removeprefix(SEGMENTS) for name in self._store.list(SEGMENTS)}
        # Records that this driver has not seen may name a later driver's segments; other objects are not dagflow's.
        epochs = {name: name.partition("-")[0] for name in present - set(named)}
        stale = [name for name, epoch in epochs.items() if epoch.isdecimal() and int(epoch) < self._epoch]
        self._store.delete(SEGMENTS + name for name in sorted(stale))


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
