"""What windows have recorded of one file: its versions, their ranges and rejects, and who has read a byte."""

from __future__ import annotations

import bisect
import time
from collections.abc import Iterable, Iterator
from dataclasses import field
from typing import Any

import numpy as np

from dagflow.api.context import VersionKey, version_key_of
from dagflow.api.sources import is_source_range
from dagflow.frozen import mutable
from dagflow.journal.reader import all_windows, find_window, newest_windows
from dagflow.journal.state import JournalState
from dagflow.journal.windows import Window
from dagflow.report.input_ranges import PLANNED, InputRange, VersionRanges
from dagflow.report.manifest import TrackedFile, WindowManifest, inputs_of, manifest_of
from dagflow.report.open_rejects import WindowRejects, rejects_of
from dagflow.storage.base import ObjectStore
from dagflow.storage.location import redacted
from dagflow.web.checkpoints import reading_deadline

SEARCH_S = 5.0
"""About how many seconds one request searches a file for a line, or windows for the file's first byte."""

_NEAR = 8
"""How many windows, from the one of that moment on, are searched for the first reader of the file."""


@mutable
class KnownVersion:
    """What the windows that were looked at have recorded of one version of a file.

    `retried` holds refused records that a later window has taken over, with their bytes and the window that had refused
    them. They are not among the rejects.
    """

    tracked: TrackedFile
    times: dict[str, int] = field(default_factory=dict)
    ranges: list[dict[str, Any]] = field(default_factory=list)
    rejects: list[dict[str, Any]] = field(default_factory=list)
    rejected: int = 0
    retried: list[tuple[range, int]] = field(default_factory=list)

    def note(self, manifest: WindowManifest, part: InputRange, outputs: Iterable[str] = ()) -> None:
        """Add a window that has read, or is to read, a range of the version."""
        self.tracked.add(manifest, part, outputs)
        times = manifest.times
        first = {"discovered_ms": part.discovered_ms, "planned_ms": times["planned_ms"]}
        for name, moment in first.items():
            self.times[name] = min(filter(None, (self.times.get(name, 0), moment)), default=0)
        for name, moment in {"read_ms": times["finished_ms"], "published_ms": times["published_ms"]}.items():
            self.times[name] = max(self.times.get(name, 0), moment)

    def reject_at(self, offset: int) -> dict[str, Any] | None:
        """The refused record that has a byte of the content; None for none, or one that a later window took over."""
        return next((each for each in self.rejects if offset in _bytes_of(each)), None)

    def readers_of(self, offset: int, manifests: dict[int, WindowManifest]) -> Iterator[tuple[dict[str, Any], bool]]:
        """The ranges that windows have read, each with whether it was read again for a record with a byte.

        A window that took over refused records has read only these records: other ranges of such windows are left out.
        """
        refused_by = {window_id for taken, window_id in self.retried if offset in taken}
        for place in self.ranges:
            retries = manifests[place["window"]].retries
            if not retries or refused_by.intersection(retries):
                yield place, bool(retries)

    def to_json(self) -> dict[str, Any]:
        """The fields that every list of versions shows."""
        part = self.tracked.part
        return {
            "url": redacted(part.url),
            "size_bytes": part.size_bytes,
            "mtime_ms": part.mtime_ns // 1_000_000,
            "etag": part.etag,
            "state": self.tracked.ranges.state,
            "windows": sorted(self.tracked.windows),
            "times": self.times,
            "rejected": self.rejected,
        }


