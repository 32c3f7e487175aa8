"""`dagflow rejects`: lists refused records with reasons, and reads them again."""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

import click

from dagflow.cli import output
from dagflow.cli.commands.replay import app_to_repeat, repeat_options
from dagflow.cli.commands.status import NOT_READ
from dagflow.cli.locations import journal_required, locate
from dagflow.cli.output import count, on_one_line
from dagflow.cli.progress import display_for, logging_to
from dagflow.cli.render import concern_lines
from dagflow.cli.shared_options import Settings, unknown
from dagflow.cli.signals import on_driver_thread, stop_requested_by_signals
from dagflow.engine.repeatable import why_not_replayed
from dagflow.engine.run import run as engine_run
from dagflow.engine.run_setup import RunOptions
from dagflow.engine.window_repair import why_gone
from dagflow.errors import JournalError, RunStoppedError
from dagflow.frozen import mutable
from dagflow.journal.reader import read_state
from dagflow.plan.logical import LogicalPlan
from dagflow.plan.placement import PlacedApp, describe
from dagflow.report.manifest import unmatched
from dagflow.report.open_rejects import (
    RejectChoice,
    RejectGroup,
    ShownReject,
    WindowRejects,
    grouped,
    open_rejects,
    shown,
)
from dagflow.storage.context import StorageContext
from dagflow.storage.location import redacted
from dagflow.suggestions import command_to_replay, command_to_run

ACTIONS = ("list", "show", "replay")
MOST_GROUPS = 50
NOTHING_CHOSEN = "no refused record matches"
STOPPING = "stopping: windows that are not committed publish nothing; a second signal (Ctrl-C) stops at once"


@click.command("rejects")
@click.argument("checkpoint", metavar="CHECKPOINT|APP")
@click.argument("action", metavar="[list|show|replay]", default="list", required=False)
@click.option("--reason", "reasons", multiple=True, metavar="TEXT", help="Only records whose reason contains TEXT.")
@click.option("--files", "pattern", default="", metavar="GLOB", help="Only records of files that match GLOB.")
@click.option(
    "-n", "most", type=click.IntRange(min=0), default=3, show_default=True, metavar="N",
    help="With show: number of records for each reason and file; 0 for all.",
)  # fmt: skip
@repeat_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
@click.pass_obj
def command(
    settings: Settings,
    /,
    checkpoint: str,
    action: str,
    reasons: tuple[str, ...],
    pattern: str,
    most: int,
    app: str | None,
    overrides: tuple[str, ...],
    as_json: bool,
    **run: Any,
) -> int:
    """List refused records with reasons, or read them again.

    list groups the records that are refused by reason and file. show prints some of each, with column, value and text.
    replay reads the same bytes again with the app as it is today: what is accepted now is published, once, by windows
    of its own; the rest stays refused. Records that the unchanged app has already refused are not tried again, so that
    a second replay does nothing. Replay is refused while a run is active on the checkpoint.
    """
    if checkpoint in ACTIONS:  # typed in the other order, which means the same
        checkpoint, action = action, checkpoint
    if action not in ACTIONS:
        raise click.UsageError(unknown("action", action, ACTIONS))
    choice = RejectChoice(reasons, pattern)
    with journal_required(checkpoint):
        if action == "replay":
            options = RunOptions(rejects=choice, owns_process=True, **run)
            return _replay(settings, checkpoint, app, overrides, options, as_json=as_json)
        location, storage = locate(checkpoint, app, settings)
        if action == "show":
            rejects = list(shown(open_rejects(location, storage), choice, most))
            if as_json:
                output.result(json.dumps({"rejects": list(map(_as_json, rejects))}, ensure_ascii=False))
            elif rejects:
                output.result("\n".join(line for reject in rejects for line in _lines(reject)))
            else:
                output.note(_why_no_file(location, choice, storage) or NOTHING_CHOSEN)
        else:
            groups = grouped(open_rejects(location, storage), choice)
            _list(groups, "" if groups else _why_no_file(location, choice, storage), as_json=as_json)
    return 0


def _why_no_file(checkpoint: str, choice: RejectChoice, storage: StorageContext) -> str:
    """Why no file matches the pattern; "" where one does, or no pattern was given."""
    compared = unmatched(checkpoint, choice.files, storage) if choice.files else ""
    return compared and f"{NOT_READ}: {compared}"


