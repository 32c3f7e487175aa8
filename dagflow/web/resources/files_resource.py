"""Files: which were taken, the state of each version, and where a line or a byte of one is in the output."""

from __future__ import annotations

import contextlib
import itertools
import re
import time
from collections.abc import Callable
from typing import Any

from dagflow.api.context import VersionKey
from dagflow.api.regular_expressions import glob_matcher
from dagflow.errors import DagflowError
from dagflow.journal.reader import newest_windows
from dagflow.report.input_ranges import PLANNED, InputRange
from dagflow.report.manifest import TrackedFile, inputs_of, manifest_of, merging_window
from dagflow.storage.context import StorageContext
from dagflow.storage.file_kinds import HEAD_BYTES, compression_name_of_content, compression_name_of_url, is_skippable
from dagflow.storage.location import redacted
from dagflow.web.checkpoints import AppFile, Checkpoint, Cursor, Query, RequestError, reading_deadline
from dagflow.web.resources.file_history import SEARCH_S, FileHistory, KnownVersion, refused_in, state_of

ROWS = 100

MAX_SHOWN = 5000
"""Number of ranges, rejects and outputs of one version that are shown."""

_CHUNK_BYTES = 4 << 20
_SEARCH_BYTES = 1 << 30


def files(checkpoint: Checkpoint, query: Query) -> dict[str, Any]:
    """A page of versions of files, those of the newest windows first.

    A version that several windows have read is listed once on a page, with those of its windows that the page covers.
    """
    search, wanted, limit = query.text("search"), query.text("state"), query.limit(ROWS)
    matches = _matcher(search)
    cursor = Cursor.of(query.text("after"))
    position = cursor.position
    store, state = checkpoint.journal()
    versions: dict[VersionKey, KnownVersion] = {}
    deadline, following = reading_deadline(), None
    for index, window in enumerate(newest_windows(store, state, cursor.before)):
        window_id = window.plan.window_id
        if index and time.monotonic() > deadline:
            following = str(Cursor(window_id + 1))
            break
        if search and not any(matches(redacted(part.url)) for _, part in inputs_of(window.plan)):
            position = 0
            continue
        manifest = manifest_of(window)
        rows = [each for each in manifest.inputs if matches(redacted(each.url))]
        rows = [each for each in rows if not wanted or state_of(manifest, each).startswith(wanted)]
        for number, part in enumerate(rows[position:], position):
            if part.version not in versions and len(versions) == limit:
                following = str(Cursor(window_id + 1, number))
                break
            versions.setdefault(part.version, KnownVersion(TrackedFile(part))).note(manifest, part)
        if following is not None:
            break
        position = 0
        for rejects, version_by_block in refused_in(window):
            for block_id, _, records, *_ in rejects.records.sums() if not rejects.is_taken_over(state.retried) else ():
                version = versions.get(version_by_block[block_id])
                if version is not None and window_id in version.tracked.windows:
                    version.rejected += records
    return {"files": [each.to_json() for each in versions.values()], "next": following}


def _matcher(search: str) -> Callable[[str], bool]:
    """Says whether a location has a text in it, or matches a glob, as a whole or in its last parts; in any case."""
    text = search.casefold()
    if not any(sign in text for sign in "*?["):
        return lambda url: text in url.casefold()
    matchers = glob_matcher(text), glob_matcher(f"*/{text}")
    return lambda url: any(matches(url.casefold()) for matches in matchers)


