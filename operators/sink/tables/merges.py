"""What other programs have made of data files of a table, by merging them with others; for the driver alone."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

from dagflow.api.transactions import ReplayableState
from dagflow.frozen import frozen
from dagflow.storage.location import name_of
from dagflow.storage.pending import PendingFile

F = TypeVar("F")


@frozen
class Changes(Generic[F]):
    """What a version of a table did to the files of one partition, by name.

    Attributes:
        is_merge: Whether the added files have just the rows that the removed ones had.
    """

    added: Mapping[str, F]
    removed: Mapping[str, F]
    is_merge: bool


@frozen
class Merge(Generic[F]):
    """Files that others were made of, in one version or in several.

    Attributes:
        before: The files that were merged, by name.
        after: The files that the table has with their rows, and no other ones, by name.
        gone: The names of the merged files that the table cannot show again.
    """

    before: Mapping[str, F]
    after: Mapping[str, F]
    gone: frozenset[str]


def not_merged(
    files: Iterable[PendingFile], merges: Sequence[Merge[F]], replaced: Iterable[PendingFile]
) -> list[PendingFile]:
    """The files whose rows cannot leave a table that does not show them, if others are replaced with them."""
    names = {name_of(file.final_url) for file in replaced}
    kept = {name for each in merges if each.gone <= names for name in each.before}
    return [file for file in files if name_of(file.final_url) not in kept]


class MergedState(ReplayableState, Generic[F]):
    """A table at one moment, whose files other programs may have merged."""

    @abstractmethod
    def not_shown(self, files: Sequence[PendingFile]) -> tuple[list[PendingFile], list[Merge[F]]]:
        """The files among some that the table does not show, and what other programs have merged them to."""

    def missing(self, files: Sequence[PendingFile]) -> list[PendingFile]:
        return not_merged(*self.not_shown(files), files)

    def beside(self, files: Sequence[PendingFile]) -> Mapping[str, Collection[str]]:
        return {name: each.gone for each in self.not_shown(files)[1] for name in each.before}


class MergeHistory(Generic[F]):
    """What the versions of a table did, as far as it is asked for.

    Args:
        versions: The versions, the newest first, as far as the table knows them.
        can_be_shown: Whether the table can show a removed file again.
    """

    def __init__(self, versions: Iterable[Iterable[Changes[F]]], can_be_shown: Callable[[F], bool]) -> None:
        self._versions = iter(versions)
        self._can_be_shown = can_be_shown
        self._additions: dict[str, Changes[F]] = {}
        self._removals: dict[str, Changes[F]] = {}
        self._shown: set[str] = set()

    def _newest(self, name: str, index: Mapping[str, Changes[F]]) -> Changes[F] | None:
        """The newest addition or removal of a file."""
        while name not in index and (version := next(self._versions, None)) is not None:
            for changes in version:
                self._shown |= changes.added.keys() - self._removals.keys()
                for known, files in ((self._additions, changes.added), (self._removals, changes.removed)):
                    for each in files:
                        known.setdefault(each, changes)
        return index.get(name)

    def merges_of(self, names: Iterable[str]) -> list[Merge[F]]:
        """What became of files that the table does not show; one that is in no merge was changed or removed."""
        merges: list[Merge[F]] = []
        for name in names:
            if not any(name in each.before for each in merges) and (merge := self._merge_of(name)) is not None:
                merges.append(merge)
        return merges

    def _merge_of(self, name: str) -> Merge[F] | None:
        waiting, known = [self._newest(name, self._removals)], list[Changes[F]]()
        added, removed, gone = dict[str, F](), dict[str, F](), set[str]()
        while waiting:
            changes = waiting.pop()
            if changes in known:
                continue
            if changes is None or not (changes.is_merge and changes.added):
                return None
            known.append(changes)
            added |= changes.added
            removed |= changes.removed
            # All newer versions are known already.
            waiting += [self._removals[each] for each in changes.added if each not in self._shown]
            for other in (each for each, file in changes.removed.items() if not self._can_be_shown(file)):
                maker = self._newest(other, self._additions)
                if maker is None or not maker.is_merge:
                    gone.add(other)
                else:
                    waiting.append(maker)
        before = {each: file for each, file in removed.items() if each not in added}
        after = {each: file for each, file in added.items() if each in self._shown}
        return None if self._shown & before.keys() else Merge(before, after, frozenset(gone))