def _list(groups: Sequence[RejectGroup], why_no_file: str, *, as_json: bool) -> None:
    records, size_bytes = sum(group.records for group in groups), sum(group.bytes for group in groups)
    sized = sum(group.sized for group in groups)
    if as_json:
        output.result(
            json.dumps({"records": records, "bytes": size_bytes, "groups": [asdict(group) for group in groups]})
        )
        return
    if why_no_file:
        output.result(why_no_file)
        return
    by_reason: dict[str, list[RejectGroup]] = {}
    for group in groups:
        by_reason.setdefault(group.reason, []).append(group)
    # The bytes of records with columns that an operator refused are not known.
    share = f" of {sized:,} of them" if sized < records else ""
    lines = [f"{count(records, 'record')} refused" + (f", {count(size_bytes, 'byte')}{share}" if sized else "")]
    left = MOST_GROUPS
    for reason, own in sorted(by_reason.items(), key=lambda item: -sum(each.records for each in item[1])):
        lines += ["", f"{sum(group.records for group in own):,}  {reason}"]
        lines += [f"    {group.records:,}  {on_one_line(group.file)}" for group in own[:left]]
        if len(own) > left:
            lines.append(f"    and {count(len(own) - left, 'file')} more; --json lists all")
        left = max(1, left - len(own))
    output.result("\n".join(lines))


_MOST_READ = 64 << 20
"""Bytes of a file that are read to count the lines before a record."""


def _line_of(reject: ShownReject) -> str:
    """Where an editor finds the record, in a file of this machine that still has it there; "" elsewhere.

    The lines of a file that gzip, bzip2, zstd or lz4 has compressed are those of its content.
    """
    if not reject.raw or not 0 <= reject.offset <= _MOST_READ:
        return ""
    # Imported late: few of the command's uses need it.
    import pyarrow as pa

    try:
        with pa.input_stream(reject.file, compression="detect") as file:
            before, record = file.read(reject.offset), file.read(len(reject.raw))
    except (OSError, ValueError):
        return ""
    return f", line {before.count(10) + 1:,}" if record == reject.raw else ""


def _lines(reject: ShownReject) -> Iterator[str]:
    end = reject.offset + reject.length
    yield f"{on_one_line(reject.file)} [{reject.offset}, {end}){_line_of(reject)}, window {reject.window}"
    yield f"    {reject.reason.partition(', in: ')[0]}"
    if reject.raw is not None:
        value = output.text_or_base64(reject.raw)
        # Bytes that are no text are written as Python writes them.
        text = on_one_line(value) if isinstance(value, str) else repr(reject.raw)[2:-1]
        yield f"    {text}{'…' if reject.length > len(reject.raw) else ''}"


def _as_json(reject: ShownReject) -> dict[str, Any]:
    value = asdict(reject)
    raw = value.pop("raw")
    content = {} if raw is None else output.text_or_base64(raw)
    return value | ({"text": content} if isinstance(content, str) else content)


@mutable
class _Counts:
    """How many records are refused.

    Attributes:
        untried: Chosen records that a reader refused, and that this app has not tried.
        behind: Windows in which operators behind a reader refused some of the chosen ones.
        shared: Those of these windows that have untried records as well.
    """

    all: int = 0
    chosen: int = 0
    untried: int = 0
    behind: tuple[int, ...] = ()
    shared: tuple[int, ...] = ()


def _count(
    app: LogicalPlan, rejects: Iterable[WindowRejects], choice: RejectChoice, apart_from: Collection[int] = ()
) -> _Counts:
    current = describe(app).fingerprint
    counts, behind, to_try = _Counts(), dict[int, None](), set[int]()
    for part in rejects:
        if part.window_id in apart_from:
            continue
        mask = choice.mask(part)
        counts.all += len(mask)
        counts.chosen += int(mask.sum())
        if part.can_be_read_again:
            is_untried = mask & part.records.matches("app", lambda name: name != current)
            counts.untried += int(is_untried.sum())
            if is_untried.any():
                to_try.add(part.window_id)
        elif mask.any():
            behind[part.window_id] = None
    counts.behind = tuple(behind)
    counts.shared = tuple(window for window in behind if window in to_try)
    return counts


