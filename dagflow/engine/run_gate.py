"""Admits one run at a time to a checkpoint, and keeps an app off another app's checkpoint."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path

from dagflow.engine.preparation import output_locations
from dagflow.engine.stop_request import StopRequest
from dagflow.errors import AlreadyExistsError, JournalError, LiveRunError, RunStoppedError
from dagflow.frozen import frozen
from dagflow.journal.heartbeat import STALE_AFTER_S, Heartbeat, beating, heartbeat_name, newest_heartbeat, time_text
from dagflow.plan.logical import LogicalPlan
from dagflow.spec.head_reader import read_head
from dagflow.storage.location import absolute, redacted
from dagflow.storage.objects import ObjectStore

_LOOK_EVERY_S = 1.0


@frozen
class RunGate:
    """Admits a run to a checkpoint that no other live run uses.

    Attributes:
        is_chosen: Whether the command line names the checkpoint, regardless of the app's own.
        patience_s: How long to wait for a heartbeat of a run whose process cannot be seen from here.
    """

    store: ObjectStore
    notice: Callable[[str], None]
    stop: StopRequest
    is_chosen: bool = False
    take_over: bool = False
    patience_s: float = STALE_AFTER_S

    def claim(self, app: LogicalPlan, first: Heartbeat) -> int:
        """Write a heartbeat numbered after those of all earlier runs; if several runs do this at once, one succeeds."""
        while True:
            number, newest = newest_heartbeat(self.store)
            if newest is not None:
                if not newest.has_ended and not self._is_over(number, newest):
                    continue  # it has just ended, and the next look finds how
                self._require_same_app(app, first.app_file, newest)
            try:
                self.store.create(heartbeat_name(number + 1), beating(first))
            except AlreadyExistsError:
                continue  # another run was faster, and the next look finds it
            return number + 1

    def require_free(self) -> None:
        """Refuse a command that only writes into the journal while another run is live."""
        number, newest = newest_heartbeat(self.store)
        if newest is None or newest.has_ended:
            return
        try:
            self._is_over(number, newest)
        except LiveRunError as error:
            end = f"end it first: kill {newest.process.pid} on {newest.process.host}"
            raise LiveRunError(error.message, url=error.url, hint=end) from error

    def _is_over(self, number: int, newest: Heartbeat) -> bool:
        """Whether a run that has not recorded its end is dead, or to be replaced; False if it is just ending."""
        existence = newest.existence()
        if existence == "gone":
            return True
        if self.take_over:
            self.notice(f"takes over from {newest.who()}, which {newest.fate()}")
            return True
        if existence == "unknown":
            beats = self._beats(number, newest)
            if beats is None:
                self.notice(
                    f"{newest.who()}, has written no heartbeat for {self.patience_s:.0f} s: it counts as dead, and "
                    "this run takes over its work"
                )
                return True
            if not beats:
                return False
        raise LiveRunError(
            f"another run is at work on this checkpoint: {_described(newest)}",
            url=redacted(self.store.url),
            hint=_way_out(newest, is_paused=existence == "paused"),
        )

    def _beats(self, number: int, known: Heartbeat) -> bool | None:
        """Whether a run whose process cannot be seen from here writes heartbeats, or ends, while this one watches.

        Clocks of two machines may differ, so only a change of the heartbeat counts.

        Returns:
            None where nothing changes.
        """
        self.notice(
            f"another run may be at work on this checkpoint: {_described(known)}; whether it is live is known within "
            f"{self.patience_s:.0f} s, and --take-over does not wait"
        )
        looks = math.ceil(self.patience_s / _LOOK_EVERY_S)
        for _ in range(looks):
            if self.stop.wait(self.patience_s / looks):
                raise RunStoppedError("stopped while it waited to see whether another run is live")
            found, newest = newest_heartbeat(self.store)
            if (found, newest) != (number, known):
                return newest is not None and not newest.has_ended
        return None

    def _require_same_app(self, app: LogicalPlan, file: str, last: Heartbeat) -> None:
        """Refuse an app where the last run was of another one whose file still exists and names this checkpoint.

        A file that was moved, copied or edited counts as the same app: it publishes into the same locations.
        """
        other = last.app_file
        path, other_path = _bytes_of(file), _bytes_of(other)
        if not file or not other or os.path.realpath(path) == os.path.realpath(other_path):
            return
        if not os.path.isfile(other_path):
            if last.app == app.name:
                self.notice(f"the last run here was of {other}, which no longer exists: it counts as moved to {file}")
            return
        here = os.fsdecode(other_path)
        if Path(here).read_bytes() == Path(file).read_bytes():
            return
        head = read_head(here)
        is_rival = head is not None and head.name == last.app and absolute(head.checkpoint) == self.store.url
        outputs = output_locations(app)
        is_elsewhere = bool(outputs and last.outputs) and not outputs & set(last.outputs)
        if is_rival and not self.is_chosen and (last.app != app.name or is_elsewhere):
            raise JournalError(
                f"this is the checkpoint of the app '{last.app}' in {other}, and '{app.name}' in {file} is another "
                "app" + (", which publishes elsewhere" if last.app == app.name else ""),
                url=redacted(self.store.url),
                hint=f"give {file} a `checkpoint` of its own; if it is to replace the other one, move that file away",
            )
        if last.app == app.name:
            self.notice(
                f"the last run here was of {other}, this one is of {file}. If they are two apps, give one of them a "
                "checkpoint of its own: on one checkpoint, neither reads what the other has read"
            )


def _bytes_of(path: str) -> bytes:
    """A path as bytes of the file system, independent of the encoding of this run's, or an earlier one's, locale."""
    return path.encode("utf-8", "surrogateescape")


def _described(newest: Heartbeat) -> str:
    what = f"`dagflow {newest.command} {newest.app_file}`" if newest.app_file else f"the app '{newest.app}'"
    return f"{newest.who()}, {what}, last heartbeat {_ago(newest)}"


def _ago(newest: Heartbeat) -> str:
    clock = "" if newest.process.is_of_this_kernel() else f" (at {time_text(newest.beat_ms)} by its clock)"
    return f"{max(newest.age_s(), 0):.0f} s ago{clock}"


def _way_out(newest: Heartbeat, *, is_paused: bool) -> str:
    where = f"kill {newest.process.pid} on {newest.process.host}"
    if is_paused:
        return f"it is paused: resume it (kill -CONT {newest.process.pid}), end it, or replace it with --take-over"
    return f"let it do the work, or end it ({where}) and start again, or replace it with --take-over"