def file(checkpoint: Checkpoint, query: Query, app: AppFile) -> dict[str, Any]:
    """All that is known of one file, version by version, and the output of one of its lines or bytes.

    The newest windows are looked at first. Where none of them has read the file, its splitter says when it took it.

    Raises:
        RequestError: No window that is kept has read it, or its lines and bytes are not numbered so.
    """
    url = query.text("url")
    if not url:
        raise RequestError("url is missing: name a file")
    history = FileHistory(*checkpoint.journal(), url, query.number("before"))
    if not history.versions and not history.is_whole:
        history.look_at(0 if app.why_not_loaded() else app.why(url).get("taken_ms") or 0)
    if not history.versions:
        older = "" if history.is_whole else f" that is newer than window {history.looked_at - 1}"
        raise RequestError(f"no window{older} has read {url}", "ask why it was not taken", 404)
    asks = bool(query.text("line") or query.text("offset"))
    newest = history.versions[0].tracked.part
    compressed = looks_compressed(checkpoint.storage, newest.url, asks_store=asks)
    versions = []
    for version in history.versions:
        lists: dict[str, list[Any]] = {
            "ranges": sorted(version.ranges, key=lambda each: (each["start"], each["window"])),
            "rejects": sorted(version.rejects, key=lambda each: int(each["offset"])),
            "outputs": list(version.tracked.outputs),
        }
        cut = {name: values[:MAX_SHOWN] for name, values in lists.items()}
        counts = {name: len(values) for name, values in lists.items()}
        versions.append({**version.to_json(), **cut, "counts": counts})
    return {
        "url": url,
        "compressed": compressed,
        "found": _place_in_output(history, checkpoint.storage, query, is_compressed=compressed) if asks else None,
        "versions": versions,
        "next": None if history.is_whole else history.looked_at,
    }


def _place_in_output(
    history: FileHistory, storage: StorageContext, query: Query, *, is_compressed: bool
) -> dict[str, Any]:
    """Find the output of a line, or of the record at a byte, of the newest version of a file.

    Args:
        is_compressed: Whether the newest version is compressed, and offsets are those in its content.

    Returns:
        The offset in the content of the file, and a sentence; where they are known, the window, the output files and
        the tables.
    """
    newest = history.versions[0].tracked.part
    line = query.number("line", least=1)
    if line:
        try:
            if is_compressed:
                raise RequestError("the file is compressed, and lines of its content are not counted")
            offset = _offset_of_line(storage, newest, line)
        except DagflowError as error:
            return {"offset": None, "sentence": f"Line {line:,} cannot be found: {error.message}."}
        what = f"Line {line:,} begins at byte {offset:,}"
    else:
        offset = query.number("offset")
        what = f"Byte {offset:,}" + (" of the decompressed content, if it is so long" if is_compressed else "")
    reader = (_reader_of_content if is_compressed else _reader_of)(history, offset)
    if reader is None:
        why = "No window that was looked at has read it"
        if is_compressed:
            why = "It is not known which of the windows that were looked at has read it"
        return {"offset": offset, "sentence": f"{what}. {why}."}
    version, window_id = reader
    inside = {
        number
        for number, part in enumerate(history.manifests[window_id].inputs)
        if part.url == newest.url and (is_compressed or part.start <= offset < part.end)
    }
    way = _way_of(history, window_id, inside, version.reject_at(offset))
    return {"offset": offset, **way, "sentence": f"{what}. {way['sentence']}"}


def looks_compressed(storage: StorageContext, url: str, *, asks_store: bool) -> bool:
    """Whether a file is compressed, by its first bytes; where it cannot be read any more, by its name.

    Args:
        asks_store: Whether the first bytes of a file in a store are read, too, which may take long.
    """
    if asks_store or storage.backend(url).is_local:
        head = bytearray(HEAD_BYTES)
        with contextlib.suppress(DagflowError), contextlib.closing(storage.open_file(url)) as content:
            begin = bytes(head[: content.read_into(0, memoryview(head))])
            return bool(compression_name_of_content(begin)) or is_skippable(begin)
    return bool(compression_name_of_url(url))


def _reader_of(history: FileHistory, offset: int) -> tuple[KnownVersion, int] | None:
    """The window that has read a byte of the newest version, and the version that it read.

    The new window of an appended version reads from where the older version ended; the bytes before belong to the older
    version. A rewritten version is read from its first byte, and hides the older ones.
    """
    for version in history.versions:
        # The first byte of a refused record may have been read by another window than the one that refused the record.
        if (reject := version.reject_at(offset)) is not None:
            return version, int(reject["window"])
        for place, _ in version.readers_of(offset, history.manifests):
            if place["start"] <= offset < place["end"]:
                return version, int(place["window"])
        if offset >= min((place["start"] for place in version.ranges), default=offset + 1):
            return None
    return None