def _replay(
    settings: Settings,
    /,
    checkpoint: str,
    app: str | None,
    overrides: Sequence[str],
    options: RunOptions,
    *,
    as_json: bool,
) -> int:
    logical, checkpoint, storage = app_to_repeat(checkpoint, app, settings, overrides)
    choice = options.rejects or RejectChoice()
    before = after = _count(logical, open_rejects(checkpoint, storage), choice)
    if before.shared and why_not_replayed(PlacedApp.of(logical, storage)) is None:
        # A part of the chosen records would never come back.
        raise JournalError(
            "readers, and operators behind them, have refused records of the same windows, such as window "
            f"{before.shared[0]}: if only the readers' come back, those of the other operators are lost",
            url=checkpoint,
            hint="let all of them come back together: fix the app for both, and run "
            + command_to_replay(checkpoint, before.shared, is_local=options.workers is not None)
            + "; or choose with --reason those that may come back alone",
        )
    windows, code = 0, 0
    if before.untried:
        # Windows of an earlier run, which this one finishes: their rejects were not among the records.
        planned = read_state(storage.objects(checkpoint)).planned.values()
        unfinished = [plan.window_id for plan in planned if not plan.retries]
        display = display_for(logical.name, settings.redact, is_quiet=False, is_plain=True)
        options = replace(options, checkpoint=checkpoint)
        with logging_to(display, is_verbose=settings.is_verbose), stop_requested_by_signals(STOPPING) as stop:
            done = on_driver_thread(lambda: engine_run(logical, options, display, stop))
        for line in concern_lines(done):
            output.note(settings.redact(line))
        windows, code = done.windows, RunStoppedError.exit_code if done.state == "stopped" else 0
        after = _count(logical, open_rejects(checkpoint, storage), choice, unfinished)
    obstacle = why_not_replayed(PlacedApp.of(logical, storage)) if after.behind else None
    why_no_file = "" if before.chosen else _why_no_file(checkpoint, choice, storage)
    is_local = options.workers is not None
    changed = "" if before.untried or before.behind else _why_changed(logical, checkpoint, choice, storage, is_local)
    for line in _summary(before, after, checkpoint, obstacle, why_no_file, changed, is_local=is_local):
        output.note(settings.redact(line))
    if as_json:
        result = {"accepted": before.all - after.all, "refused": after.all, "unread": after.untried, "windows": windows}
        output.result(json.dumps(result))
    return code


def _why_changed(
    app: LogicalPlan, checkpoint: str, choice: RejectChoice, storage: StorageContext, is_local: bool
) -> str:
    """Which file was repaired since it had records refused, and what reads it; "" for none."""
    newest = {
        block.url: block.version
        for part in open_rejects(checkpoint, storage)
        if choice.mask(part).any()
        for block in part.blocks.values()
    }
    changed = [redacted(url) for url, version in newest.items() if why_gone(url, version, storage)]
    if not changed:
        return ""
    others = f", and {len(changed) - 1:,} other files" if len(changed) > 1 else ""
    run = command_to_run(app.spec.file if app.spec is not None else "", is_local=is_local)
    since = f"{changed[0]}{others} changed since records of it were refused, or is gone"
    return f"{since}: {run} reads it as it is now, if none has yet"


def _summary(
    before: _Counts,
    after: _Counts,
    checkpoint: str,
    obstacle: JournalError | None,
    why_no_file: str,
    changed: str,
    *,
    is_local: bool,
) -> Iterator[str]:
    if not before.chosen:
        yield why_no_file or NOTHING_CHOSEN
    elif changed:
        yield changed
    elif not before.untried and not before.behind:
        yield f"the app is as it was when it refused {count(before.chosen, 'record')}; change it, and replay them then"
    elif before.untried:
        yield f"{count(before.all - after.all, 'record')} accepted; {after.all:,} of {before.all:,} stay refused"
    if after.untried and before.untried:
        yield (
            f"    {count(after.untried, 'record')} could not be read again: the file has changed, or is gone, since; "
            f"see dagflow rejects {shlex.quote(checkpoint)} list"
        )
    if after.behind:
        again = "operators behind a reader have refused records, which only their whole windows give once more"
        if obstacle is None:
            replay = command_to_replay(checkpoint, after.behind, is_local=is_local)
            yield f"{again}: fix what they refuse them for, in the app or in a lookup table, and run {replay}"
        else:
            reason = f"this app cannot process a window again: {obstacle.message}"
            yield f"{again}, and {reason}; fix the app, and {obstacle.hint}"
