"""Which bytes of which file version became which output file: what the journal knows of windows and of files."""

from __future__ import annotations

import glob
import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from dagflow.api.context import Skipped, VersionKey, version_key_of
from dagflow.api.ports import unbatched
from dagflow.api.sources import block_id_of, decode_sources, discovered_ms_of, is_source_range
from dagflow.errors import own_name
from dagflow.frozen import frozen, mutable
from dagflow.journal.reader import all_windows, find_window, read_journal
from dagflow.journal.state import JournalState
from dagflow.journal.windows import Window, WindowIntent, WindowPlan, planned_tuples
from dagflow.plan.physical import PortRef
from dagflow.report.input_ranges import IN_PART, PLANNED, READ, InputRange, VersionRanges, attributed, matcher_of
from dagflow.report.own_figures import own_sums
from dagflow.storage.base import ObjectStore
from dagflow.storage.context import StorageContext
from dagflow.storage.location import name_of, redacted

Provenance = Literal["exact", "partition", "window"]
"""What an output's sources are: all that its records come from, or what its task read, or what the window read."""


@frozen
class PublishedFile:
    """A file that a window published.

    Attributes:
        crc32: Checksum of its bytes, or None where none was taken.
        stage: Head of the stage that wrote it; "" for the driver.
        made_from: Positions of the inputs that its records come from; None where only the task is known that wrote it.
    """

    url: str
    size_bytes: int
    records: int
    crc32: int | None
    stage: str
    partition: int
    made_from: tuple[int, ...] | None = None


def times_of(window: Window) -> dict[str, int]:
    """When each step of a window happened, in milliseconds since 1970; 0 for a step that has not happened."""
    plan, intent = window.plan, window.intent or WindowIntent(0)
    return {
        "emitted_ms": plan.emitted_ms,
        "planned_ms": plan.planned_ms,
        "started_ms": intent.started_ms,
        "finished_ms": intent.finished_ms,
        "committed_ms": intent.committed_ms,
        "published_ms": window.published_ms,
    }


@dataclass(frozen=True)
class WindowManifest:
    """What one window read and wrote.

    Attributes:
        state: "planned" or "committed".
        busy_s: Seconds that each operator worked, in tasks or in the driver, by operator.
        receipts: The version that each transactional target had with the window, by operator.
        retries: Windows whose refused records it has taken over. It has read only these records of its inputs.
        held_records: Records that it has held back for a later window.
        merged_in: The window that has published the held records first; None as long as they wait.
    """

    window_id: int
    state: str
    partitions: dict[str, int]
    inputs: tuple[InputRange, ...]
    outputs: tuple[PublishedFile, ...]
    skipped: tuple[Skipped, ...]
    times: dict[str, int]
    busy_s: dict[str, float]
    receipts: dict[str, str] = field(default_factory=dict)
    retries: tuple[int, ...] = ()
    held_records: int = 0
    merged_in: int | None = None

    def provenance_of(self, output: PublishedFile) -> Provenance:
        """How much is known of what an output file was made of."""
        if output.made_from is not None:
            return "exact"
        return "partition" if self._read_by_task_of(output) else "window"

    def positions_of(self, output: PublishedFile) -> Sequence[int]:
        """The positions in inputs of what an output file was made of.

        Where that is not known exactly: what its partition read; behind an exchange, what the window read.
        """
        if output.made_from is not None:
            return output.made_from
        own = self._read_by_task_of(output) or range(len(self.inputs))
        return [position for position in own if not self._is_left_out(self.inputs[position])]

    def sources_of(self, output: PublishedFile) -> tuple[InputRange, ...]:
        return tuple(self.inputs[position] for position in self.positions_of(output))

    def _read_by_task_of(self, output: PublishedFile) -> list[int]:
        return [
            position
            for position, each in enumerate(self.inputs)
            if each.port.partition(".")[0] == output.stage and each.partition in (None, output.partition)
        ]

    @cached_property
    def skipped_by_url(self) -> Mapping[str, Sequence[Skipped]]:
        found = defaultdict[str, list[Skipped]](list)
        for each in self.skipped:
            found[each.url].append(each)
        return dict(found)

    def _is_left_out(self, part: InputRange) -> bool:
        own = self.skipped_by_url.get(part.url, ())
        return any(each.start <= part.start and part.end <= each.end for each in own)

    def to_json(self) -> dict[str, Any]:
        value = asdict(self)
        value["partitions"] = {own_name(head): count for head, count in reversed(self.partitions.items())}
        value["busy_s"] = own_sums(self.busy_s)
        value["receipts"] = {own_name(name): version for name, version in self.receipts.items()}
        for output, shown in zip(self.outputs, value["outputs"], strict=True):
            shown["crc32"] = None if output.crc32 is None else f"{output.crc32:08x}"
            del shown["made_from"]
            shown["stage"] = own_name(output.stage)
            shown["sources"] = list(self.positions_of(output))
            shown["provenance"] = self.provenance_of(output)
        for part in value["inputs"]:
            part["url"] = redacted(part["url"])
            port = PortRef.parse(part["port"])
            part["port"] = f"{own_name(port.operator)}.{port.port}"
        value["skipped"] = [[redacted(each.url), *astuple(each)[1:]] for each in self.skipped]
        return value


