"""One snapshot of a run, or of all runs on a checkpoint: the figures that every display, JSON and status read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, field, replace
from typing import Any

from dagflow.api.context import WaitingEnd
from dagflow.errors import own_name
from dagflow.frozen import frozen
from dagflow.journal.heartbeat import Heartbeat, RunningWindow, RunProgress, RunRates, Standing
from dagflow.journal.saved_state import LeftOut
from dagflow.journal.state import JournalState, PartitionCounts
from dagflow.journal.windows import Correction, PartitionDecision, Receipt
from dagflow.metrics import names
from dagflow.metrics.counters import Counters, OperatorReport
from dagflow.report.concerns import Concern, OldRows, concerns_of
from dagflow.report.own_figures import OwnFigures, PublishedPart, own_sums
from dagflow.storage.location import redacted
from dagflow.storage.pending import HeldFile

SHOWN_RANGES = 20
"""How many of the ranges that were left out a summary shows, the newest; `status --files` shows all."""


@frozen
class OperatorFigures:
    """Figures of one operator.

    Attributes:
        stage: Head of its stage, which decides its partitions; "" in the driver, or where the app is not known.
        records: The records that left it, by output port, in the order of their names.
        bytes: The bytes of these records in memory, by output port, as far as they were measured.
        is_source: Whether it emits records and takes none in: what it emits was read.
    """

    name: str
    stage: str = ""
    records: dict[str, int] = field(default_factory=dict)
    bytes: dict[str, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    busy_s: float = 0.0
    is_source: bool = False

    def to_json(self) -> dict[str, Any]:
        """The operator in the object `operators` of JSON."""
        return {
            "records": self.records,
            "counters": dict(sorted(self.counts.items())),
            "busy_seconds": round(self.busy_s, 3),
        }


@frozen
class WholeInput:
    """How much a run will read, from its beginning to its end.

    Attributes:
        bytes: Bytes, including those that were read by now.
        is_exact: Whether all of it has been listed by the run; otherwise it is counted beside the run, and files that
            the app's rules keep back are among it.
    """

    bytes: int
    is_exact: bool = True


@frozen
class HeldGroup:
    """Windows whose records wait to be merged, and are not in their table yet.

    Attributes:
        since_ms: When the first window was committed, in milliseconds since 1970.
    """

    first_window: int
    windows: int
    files: int
    bytes: int
    records: int
    since_ms: int

    @classmethod
    def of(cls, files: Sequence[HeldFile]) -> HeldGroup:
        """The group of some held files, oldest first, at least one."""
        return cls(
            files[0].window_id,
            len({held.window_id for held in files}),
            len(files),
            sum(held.file.size_bytes for held in files),
            sum(held.file.records for held in files),
            files[0].held_ms,
        )


@frozen
class DriverReport:
    """The newest driver of a checkpoint, by its heartbeat.

    Attributes:
        state: "starting", "running", "waiting" for new files, "stopping"; "stalled": its process is paused or has not
            beaten for a while; "killed": its process is gone and left no final state; "completed", "stopped" or
            "failed".
        beat_age_s: Seconds since its last beat: by its machine's own clock if that is this one, else by those of two.
    """

    heartbeat: Heartbeat
    state: Standing
    beat_age_s: float
    is_same_machine: bool

    @classmethod
    def of(cls, heartbeat: Heartbeat | None) -> DriverReport | None:
        """The current state, from a heartbeat and a look at its process."""
        if heartbeat is None:
            return None
        return cls(heartbeat, heartbeat.standing(), heartbeat.age_s(), heartbeat.process.is_of_this_kernel())

    @property
    def is_at_work(self) -> bool:
        """Whether the driver is at work, as far as can be seen: neither stalled nor ended."""
        return self.state in ("starting", "running", "waiting", "stopping")

    def to_json(self) -> dict[str, Any]:
        """The object `driver` of `dagflow status --json`."""
        beat = self.heartbeat
        return {
            "state": self.state,
            "command": beat.command,
            "host": beat.process.host,
            "user": beat.process.user,
            "pid": beat.process.pid,
            "since_ms": beat.since_ms,
            "last_beat_ms": beat.beat_ms,
            "beat_age_seconds": round(self.beat_age_s, 3),
            "app_file": beat.app_file,
            "error": beat.error,
            "stalls": beat.stalls,
        }


def state_of_all(driver: DriverReport | None, *, is_unfinished: bool) -> str:
    """The state of all runs on a checkpoint together.

    Args:
        is_unfinished: Whether the journal holds a window that is planned or decided, and not published.

    Returns:
        "running", "stalled", "failed", "stopped" by a signal, or because the process was killed, or "completed".
    """
    if driver is not None and driver.is_at_work:
        return "running"
    if driver is not None and driver.state in ("stalled", "failed"):
        return driver.state
    is_cut_short = driver is not None and driver.state in ("stopped", "killed")
    return "stopped" if is_cut_short or is_unfinished else "completed"


@frozen
class RunSnapshot:
    """The current figures of a run, or of all runs on a checkpoint together.

    Attributes:
        state: "running", "completed", "stopped" or "failed"; "stalled" only of a journal.
        files: Files that those windows began: whose first block, or only one, was in them.
        files_in_progress: Files that all runs together have begun and not cut to their end: the next windows continue
            with them.
        operators: Figures of the operators, upstream first where the app is known.
        progress: What the run has in hand, and how fast it reads; of a journal, what the heartbeat of the run at work
            said last, a few seconds ago. None where no run is at work, or it has not said anything of it: one that
            starts, or a replay.
        last_planned, last_committed, last_published: Ids of windows, 0 for none.
        decisions: The newest changes of partition counts; only of a journal.
        waiting_bytes: Bytes of records in progress that all runs together have left to wait for their end.
        cut_bytes: Bytes of records that all runs together have read before the rest of the records was there, and again
            with it.
        reprocessing: Windows whose files a replay has decided to replace, and not all replaced; only of a journal.
        held_results: Operators whose results over several windows are held back; only of a journal.
        driver: The process that drives the runs, or did; only of a journal, and None where no heartbeat is known.
        waiting: Ends of files that all runs together have left, because they may go on, the oldest first.
        left_out: Ranges of files that all runs together have left out, and no later window has read.
        spark_start_s: Seconds that the run waited for a Spark of this machine to start; 0 without one. Only at the end.
        chose_local: Whether the run took this machine for its small input, without Spark. Only at the end.
        lost: What targets no longer have of what earlier runs have published, in words; only at the end of a run.
        without_files: The locations in which no run has found a file; only at the end of one.
        waits_for: What a run that does nothing else waits for, such as "starting Java"; "" where it works.
        whole: How much a run to completion will read; None where that is not known, and while following.
        log: Where Java, or the processes of tasks, have written their output; only at the end.
        groups: Windows whose records wait for a later one, by operator.
        backlog_bytes: Bytes of input that are known and not committed: of planned windows, and in a live run also what
            waits to be planned.
        backlog_blocks: The blocks that these bytes are in; None where some are not known to be cut yet.
        oldest_unpublished_ms: Since when the oldest input waits that a window has planned and no reader of the output
            sees, in milliseconds since 1970; 0 where nothing waits.
        phase_s: Seconds that the phases of published windows took together, by phase; see PHASES.
        corrections: The newest corrections of outputs: of a run those that it has made.
        old_rows: What outputs have of earlier versions of files; None where that was not looked for.
        run_start: The first window of the newest run that has committed new input; 0 for none.
        all_runs: All runs on the checkpoint together, as `status` shows them; only of a live run.
    """

    app: str
    state: str = "running"
    windows: int = 0
    files: int = 0
    files_in_progress: int = 0
    blocks: int = 0
    bytes: int = 0
    rejected: int = 0
    seconds: float = 0.0
    operators: tuple[OperatorFigures, ...] = ()
    partitions: dict[str, PartitionCounts] = field(default_factory=dict)
    progress: RunProgress | None = None
    last_planned: int = 0
    last_committed: int = 0
    decisions: tuple[PartitionDecision, ...] = ()
    waiting_bytes: int = 0
    cut_bytes: int = 0
    outputs: tuple[str, ...] = ()
    reprocessing: tuple[int, ...] = ()
    held_results: tuple[str, ...] = ()
    driver: DriverReport | None = None
    left_out: LeftOut = field(default_factory=LeftOut)
    waiting: tuple[WaitingEnd, ...] = ()
    spark_start_s: float = 0.0
    chose_local: bool = False
    lost: tuple[str, ...] = ()
    without_files: tuple[str, ...] = ()
    targets: dict[str, Receipt] = field(default_factory=dict)
    waits_for: str = ""
    whole: WholeInput | None = None
    published: tuple[PublishedPart, ...] = ()
    log: str = ""
    groups: dict[str, HeldGroup] = field(default_factory=dict)
    backlog_bytes: int = 0
    backlog_blocks: int | None = 0
    oldest_unpublished_ms: int = 0
    phase_s: dict[str, float] = field(default_factory=dict)
    last_published: int = 0
    corrections: tuple[Correction, ...] = ()
    old_rows: tuple[OldRows, ...] | None = None
    run_start: int = 0
    last_committed_ms: int = 0
    last_published_ms: int = 0
    all_runs: RunSnapshot | None = None

    @property
    def standing(self) -> str:
        """The state, but "killed" where a run stopped because its process was gone before it could say how it ended."""
        is_killed = self.driver is not None and self.driver.state == "killed"
        return "killed" if is_killed and self.state == "stopped" else self.state

    @property
    def running(self) -> tuple[RunningWindow, ...]:
        """Windows whose tasks run, in order."""
        return () if self.progress is None else self.progress.windows

    @property
    def rates(self) -> RunRates:
        return RunRates() if self.progress is None else self.progress.rates

    @property
    def backlog(self) -> dict[str, int]:
        """Tuples that wait to be processed, by stage head."""
        return {} if self.progress is None else self.progress.backlog

    @property
    def running_bytes(self) -> int:
        """Bytes that the tasks of running windows have read."""
        return sum(window.bytes_read for window in self.running)

    @property
    def read_bytes(self) -> int:
        """Bytes that were read by now, in committed and in running windows."""
        return self.bytes + self.running_bytes

    @property
    def live_operators(self) -> tuple[OperatorFigures, ...]:
        """Current figures of operators, in committed and in running windows."""
        running = {} if self.progress is None else self.progress.operators
        return tuple(_with_running(each, running.get(each.name)) for each in self.operators)

    @property
    def stalls(self) -> tuple[str, ...]:
        """The stalled tasks of running windows, in words."""
        return tuple(stall for window in self.running for stall in window.stalls)

    @property
    def records_read(self) -> int:
        """Records that the app's sources have emitted, in committed and in running windows."""
        return sum(sum(each.records.values()) for each in self.live_operators if each.is_source)

    @property
    def records(self) -> dict[str, int]:
        """Records that left each port, by "operator.port", as in JSON."""
        return {f"{each.name}.{port}": number for each in self._by_name() for port, number in each.records.items()}

    @property
    def counts(self) -> dict[str, int]:
        """Further counters of operators, by "operator:name", as in JSON."""
        return {
            f"{each.name}:{name}": count
            for each in self._by_name()
            for name, count in sorted(each.counts.items())
            if name not in names.TOTALS and not name.startswith(names.ALL_RESCUED)
        }

    @property
    def concerns(self) -> tuple[Concern, ...]:
        """What must not pass in silence; a strict run ends with the exit code of the first."""
        return tuple(
            concerns_of(
                {each.name: each.counts for each in self._by_name()},
                without_files=self.without_files,
                lost=self.lost,
                left_out=self.left_out.ranges,
                rejected=self.rejected,
                old_rows=self.old_rows,
                cut_bytes=self.cut_bytes,
            )
        )

    @property
    def correction_texts(self) -> list[str]:
        """What was corrected, and what was read beside earlier versions because the app says so."""
        is_warned = any(concern.name == "replaced" for concern in self.concerns)
        old_rows = [] if is_warned else [each.text for each in self.old_rows or ()]
        return [*(each.text for each in self.corrections), *old_rows]

    @property
    def has_read_again(self) -> bool:
        """Whether it has read later versions of files beside earlier ones."""
        changed = self.total(names.changed("replaced")) + self.total(names.changed("truncated"))
        return changed > self.total(names.SUPERSEDED)

    def total(self, name: str) -> int:
        return sum(each.counts.get(name, 0) for each in self.operators)

    def _by_name(self) -> Iterator[OperatorFigures]:
        return iter(sorted(self.operators, key=lambda each: each.name))

    def byte_accounting(self) -> dict[str, int]:
        """The byte accounting: how many bytes of the input were used for what. The parts add up to "bytes".

        Sizes are those after decompression. Records that wait for their end are skipped; a run that only reads the rest
        of earlier ones' records counts these whole.
        """
        waiting = max(self.total(names.WAITING_BYTES) - self.total(names.RESUMED_BYTES), 0)
        return {
            "bytes": self.total(names.CONTENT_BYTES) + self.total(names.LEFT_OUT_BYTES) + waiting,
            "records": self.total(names.RECORD_BYTES),
            "delimiters": self.total(names.DELIMITER_BYTES),
            "skipped": self.total(names.SKIPPED_BYTES) + waiting,
            "rejected": self.total(names.REJECTED_BYTES),
        }

    def to_json(self) -> dict[str, Any]:
        """The object that `dagflow run --json` prints."""
        newest = [asdict(each) | {"url": redacted(each.url)} for each in self.left_out.newest[-SHOWN_RANGES:]]
        return {
            **{name: getattr(self, name) for name in _SHOWN_OF_RUN},
            "corrections": [asdict(each) | {"output": redacted(own_name(each.output))} for each in self.corrections],
            "old_rows": [asdict(each) for each in self.old_rows or ()],
            "concerns": [asdict(concern) for concern in self.concerns],
            "operators": {each.name: each.to_json() for each in self._by_name()},
            "running": self.progress.to_json() if self.progress is not None and self.state == "running" else None,
            "account": self.byte_accounting(),
            "seconds": round(self.seconds, 3),
            "partitions": {name: asdict(known) for name, known in self.partitions.items()},
            "outputs": list(self.outputs),
            "left_out": {"ranges": self.left_out.ranges, "bytes": self.left_out.bytes, "newest": newest},
            "waiting": [end._asdict() | {"url": redacted(end.url)} for end in self.waiting[:SHOWN_RANGES]],
            "busy_seconds": {each.name: round(each.busy_s, 3) for each in self.operators if each.busy_s},
        }

    def status_json(self) -> dict[str, Any]:
        """The object that `dagflow status --json` prints."""
        return {
            **self.to_json(),
            **{name: getattr(self, name) for name in _SHOWN_OF_ALL_RUNS},
            "phase_seconds": {phase: round(seconds, 3) for phase, seconds in self.phase_s.items()},
            "decisions": [asdict(decision) for decision in self.decisions],
            "targets": {name: asdict(receipt) for name, receipt in self.targets.items()},
            "groups": {name: asdict(group) for name, group in self.groups.items()},
            "driver": None if self.driver is None else self.driver.to_json(),
        }