class FileHistory:
    """What windows have recorded of a file, as far as they were looked at, the newest first.

    Args:
        before: Windows below this id are looked at; 0 for all.

    Attributes:
        manifests: The windows that have read it, by id.
        looked_at: The last window that was looked at.
    """

    def __init__(self, store: ObjectStore, state: JournalState, url: str, before: int = 0) -> None:
        self.store, self.state, self._url = store, state, url
        self.manifests: dict[int, WindowManifest] = {}
        self.looked_at = before or state.last_planned + 1
        self._versions: dict[VersionKey, KnownVersion] = {}
        self._look(before)

    @property
    def is_whole(self) -> bool:
        """Whether all windows that are kept were looked at."""
        return self.looked_at <= self.state.forgotten + 1

    @property
    def versions(self) -> list[KnownVersion]:
        """The versions, the one that was read last first; those of which only refused records were read come last."""

        def last_read(version: KnownVersion) -> int:
            return max((each for each in version.tracked.windows if not self.manifests[each].retries), default=0)

        return sorted(self._versions.values(), key=last_read, reverse=True)

    def look_at(self, taken_ms: int) -> None:
        """Look at the windows that read the file version that its splitter took at a moment; 0 for none."""
        reader = last_reader(self.store, self.state, self._url, taken_ms)
        self._look(reader + 1 if 0 < reader < self.looked_at else self.looked_at)

    def _look(self, before: int) -> None:
        """If the file is found, but no version from its first byte on is known, the search continues for longer."""
        soon, late = reading_deadline(), time.monotonic() + SEARCH_S
        for window in newest_windows(self.store, self.state, before):
            self.looked_at = window.plan.window_id
            # A manifest takes many times as long as a look at the plan, and few windows have read the file.
            if has_read(window, self._url):
                self._add(window)
            ranges = [place for version in self._versions.values() for place in version.ranges]
            is_begun = ranges and not any(place["start"] == 0 for place in ranges)
            if time.monotonic() > (late if is_begun else soon):
                break

    def _add(self, window: Window) -> None:
        manifest = self.manifests[window.plan.window_id] = manifest_of(window)
        outputs = [(output.url, set(manifest.positions_of(output))) for output in manifest.outputs]
        for index, part in enumerate(manifest.inputs):
            if redacted(part.url) != self._url:
                continue
            version = self._versions.setdefault(part.version, KnownVersion(TrackedFile(part)))
            version.note(manifest, part, (name for name, positions in outputs if index in positions))
            place = {"start": part.start, "end": part.end, "window": manifest.window_id}
            version.ranges.append({**place, "state": state_of(manifest, part)})
        for rejects, version_by_block in refused_in(window):
            is_taken_over, records = rejects.is_taken_over(self.state.retried), rejects.records
            own_ids = [block_id for block_id, version in version_by_block.items() if version in self._versions]
            chosen = records.where(np.isin(records.numbers("block_id"), own_ids))
            for row in chosen.table.select(["block_id", "offset", "length", "reason", "detail"]).to_pylist():
                refused = self._versions[version_by_block[row.pop("block_id")]]
                row["reason"] = row.pop("detail") or row["reason"]
                if is_taken_over:
                    refused.retried.append((_bytes_of(row), manifest.window_id))
                else:
                    refused.rejects.append({**row, "window": manifest.window_id, "operator": rejects.operator})
                    refused.rejected += 1


def state_of(manifest: WindowManifest, part: InputRange) -> str:
    """The state of a range by one window: read, planned, left out, or left out in part."""
    ranges = VersionRanges()
    ranges.add(part, manifest.skipped_by_url.get(part.url, ()), is_planned=manifest.state == PLANNED)
    return ranges.state


def refused_in(window: Window) -> Iterator[tuple[WindowRejects, dict[int, VersionKey]]]:
    """What each operator refused in a window, with the version of the file that each block is of.

    By block, because offsets of records in a compressed file are offsets in its content, and the ranges of windows are
    offsets in the file as it is stored. Blocks that are no ranges of a file have a version that no file has.
    """
    for rejects in rejects_of(window):
        blocks = rejects.blocks.items()
        yield rejects, {key: version_key_of(each) if is_source_range(each) else ("", 0, 0, "") for key, each in blocks}


def _bytes_of(reject: dict[str, Any]) -> range:
    """The byte range of a refused record in the content of its file, of at least one byte: some records are empty."""
    return range(reject["offset"], reject["offset"] + max(reject["length"], 1))


def has_read(window: Window, url: str) -> bool:
    return any(redacted(part.url) == url for _, part in inputs_of(window.plan))


def last_reader(store: ObjectStore, state: JournalState, url: str, taken_ms: int) -> int:
    """The last of consecutive windows that read a file version, found by the time at which it was taken; 0 for none.

    Windows are emitted in order, so a search that looks at few of them finds those of that time.
    """
    kept = range(state.forgotten + 1, state.last_committed + 1)
    if not taken_ms or not kept:
        return 0
    position = bisect.bisect_left(kept, taken_ms, key=lambda each: find_window(store, state, each).plan.emitted_ms)
    first, last, deadline = kept.start + max(position - 1, 0), 0, reading_deadline()
    for window in all_windows(store, state, first):
        if has_read(window, url):
            last = window.plan.window_id
        elif last or window.plan.window_id > first + _NEAR or time.monotonic() > deadline:
            break
    return last