def _reader_of_content(history: FileHistory, offset: int) -> tuple[KnownVersion, int] | None:
    """The window that has read a byte of the content of a compressed file, or None where that is not known.

    Ranges of windows are offsets in the compressed file. The range of a byte of the content is known for refused
    records, and where one window has read the whole file.
    """
    readers: dict[int, KnownVersion] = {}
    for version in history.versions:
        if (reject := version.reject_at(offset)) is not None:
            return version, int(reject["window"])
        for place, is_again in version.readers_of(offset, history.manifests):
            if is_again:
                return version, int(place["window"])
            readers[int(place["window"])] = version
        if any(place["start"] == 0 for place in version.ranges):
            return next(((known, window_id) for window_id, known in readers.items() if len(readers) == 1), None)
    # Windows that were not looked at have read the first bytes of the file.
    return None


def _way_of(history: FileHistory, window_id: int, inside: set[int], reject: dict[str, Any] | None) -> dict[str, Any]:
    """Where a record is: the window, the output files, and the versions of tables that hold what was made of it.

    A line need not be a record, and operators may leave records out.

    Args:
        inside: Positions of the window's inputs that hold the record.
        reject: The refused record, where the window has refused it.
    """
    manifest, refusal = history.manifests[window_id], ""
    if reject is not None:
        refusal = f"Window {window_id} read it, and operator '{reject['operator']}' refused it: {reject['reason']}."
        if manifest.retries:
            refusal = f"Window {window_id} read it again, and it stays refused."
        # A record that a reader has refused reaches no operator but those that take refused records.
        if reject["operator"] in {part.port.partition(".")[0] for part in manifest.inputs}:
            return {"sentence": refusal, "window": window_id, "outputs": [], "tables": {}}
        refusal += " "
    outputs = [each.url for each in manifest.outputs if inside & set(manifest.positions_of(each))]
    tables = dict(manifest.receipts)
    if manifest.state == PLANNED:
        outcome = f"Window {window_id} is to read it."
    elif not manifest.held_records:
        which = f"one of {len(outputs):,} output files" if len(outputs) > 1 else "one output file"
        outcome = f"Window {window_id} read it; its records are in {which if outputs else 'no output file'}."
    elif (by := merging_window(history.store, history.state, window_id)) is None:
        outcome = f"Window {window_id} read it; its records wait to be merged."
    else:
        outcome = f"Window {window_id} read it; window {by.plan.window_id} merged and published its records."
        tables = dict(by.receipts)
        # Files that the window published itself, and of the later window only files that it has merged.
        outputs += [
            redacted(each.final_url)
            for each in (by.intent.files if by.intent else [])
            if each.facts is not None and each.facts.operator in by.plan.takes
        ]
    shown = ", ".join(f"{name} since {version}" for name, version in tables.items())
    sentence = refusal + outcome + (f" Tables have its records: {shown}." if shown else "")
    return {"sentence": sentence, "window": window_id, "outputs": outputs[:MAX_SHOWN], "tables": tables}


def _offset_of_line(storage: StorageContext, part: InputRange, line: int) -> int:
    """The offset of a line in a file as it is now, which must be the version that was read, or have grown since.

    Raises:
        RequestError: The file has changed, is shorter, or would take too long to count.
    """
    now = storage.stat(part.url)
    if now.size_bytes < part.size_bytes or (now.size_bytes == part.size_bytes and now.mtime_ns != part.mtime_ns):
        raise RequestError("the file is not the version any more that was read")
    left, offset, deadline = line - 1, 0, time.monotonic() + SEARCH_S
    buffer = bytearray(_CHUNK_BYTES)
    with contextlib.closing(storage.open_file(part.url)) as content:
        while left:
            room = memoryview(buffer)[: max(min(_CHUNK_BYTES, part.size_bytes - offset), 0)]
            filled = content.read_into(offset, room)
            if not filled:
                raise RequestError("the version that was read has fewer lines")
            count = buffer.count(b"\n", 0, filled)
            if count >= left:
                newlines = re.compile(b"\n").finditer(buffer)
                offset += next(itertools.islice(newlines, left - 1, None)).end()
                break
            left, offset = left - count, offset + filled
            if offset > _SEARCH_BYTES or time.monotonic() > deadline:
                raise RequestError(f"it lies behind byte {offset:,}, and a page counts lines no further")
    # Nothing is behind the last newline of the version, or it is empty.
    if offset >= part.size_bytes:
        raise RequestError("the version that was read has fewer lines")
    return offset
