"""Files: which were taken, what became of each version, and where a line of one has gone."""

from __future__ import annotations

import contextlib
import fnmatch
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from dagflow.api.context import VersionKey
from dagflow.errors import DagflowError
from dagflow.journal.retention import newest_windows
from dagflow.journal.state import JournalState
from dagflow.journal.windows import Window
from dagflow.report.input_ranges import InputRange
from dagflow.report.manifest import TrackedFile, WindowManifest, inputs_of, manifest_of, merging_window
from dagflow.report.open_rejects import rejects_of
from dagflow.report.version_ranges import PLANNED, VersionRanges
from dagflow.storage.location import redacted
from dagflow.storage.objects import ObjectStore
from dagflow.web.app_files import AppFile
from dagflow.web.checkpoints import Checkpoint
from dagflow.web.query import Query, RequestError
from dagflow.web.resources.cursor import Cursor
from dagflow.web.resources.file_windows import LOOK_S, has_read, last_reader

ROWS = 100
MANY_PLACES = 5000
"""Ranges, rejects and outputs of one version that are shown."""

_CHUNK_BYTES = 4 << 20
_SEARCH_BYTES = 1 << 30
_SEARCH_S = 5.0


@dataclass(slots=True)
class _Version:
    """What the windows that were looked at say of one version of a file.

    Refused records that a later window has taken over are in retried, with their bytes and the window that had refused
    them, and not among the rejects.
    """

    tracked: TrackedFile
    times: dict[str, int] = field(default_factory=dict)
    ranges: list[dict[str, Any]] = field(default_factory=list)
    rejects: list[dict[str, Any]] = field(default_factory=list)
    rejected: int = 0
    retried: list[tuple[range, int]] = field(default_factory=list)

    @property
    def part(self) -> InputRange:
        """A range of the version, which says what version it is."""
        return self.tracked.part

    def to_json(self) -> dict[str, Any]:
        """What every list of versions shows."""
        return {
            "url": redacted(self.part.url),
            "size_bytes": self.part.size_bytes,
            "mtime_ms": self.part.mtime_ns // 1_000_000,
            "etag": self.part.etag,
            "state": self.tracked.ranges.state,
            "windows": sorted(self.tracked.windows),
            "times": self.times,
            "rejected": self.rejected,
        }


def files(checkpoint: Checkpoint, query: Query) -> dict[str, Any]:
    """A page of versions of files, those of the newest windows first.

    A version that several windows have read is told of once on a page, by those of its windows that the page covers.
    """
    search, wanted, limit = query.text("search"), query.text("state"), query.limit(ROWS)
    cursor = Cursor.of(query.text("after"))
    before, position = cursor.before, cursor.position
    store, state = checkpoint.journal()
    found: dict[VersionKey, _Version] = {}
    deadline, following = time.monotonic() + LOOK_S, None
    for window in newest_windows(store, state, before):
        window_id = window.plan.window_id
        if time.monotonic() > deadline:
            following = str(Cursor(window_id + 1))
            break
        if search and not any(_matches(redacted(part.url), search) for _, part in inputs_of(window.plan)):
            position = 0
            continue
        manifest = manifest_of(window)
        rows = list(_parts(manifest, search, wanted))
        for number, part in enumerate(rows[position:], position):
            key = part.version
            if key not in found and len(found) == limit:
                following = str(Cursor(window_id + 1, number))
                break
            _note(found.setdefault(key, _Version(TrackedFile(part))), manifest, part)
        if following is not None:
            break
        position = 0
        if window.intent is not None and window.intent.refused:
            _count_rejects(window, found, state)
    return {"files": [each.to_json() for each in found.values()], "next": following}


def _parts(manifest: WindowManifest, search: str, wanted: str) -> Iterator[InputRange]:
    for part in manifest.inputs:
        if search and not _matches(redacted(part.url), search):
            continue
        if wanted and not _state_of(manifest, part).startswith(wanted):
            continue
        yield part


def _matches(url: str, search: str) -> bool:
    """Whether a location has a text in it, or matches a pattern, as a whole or in its last parts; in any case."""
    url, text = url.casefold(), search.casefold()
    if not any(sign in text for sign in "*?["):
        return text in url
    return fnmatch.fnmatchcase(url, text) or fnmatch.fnmatchcase(url, f"*/{text}")


