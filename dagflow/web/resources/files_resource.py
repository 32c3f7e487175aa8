"""Files: which were taken, the state of each version, and where a line or a byte of one is in the output."""

from __future__ import annotations

import bisect
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from dagflow.api.context import VersionKey
from dagflow.api.regular_expressions import glob_matcher
from dagflow.journal.retention import all_windows, find_window, newest_windows
from dagflow.journal.state import JournalState
from dagflow.journal.windows import Window
from dagflow.report.input_ranges import PLANNED, InputRange, VersionRanges
from dagflow.report.manifest import TrackedFile, WindowManifest, inputs_of, manifest_of
from dagflow.storage.location import redacted
from dagflow.storage.objects import ObjectStore
from dagflow.web.app_files import AppFile
from dagflow.web.checkpoints import Checkpoint
from dagflow.web.query import Cursor, Query, RequestError
from dagflow.web.resources.file_lines import (
    MAX_SHOWN,
    SEARCH_S,
    KnownVersion,
    bytes_of,
    found_in,
    looks_compressed,
    refused_in,
)

ROWS = 100


def files(checkpoint: Checkpoint, query: Query) -> dict[str, Any]:
    """A page of versions of files, those of the newest windows first.

    A version that several windows have read is listed once on a page, with those of its windows that the page covers.
    """
    search, wanted, limit = query.text("search"), query.text("state"), query.limit(ROWS)
    matches = _matcher(search)
    cursor = Cursor.of(query.text("after"))
    before, position = cursor.before, cursor.position
    store, state = checkpoint.journal()
    found: dict[VersionKey, KnownVersion] = {}
    deadline, following = time.monotonic() + LOOK_S, None
    for window in newest_windows(store, state, before):
        window_id = window.plan.window_id
        if time.monotonic() > deadline:
            following = str(Cursor(window_id + 1))
            break
        if search and not any(matches(redacted(part.url)) for _, part in inputs_of(window.plan)):
            position = 0
            continue
        manifest = manifest_of(window)
        rows = list(_parts(manifest, matches, wanted))
        for number, part in enumerate(rows[position:], position):
            key = part.version
            if key not in found and len(found) == limit:
                following = str(Cursor(window_id + 1, number))
                break
            _note(found.setdefault(key, KnownVersion(TrackedFile(part))), manifest, part)
        if following is not None:
            break
        position = 0
        _count_rejects(window, found, state)
    return {"files": [each.to_json() for each in found.values()], "next": following}


def _parts(manifest: WindowManifest, matches: Callable[[str], bool], wanted: str) -> Iterator[InputRange]:
    for part in manifest.inputs:
        if not matches(redacted(part.url)):
            continue
        if wanted and not _state_of(manifest, part).startswith(wanted):
            continue
        yield part


def _matcher(search: str) -> Callable[[str], bool]:
    """Says whether a location has a text in it, or matches a glob, as a whole or in its last parts; in any case."""
    text = search.casefold()
    if not any(sign in text for sign in "*?["):
        return lambda url: text in url.casefold()
    matchers = glob_matcher(text), glob_matcher(f"*/{text}")
    return lambda url: any(matches(url.casefold()) for matches in matchers)


def _state_of(manifest: WindowManifest, part: InputRange) -> str:
    ranges = VersionRanges()
    ranges.add(part, manifest.skipped, is_planned=manifest.state == PLANNED)
    return ranges.state


def _note(version: KnownVersion, manifest: WindowManifest, part: InputRange, outputs: Iterable[str] = ()) -> None:
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


def _count_rejects(window: Window, found: dict[VersionKey, KnownVersion], state: JournalState) -> None:
    for rejects, version_by_block in refused_in(window):
        if rejects.is_taken_over(state.retried):
            continue
        for block_id, _, records, *_ in rejects.records.sums():
            version = found.get(version_by_block[block_id])
            if version is not None and window.plan.window_id in version.tracked.windows:
                version.rejected += records


def file(checkpoint: Checkpoint, query: Query, app: AppFile) -> dict[str, Any]:
    """All that is known of one file, version by version, and the output of one of its lines or bytes.

    The newest windows are looked at first. Where none of them has read the file, its splitter says when it took it.

    Raises:
        RequestError: No window that is kept has read it, or its lines and bytes are not numbered so.
    """
    url = query.text("url")
    if not url:
        raise RequestError("url is missing: name a file")
    store, state = checkpoint.journal()
    versions: dict[VersionKey, KnownVersion] = {}
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
    asks = bool(query.text("line") or query.text("offset"))
    compressed = looks_compressed(checkpoint.storage, newest_first[0].part.url, asks_store=asks)
    if asks:
        found = found_in(newest_first, manifests, checkpoint, query, store, state, is_compressed=compressed)
    return {
        "url": url,
        "compressed": compressed,
        "found": found,
        "versions": [_detailed(each) for each in newest_first],
        "next": looked_at if looked_at > state.forgotten + 1 else None,
    }


def _look(
    store: ObjectStore,
    state: JournalState,
    url: str,
    before: int,
    versions: dict[VersionKey, KnownVersion],
    manifests: dict[int, WindowManifest],
) -> int:
    """Add what the windows below an id have recorded of a file, the newest first; returns the last window looked at.

    If the file was found, but no version from its first byte on is known, the search continues for longer.
    """
    begun, looked_at = time.monotonic(), before or state.last_planned + 1
    for window in newest_windows(store, state, before):
        looked_at = window.plan.window_id
        _add_window(url, window, state, versions, manifests)
        is_begun = versions and not any(place["start"] == 0 for each in versions.values() for place in each.ranges)
        if time.monotonic() - begun > (SEARCH_S if is_begun else LOOK_S):
            break
    return looked_at