@mutable
class TrackedFile:
    """The state of one version of a file.

    Attributes:
        part: A range of the version, which says what version it is.
        windows: The windows that read it, in the order in which they were added.
        outputs: The files that its records are in; where that is not known, those of the tasks that read it.
        tables: The tables that hold it now, each with its version, such as "orders, version 4".
    """

    part: InputRange
    ranges: VersionRanges = field(default_factory=VersionRanges)
    windows: list[int] = field(default_factory=list)
    outputs: dict[str, None] = field(default_factory=dict)
    tables: tuple[str, ...] = ()

    def add(self, manifest: WindowManifest, part: InputRange, outputs: Iterable[str] = ()) -> None:
        """Add a window that has read, or is to read, a range of the version.

        Args:
            outputs: The files that records of the range are in.
        """
        skipped = manifest.skipped_by_url.get(part.url, ())
        self.ranges.add(part, skipped, is_planned=manifest.state == PLANNED)
        if manifest.window_id not in self.windows:
            self.windows.append(manifest.window_id)
        self.outputs.update(dict.fromkeys(outputs))

    def to_json(self) -> dict[str, Any]:
        return {
            "url": redacted(self.part.url),
            "size_bytes": self.part.size_bytes,
            "mtime_ns": self.part.mtime_ns,
            "etag": self.part.etag,
            "state": self.ranges.state,
            "read_bytes": self.ranges.read_bytes,
            "windows": self.windows,
            "outputs": list(self.outputs),
            "tables": list(self.tables),
            "discovered_ms": self.part.discovered_ms,
        }


def window_manifest(checkpoint: str, window_id: int, storage: StorageContext) -> WindowManifest:
    store, state = read_journal(storage, checkpoint)
    return with_merging_window(manifest_of(find_window(store, state, window_id)), store, state)


def with_merging_window(manifest: WindowManifest, store: ObjectStore, state: JournalState) -> WindowManifest:
    """A manifest, with the window that has merged what it has held back."""
    merging = merging_window(store, state, manifest.window_id) if manifest.held_records else None
    return manifest if merging is None else replace(manifest, merged_in=merging.plan.window_id)


def merging_window(store: ObjectStore, state: JournalState, window_id: int) -> Window | None:
    """The first committed window that has taken what a window has held back; None as long as that waits."""
    for window in all_windows(store, state, window_id + 1):
        if any(newest >= window_id for newest in window.plan.takes.values()):
            return window
    return None


def manifests(checkpoint: str, storage: StorageContext) -> Iterator[WindowManifest]:
    store, state = read_journal(storage, checkpoint)
    planned = (Window(state.planned[each]) for each in sorted(state.planned))
    return map(manifest_of, itertools.chain(all_windows(store, state), planned))