def _state_of(manifest: WindowManifest, part: InputRange) -> str:
    ranges = VersionRanges()
    ranges.add(part, manifest.skipped, is_planned=manifest.state == PLANNED)
    return ranges.state


def _note(version: _Version, manifest: WindowManifest, part: InputRange, outputs: Iterable[str] = ()) -> None:
    version.tracked.add(manifest, part, outputs)
    times = manifest.times
    moments = {
        "discovered_ms": part.discovered_ms,
        "planned_ms": times.planned_ms,
        "read_ms": times.finished_ms,
        "published_ms": times.published_ms,
    }
    for name, moment in moments.items():
        # Discovered and planned at first, read and published at last.
        choose = min if name in ("discovered_ms", "planned_ms") else max
        version.times[name] = choose(filter(None, (version.times.get(name, 0), moment)), default=0)


def _count_rejects(window: Window, found: dict[VersionKey, _Version], state: JournalState) -> None:
    versions: dict[str, list[_Version]] = {}
    for version in found.values():
        versions.setdefault(version.part.url, []).append(version)
    for rejects in rejects_of(window):
        if rejects.is_taken_over(state.retried):
            continue
        for block_id, _, records, *_ in rejects.records.sums():
            for version in versions.get(rejects.blocks[block_id].url, ()):
                if window.plan.window_id in version.tracked.windows:
                    version.rejected += records


def file(checkpoint: Checkpoint, query: Query, app: AppFile) -> dict[str, Any]:
    """All that is known of one file, version by version, and where one of its lines or bytes has gone.

    The newest windows are looked at first. Where none of them has read the file, its splitter says when it took it.

    Raises:
        RequestError: No window that is kept has read it, or its lines and bytes are not numbered so.
    """
    url = query.text("url")
    if not url:
        raise RequestError("url is missing: name a file")
    store, state = checkpoint.journal()
    versions: dict[VersionKey, _Version] = {}
    manifests: dict[int, WindowManifest] = {}
    looked_at = _look(store, state, url, query.number("before"), versions, manifests)
    if not versions and looked_at > state.forgotten + 1:
        reader = last_reader(store, state, url, app.when_taken(url))
        looked_at = _look(store, state, url, reader + 1 if 0 < reader < looked_at else looked_at, versions, manifests)
    if not versions:
        older = "" if looked_at <= state.forgotten + 1 else f" that is newer than window {looked_at - 1}"
        raise RequestError(f"no window{older} has read {url}", "ask why it was not taken", 404)
    found = None
    newest_first = sorted(versions.values(), key=lambda each: _last_read(each, manifests), reverse=True)
    if query.text("line") or query.text("offset"):
        found = _found(checkpoint, query, newest_first, manifests, store, state)
    return {
        "url": url,
        "found": found,
        "versions": [_detailed(each) for each in newest_first],
        "next": looked_at if looked_at > state.forgotten + 1 else None,
    }


def _look(
    store: ObjectStore,
    state: JournalState,
    url: str,
    before: int,
    versions: dict[VersionKey, _Version],
    manifests: dict[int, WindowManifest],
) -> int:
    """Add what the windows below an id say of a file, the newest first; returns the last one that was looked at.

    Of a file that was found, so long as no version is known from its first byte, the look goes on for longer.
    """
    begun, looked_at = time.monotonic(), before or state.last_planned + 1
    for window in newest_windows(store, state, before):
        looked_at = window.plan.window_id
        _add_window(url, window, state, versions, manifests)
        is_begun = versions and not any(place["start"] == 0 for each in versions.values() for place in each.ranges)
        if time.monotonic() - begun > (_SEARCH_S if is_begun else LOOK_S):
            break
    return looked_at


def taken(checkpoint: Checkpoint, url: str) -> tuple[dict[str, Any] | None, int]:
    """The newest version of a file that windows have read or are to read, as files() tells it.

    Returns:
        The version, None where no window that was looked at has one; and the oldest window that was looked at, 0 for
        all that are kept.
    """
    store, state = checkpoint.journal()
    versions: dict[VersionKey, _Version] = {}
    since = _look_once(store, state, url, 0, versions)
    return (next(iter(versions.values())).to_json() if versions else None), since


def taken_at(checkpoint: Checkpoint, url: str, taken_ms: int) -> dict[str, Any] | None:
    """The version of a file that its splitter took at a moment, as files() tells it; None where no window has it."""
    store, state = checkpoint.journal()
    versions: dict[VersionKey, _Version] = {}
    if reader := last_reader(store, state, url, taken_ms):
        _look_once(store, state, url, reader + 1, versions)
    return next(iter(versions.values())).to_json() if versions else None