def taken(checkpoint: Checkpoint, url: str) -> tuple[dict[str, Any] | None, int]:
    """The newest version of a file that windows have read or are to read, as files() lists it.

    Returns:
        The version, None where no window that was looked at has one; and the oldest window that was looked at, 0 for
        all that are kept.
    """
    store, state = checkpoint.journal()
    versions: dict[VersionKey, KnownVersion] = {}
    since = _look_once(store, state, url, 0, versions)
    return (next(iter(versions.values())).to_json() if versions else None), since


def taken_at(checkpoint: Checkpoint, url: str, taken_ms: int) -> dict[str, Any] | None:
    """The version of a file that its splitter took at a moment, as files() lists it; None where no window has it."""
    store, state = checkpoint.journal()
    versions: dict[VersionKey, KnownVersion] = {}
    if reader := last_reader(store, state, url, taken_ms):
        _look_once(store, state, url, reader + 1, versions)
    return next(iter(versions.values())).to_json() if versions else None


def _look_once(
    store: ObjectStore, state: JournalState, url: str, before: int, versions: dict[VersionKey, KnownVersion]
) -> int:
    """Add the newest version of a file below a window; returns the oldest window that was looked at, 0 for all."""
    begun = time.monotonic()
    for window in newest_windows(store, state, before):
        known = sum(len(each.tracked.windows) for each in versions.values())
        _add_window(url, window, state, versions, {})
        # Windows that read the same version are next to each other.
        if versions and known == sum(len(each.tracked.windows) for each in versions.values()):
            break
        if time.monotonic() - begun > (SEARCH_S if versions else LOOK_S):
            return window.plan.window_id
    return 0


def _add_window(
    url: str,
    window: Window,
    state: JournalState,
    versions: dict[VersionKey, KnownVersion],
    manifests: dict[int, WindowManifest],
) -> None:
    # A manifest takes many times as long as a look at the plan, and few windows have read the file.
    if not has_read(window, url):
        return
    manifest = manifest_of(window)
    own = [(index, part) for index, part in enumerate(manifest.inputs) if redacted(part.url) == url]
    manifests[manifest.window_id] = manifest
    outputs = [(output.url, set(manifest.positions_of(output))) for output in manifest.outputs]
    for index, part in own:
        key = part.version
        version = versions.setdefault(key, KnownVersion(TrackedFile(part)))
        _note(version, manifest, part, (name for name, positions in outputs if index in positions))
        place = {"start": part.start, "end": part.end, "window": manifest.window_id}
        version.ranges.append({**place, "state": _state_of(manifest, part)})
    for rejects, version_by_block in refused_in(window):
        is_taken_over, records = rejects.is_taken_over(state.retried), rejects.records
        own_ids = [block_id for block_id, version in version_by_block.items() if version in versions]
        chosen = records.where(np.isin(records.numbers("block_id"), own_ids))
        for row in chosen.table.select(["block_id", "offset", "length", "reason", "detail"]).to_pylist():
            refused = versions[version_by_block[row.pop("block_id")]]
            row["reason"] = row.pop("detail") or row["reason"]
            if is_taken_over:
                refused.retried.append((bytes_of(row), manifest.window_id))
            else:
                refused.rejects.append({**row, "window": manifest.window_id, "operator": rejects.operator})
                refused.rejected += 1


def _last_read(version: KnownVersion, manifests: dict[int, WindowManifest]) -> int:
    """The last window that has read a version for the first time; 0 where only refused records of it were read."""
    return max((each for each in version.tracked.windows if not manifests[each].retries), default=0)


def _detailed(version: KnownVersion) -> dict[str, Any]:
    """A version with its ranges, rejects and outputs."""
    ranges = sorted(version.ranges, key=lambda each: (each["start"], each["window"]))
    rejects = sorted(version.rejects, key=lambda each: int(each["offset"]))
    lists: dict[str, list[Any]] = {"ranges": ranges, "rejects": rejects, "outputs": list(version.tracked.outputs)}
    return {
        **version.to_json(),
        **{name: values[:MAX_SHOWN] for name, values in lists.items()},
        "counts": {name: len(values) for name, values in lists.items()},
    }


LOOK_S = 1.0
"""About how many seconds one request reads the journal; the next page continues where it ended."""

_NEAR = 8
"""How many windows, from the one of that moment on, are searched for the first reader of the file."""


def has_read(window: Window, url: str) -> bool:
    """Whether a window reads, or is to read, some of a file."""
    return any(redacted(part.url) == url for _, part in inputs_of(window.plan))


def last_reader(store: ObjectStore, state: JournalState, url: str, taken_ms: int) -> int:
    """The last of consecutive windows that read a file version, found by the time at which it was taken; 0 for none.

    Windows are emitted in order, so a search that looks at few of them finds those of that time.
    """
    kept = range(state.forgotten + 1, state.last_committed + 1)
    if not taken_ms or not kept:
        return 0
    position = bisect.bisect_left(kept, taken_ms, key=lambda each: find_window(store, state, each).plan.emitted_ms)
    first, last, deadline = kept.start + max(position - 1, 0), 0, time.monotonic() + LOOK_S
    for window in all_windows(store, state, first):
        if has_read(window, url):
            last = window.plan.window_id
        elif last or window.plan.window_id > first + _NEAR or time.monotonic() > deadline:
            break
    return last