_SHOWN_OF_RUN = ("app", "state", "windows", "files", "blocks", "bytes", "records", "rejected", "chose_local")
_SHOWN_OF_ALL_RUNS = (
    *("files_in_progress", "counts", "last_planned", "last_committed", "last_published"),
    *("last_committed_ms", "last_published_ms", "backlog_bytes", "oldest_unpublished_ms"),
)
"""Figures that JSON has under their own names."""


def _with_running(figures: OperatorFigures, running: OperatorReport | None) -> OperatorFigures:
    if running is None:
        return figures
    done = OperatorReport(figures.busy_s, figures.records) + running
    # The records of a running window are known, but not their bytes.
    return replace(figures, records=dict(sorted(done.records.items())), busy_s=done.busy_s)


def figures_of(
    name: str, counters: Counters, busy_s: float, stage: str = "", is_source: bool = False
) -> OperatorFigures:
    own = counters.of(name)
    return OperatorFigures(name, stage, dict(sorted(own.records.items())), own.bytes, own.counts, busy_s, is_source)


def snapshot_of(journal: JournalState, counters: Counters) -> RunSnapshot:
    """A snapshot of all that a journal and counters say, which needs no app.

    Args:
        journal: State of the journal, which all runs on a checkpoint share.
        counters: Counters of the run, or of all runs.
    """
    totals = journal.totals
    waiting_bytes = sum(end.waiting_bytes for end in journal.waiting)
    return RunSnapshot(
        app=journal.app,
        files=counters.total(names.FILES),
        files_in_progress=totals.total(names.FILES) - totals.total(names.FILES_COMPLETED),
        blocks=counters.total(names.BLOCKS),
        bytes=counters.total(names.BYTES),
        rejected=counters.total(names.REJECTED),
        last_planned=journal.last_planned,
        last_committed=journal.last_committed,
        waiting_bytes=max(totals.total(names.WAITING_BYTES) - totals.total(names.RESUMED_BYTES), 0),
        cut_bytes=max(totals.total(names.RESUMED_BYTES) - totals.total(names.WAITING_BYTES) + waiting_bytes, 0),
        outputs=tuple(map(redacted, journal.outputs)),
        left_out=journal.left_out,
        waiting=tuple(journal.waiting),
        targets={own_name(name): receipt for name, receipt in journal.receipts.items()},
        groups={own_name(name): HeldGroup.of(files) for name, files in journal.held.waiting.items()},
        backlog_bytes=journal.uncommitted_bytes,
        backlog_blocks=journal.uncommitted_blocks,
        oldest_unpublished_ms=journal.oldest_unpublished_ms,
        phase_s={phase: took_ms / 1000 for phase, took_ms in journal.phase_ms.items()},
        last_published=journal.last_done,
        corrections=tuple(journal.corrections),
        run_start=journal.run_start,
        last_committed_ms=journal.last_committed_ms,
        last_published_ms=journal.last_published_ms,
    )


def snapshot_of_all(journal: JournalState) -> RunSnapshot:
    """The snapshot of all runs on a checkpoint together, but for the state of the newest one."""
    own = OwnFigures(journal.facts)
    totals, busy_s = own.counters(journal.totals), own_sums(journal.busy_s)
    return replace(
        snapshot_of(journal, journal.totals),
        reprocessing=tuple(journal.reprocessing),
        held_results=tuple(dict.fromkeys(map(own_name, journal.committed_state.held_results))),
        windows=journal.last_committed,
        operators=tuple(figures_of(name, totals, busy_s.get(name, 0.0)) for name in sorted(totals.operators)),
        partitions=own.by_stage(journal.partitions),
        decisions=tuple(replace(each, stage=own.stage(each.stage)) for each in journal.decisions),
    )