def _look_once(
    store: ObjectStore, state: JournalState, url: str, before: int, versions: dict[VersionKey, _Version]
) -> int:
    """Add the newest version of a file below a window; returns the oldest window that was looked at, 0 for all."""
    begun = time.monotonic()
    for window in newest_windows(store, state, before):
        known = sum(len(each.tracked.windows) for each in versions.values())
        _add_window(url, window, state, versions, {})
        # Windows that read one version stand beside each other.
        if versions and known == sum(len(each.tracked.windows) for each in versions.values()):
            break
        if time.monotonic() - begun > (_SEARCH_S if versions else LOOK_S):
            return window.plan.window_id
    return 0


def _add_window(
    url: str,
    window: Window,
    state: JournalState,
    versions: dict[VersionKey, _Version],
    manifests: dict[int, WindowManifest],
) -> None:
    # A manifest takes many times as long as a look at the plan, and few windows have read the file.
    if not has_read(window, url):
        return
    manifest = manifest_of(window)
    own = [(index, part) for index, part in enumerate(manifest.inputs) if redacted(part.url) == url]
    manifests[manifest.window_id] = manifest
    rejects = list(rejects_of(window)) if window.intent is not None and window.intent.refused else []
    outputs = [(output.url, set(manifest.positions_of(output))) for output in manifest.outputs]
    for index, part in own:
        key = part.version
        version = versions.setdefault(key, _Version(TrackedFile(part)))
        _note(version, manifest, part, (name for name, positions in outputs if index in positions))
        place = {"start": part.start, "end": part.end, "window": manifest.window_id}
        version.ranges.append({**place, "state": _state_of(manifest, part)})
        for each in rejects:
            ids = {block_id for block_id, block in each.blocks.items() if block.url == part.url}
            for row in each.records.table.select(["block_id", "offset", "length", "reason"]).to_pylist() if ids else ():
                if row.pop("block_id") not in ids or not part.start <= row["offset"] < part.end:
                    continue
                if each.is_taken_over(state.retried):
                    version.retried.append((_bytes_of(row), manifest.window_id))
                else:
                    version.rejects.append({**row, "window": manifest.window_id})
                    version.rejected += 1


def _bytes_of(row: dict[str, Any]) -> range:
    """The bytes of a refused record, of which some have none."""
    return range(row["offset"], row["offset"] + max(row["length"], 1))


def _last_read(version: _Version, manifests: dict[int, WindowManifest]) -> int:
    """The last window that has read a version for the first time; 0 where only refused records of it were read."""
    return max((each for each in version.tracked.windows if not manifests[each].retries), default=0)


def _detailed(version: _Version) -> dict[str, Any]:
    """A version with its ranges, rejects and outputs."""
    ranges = sorted(version.ranges, key=lambda each: (each["start"], each["window"]))
    rejects = sorted(version.rejects, key=lambda each: int(each["offset"]))
    lists: dict[str, list[Any]] = {"ranges": ranges, "rejects": rejects, "outputs": list(version.tracked.outputs)}
    return {
        **version.to_json(),
        **{name: values[:MANY_PLACES] for name, values in lists.items()},
        "counts": {name: len(values) for name, values in lists.items()},
    }


def _found(
    checkpoint: Checkpoint,
    query: Query,
    versions: list[_Version],
    manifests: dict[int, WindowManifest],
    store: ObjectStore,
    state: JournalState,
) -> dict[str, Any]:
    """Where a line, or the record at a byte, of the newest version has gone."""
    version = versions[0]
    line = query.number("line", least=1)
    if line:
        try:
            offset = _offset_of_line(checkpoint, version.part, line)
        except DagflowError as error:
            return {"offset": None, "sentence": f"Line {line:,} cannot be found: {error.message}."}
        what = f"Line {line:,} begins at byte {offset:,}"
    else:
        offset = query.number("offset")
        what = f"Byte {offset:,}"
    found = _reader_of(versions, manifests, offset)
    if found is None:
        return {"offset": offset, "sentence": f"{what}. No window that was looked at has read it."}
    read, window_id = found
    refused = (_bytes_of(each) for each in read.rejects if each["window"] == window_id)
    if manifests[window_id].retries and any(offset in each for each in refused):
        outcome = f"Window {window_id} read it again, and it stays refused."
        return {"offset": offset, "sentence": f"{what}. {outcome}", "window": window_id, "outputs": [], "tables": {}}
    return {"offset": offset, **_way_of(manifests[window_id], version.part.url, offset, what, store, state)}