def manifest_of(window: Window) -> WindowManifest:
    plan, intent = window.plan, window.intent or WindowIntent(0)
    origins = [(each.stage, each.partition) for each in intent.produced for _ in range(each.files)]
    origins += [("", 0)] * (len(intent.files) - len(origins))
    sources = [each for made in intent.produced for each in decode_sources(made.sources, made.files)]
    sources += [None] * (len(intent.files) - len(sources))
    blocks = list(inputs_of(plan))
    if plan.takes:
        # Rows that other windows have held back are of blocks of these.
        own = {block_id for block_id, _ in blocks}
        sources = [each if each is None or own.issuperset(each.ids()) else None for each in sources]
    inputs, made_from = attributed(blocks, sources)
    outputs = tuple(
        PublishedFile(redacted(file.final_url), file.size_bytes, file.records, file.crc32, *origin, positions)
        for file, origin, positions in zip(intent.files, origins, made_from, strict=True)
    )
    return WindowManifest(
        window_id=plan.window_id,
        state=PLANNED if window.intent is None else "committed",
        partitions=dict(plan.partitions),
        inputs=tuple(inputs),
        outputs=outputs,
        skipped=tuple(intent.skipped),
        times=times_of(window),
        busy_s=dict(intent.busy_s),
        receipts=dict(window.receipts),
        retries=tuple(plan.retries),
        held_records=sum(file.records for file in intent.held),
    )


def inputs_of(plan: WindowPlan) -> Iterator[tuple[int, InputRange]]:
    for port, partition, item in planned_tuples(plan):
        # Tuples of any class that name a range of a file's version are inputs; others have no part in a manifest.
        for block in filter(is_source_range, unbatched((item,))):
            extent, since_ms = (block.start, block.end), discovered_ms_of(block)
            yield block_id_of(block), InputRange(*version_key_of(block), *extent, 1, port, partition, since_ms)


def tracked_files(checkpoint: str, pattern: str, storage: StorageContext) -> list[TrackedFile]:
    """The state of the files that a pattern names, version by version, in the order in which they were planned."""
    found: dict[VersionKey, TrackedFile] = {}
    matches = matcher_of(pattern)
    for manifest in manifests(checkpoint, storage):
        chosen = {position: each for position, each in enumerate(manifest.inputs) if matches(each.url)}
        outputs: dict[int, list[str]] = {position: [] for position in chosen}
        for output in manifest.outputs if chosen else ():
            for position in manifest.positions_of(output):
                if position in outputs:
                    outputs[position].append(output.url)
        for position, each in chosen.items():
            found.setdefault(each.version, TrackedFile(each)).add(manifest, each, outputs[position])
    state = read_journal(storage, checkpoint)[1]
    waiting = {held.window_id for held in state.held.all_waiting}
    tables = tuple(f"{each.place}, {each.version}" for each in state.receipts.values())
    for file in found.values():
        is_held = file.ranges.state in (READ, IN_PART) and not waiting.issuperset(file.windows)
        file.tables = tables if is_held else ()
    return list(found.values())


def unmatched(checkpoint: str, pattern: str, storage: StorageContext) -> str:
    """A clause for a pattern that matches no file: one file that it was compared with, and a pattern that would match.

    Returns:
        "" where the pattern matches a file that a window has read, or is to read.
    """
    name = name_of(pattern.rstrip("/"))
    matches, matches_name = matcher_of(pattern), matcher_of(f"*/{name}")
    nearest = first = ""
    for manifest in manifests(checkpoint, storage):
        for part in manifest.inputs:
            if matches(part.url):
                return ""
            first = first or redacted(part.url)
            if name and not nearest and matches_name(part.url):
                nearest = redacted(part.url)
    if nearest:
        return f"patterns are compared with whole locations; '*/{name}' matches {nearest}"
    if not first:
        return "it has read none"
    by_name = f"*/{glob.escape(name_of(first))}"
    advice = f", which '{by_name}' matches" if matcher_of(by_name)(first) else ""
    return f"patterns are compared with whole locations, such as {first}{advice}"


def matching_windows(checkpoint: str, pattern: str, storage: StorageContext) -> Sequence[int]:
    """The committed windows that read any of the files that a pattern names."""
    matches = matcher_of(pattern)
    return [
        manifest.window_id
        for manifest in manifests(checkpoint, storage)
        if manifest.state != PLANNED and any(matches(each.url) for each in manifest.inputs)
    ]
