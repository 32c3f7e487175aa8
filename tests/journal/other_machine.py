"""A run at work on another machine, as its heartbeat tells it."""

from __future__ import annotations

from dataclasses import replace

from dagflow.journal.heartbeat import Heartbeat, ProcessIdentity, RunProgress, beating, heartbeat_name, newest_heartbeat
from dagflow.storage.context import StorageContext


def beat_at_work(checkpoint: str, progress: RunProgress | None) -> None:
    """Put the heartbeat of such a run on a checkpoint, behind those of other runs."""
    store = StorageContext.default().objects(checkpoint)
    number = newest_heartbeat(store)[0] + 1
    beat = Heartbeat(ProcessIdentity("mill7", "ann", 7), f"n{number}", "run", "sample", "", 0, "running")
    store.create(heartbeat_name(number), beating(replace(beat, progress=progress)))