def _reader_of(
    versions: list[_Version], manifests: dict[int, WindowManifest], offset: int
) -> tuple[_Version, int] | None:
    """The window that has read a byte of the newest version, and the version that it read.

    Of a version that was appended to, the newer one is read from where the older one ended: what is before that is the
    older one's. A version that was rewritten is read from its first byte, and hides the older ones. A window that took
    over refused records has read these alone.
    """
    for version in versions:
        refused_by = {window_id for taken, window_id in version.retried if offset in taken}
        for place in version.ranges:
            retries = manifests[place["window"]].retries
            if place["start"] <= offset < place["end"] and (not retries or refused_by.intersection(retries)):
                return version, int(place["window"])
        if offset >= min((place["start"] for place in version.ranges), default=offset + 1):
            return None
    return None


def _way_of(
    manifest: WindowManifest, url: str, offset: int, what: str, store: ObjectStore, state: JournalState
) -> dict[str, Any]:
    """From a byte on: the window, the output files, and the versions of tables that show its record."""
    window_id = manifest.window_id
    inside = {n for n, part in enumerate(manifest.inputs) if part.url == url and part.start <= offset < part.end}
    outputs = [each.url for each in manifest.outputs if inside & set(manifest.positions_of(each))]
    tables = {name: version for name, version in manifest.receipts.items()}
    if manifest.state == PLANNED:
        outcome = f"Window {window_id} is to read it."
    elif manifest.held_records:
        by = merging_window(store, state, window_id)
        outcome = f"Window {window_id} read it; "
        outcome += (
            "its records wait to be merged." if by is None else f"window {by.plan.window_id} merged and published it."
        )
        if by is not None:
            tables = dict(by.receipts)
            # What the window published itself, and of what the later one published only what it has merged.
            outputs += [
                redacted(each.final_url)
                for each in (by.intent.files if by.intent else [])
                if each.facts is not None and each.facts.operator in by.plan.takes
            ]
    else:
        outcome = f"Window {window_id} read it; its record is in {_one_of(outputs)}."
    shown = ", ".join(f"{name} since {version}" for name, version in tables.items())
    sentence = f"{what}. {outcome}" + (f" Tables show it: {shown}." if shown else "")
    return {"sentence": sentence, "window": window_id, "outputs": outputs[:MANY_PLACES], "tables": tables}


def _one_of(outputs: list[str]) -> str:
    if not outputs:
        return "no output file"
    return "one output file" if len(outputs) == 1 else f"one of {len(outputs):,} output files"


def _offset_of_line(checkpoint: Checkpoint, part: InputRange, line: int) -> int:
    """The first byte of a line of a file as it is now, which must be the version that was read, or have grown.

    Raises:
        RequestError: It has changed, is shorter, or would take too long to count.
        StorageError: It cannot be read.
    """
    found = checkpoint.storage.stat(part.url)
    if found.size_bytes < part.size_bytes or (found.size_bytes == part.size_bytes and found.mtime_ns != part.mtime_ns):
        raise RequestError("the file is not the version any more that was read")
    left, offset, deadline = line - 1, 0, time.monotonic() + _SEARCH_S
    buffer = bytearray(_CHUNK_BYTES)
    with contextlib.closing(checkpoint.storage.open_file(part.url)) as content:
        while left:
            room = memoryview(buffer)[: max(min(_CHUNK_BYTES, part.size_bytes - offset), 0)]
            filled = content.read_into(offset, room)
            if not filled:
                raise RequestError("the version that was read has fewer lines")
            count = buffer.count(b"\n", 0, filled)
            if count >= left:
                return offset + _after_newline(buffer, left)
            left, offset = left - count, offset + filled
            if offset > _SEARCH_BYTES or time.monotonic() > deadline:
                raise RequestError(f"it lies behind byte {offset:,}, and a page counts lines no further")
    return 0


def _after_newline(buffer: bytearray, number: int) -> int:
    """The position behind the newline of that number, counted from 1."""
    place = -1
    for _ in range(number):
        place = buffer.index(b"\n", place + 1)
    return place + 1
