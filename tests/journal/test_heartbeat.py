"""What a heartbeat says of its driver, and what is seen of it."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagflow.errors import StorageError
from dagflow.journal.frames import decode, from_json
from dagflow.journal.heartbeat import (
    STALE_AFTER_S,
    Heartbeat,
    ProcessIdentity,
    RunState,
    beating,
    heartbeat_name,
    newest_heartbeat,
)
from dagflow.storage.backends.local import LocalObjectStore

HERE = ProcessIdentity.of_this_process()
ELSEWHERE = replace(HERE, host="mill7", boot="of mill7", user="ann", pid=7)
GONE = replace(HERE, start_ticks=HERE.start_ticks - 1)


def beat(process: ProcessIdentity = ELSEWHERE, age_s: float = 0.0, **fields: Any) -> Heartbeat:
    """Return the heartbeat of another process, so many seconds old."""
    beat_ms, uptime_ms = int((time.time() - age_s) * 1000), int((time.monotonic() - age_s) * 1000)
    return Heartbeat(process, "n", "run", "app", "/app.yaml", 0, beat_ms=beat_ms, uptime_ms=uptime_ms, **fields)


@pytest.mark.parametrize(
    ("process", "age_s", "state", "standing", "fate"),
    [
        (ELSEWHERE, 0, "starting", "starting", "is at work"),
        (ELSEWHERE, 0, "waiting", "waiting", "is at work"),
        (ELSEWHERE, STALE_AFTER_S + 5, "running", "stalled", "gives no sign of life since"),
        (GONE, 0, "running", "killed", "was killed"),
        (GONE, 0, "completed", "completed", "has completed"),
        (ELSEWHERE, 1e6, "stopped", "stopped", "was stopped"),
        (ELSEWHERE, 0, "failed", "failed", "has failed"),
    ],
)
def test_what_is_known_of_a_run_follows_from_beat_and_process(
    process: ProcessIdentity, age_s: float, state: RunState, standing: str, fate: str
) -> None:
    """Its last word counts; else the process, where it can be seen; else the age of the beat."""
    heartbeat = beat(process, age_s, state=state)
    assert heartbeat.standing() == standing
    assert heartbeat.fate().startswith(fate)


def test_a_run_of_this_process_lives_as_long_as_its_thread() -> None:
    """One that has ended in this process is gone, although the process is there."""
    assert beat(HERE, state="running").standing() == "killed"


@given(st.floats(0, 1e6), st.floats(-1e5, 1e5))
def test_the_age_of_a_beat_of_this_machine_needs_no_set_clock(age_s: float, wrong_s: float) -> None:
    """However wrong the time of day was when it was written; another machine's time is all that there is of it."""
    heartbeat = beat(replace(HERE, pid_space="a container"), age_s)
    wrong = replace(heartbeat, beat_ms=heartbeat.beat_ms + int(wrong_s * 1000))
    assert abs(wrong.age_s() - age_s) < 60
    assert abs(replace(wrong, process=ELSEWHERE).age_s() - (age_s - wrong_s)) < 60


def test_the_newest_heartbeat_is_the_one_with_the_highest_number(tmp_path: Path) -> None:
    """As it was written, with the time of writing; other names do not count."""
    store = LocalObjectStore(str(tmp_path))
    assert newest_heartbeat(store) == (0, None)
    for number in (2, 11, 9):
        store.create(heartbeat_name(number), beating(beat(epoch=number)))
    store.create("heartbeat/notes", b"mine")
    number, found = newest_heartbeat(store)
    assert found is not None
    assert (number, found.epoch) == (11, 11)
    assert found == from_json(Heartbeat, decode(store.read(heartbeat_name(11)), ""), "")


@pytest.mark.parametrize("content", [b"", b"dagflow-jou", b"\0" * 100, b"something else"])
def test_a_damaged_heartbeat_says_nothing_and_keeps_its_number(tmp_path: Path, content: bytes) -> None:
    """A power loss may leave anything; the next run must not fail for it."""
    store = LocalObjectStore(str(tmp_path))
    store.create(heartbeat_name(3), content)
    assert newest_heartbeat(store) == (3, None)


class HeartbeatsVanish(LocalObjectStore):
    """A store whose heartbeats vanish between the listing and the look."""

    def read(self, name: str) -> bytes:
        """Remove, and then look."""
        self.delete([name])
        return super().read(name)


def test_a_heartbeat_that_is_withdrawn_meanwhile_is_none(tmp_path: Path) -> None:
    """The next older one counts, and none where there is none left."""
    store = HeartbeatsVanish(str(tmp_path))
    store.create(heartbeat_name(1), beating(beat()))
    assert newest_heartbeat(store) == (0, None)


class FailsToList(LocalObjectStore):
    """A store that answers nothing."""

    def list(self, directory: str, after: str = "") -> Any:
        """Refuse."""
        raise StorageError("no", url=self.url)


def test_a_store_that_refuses_is_no_missing_heartbeat(tmp_path: Path) -> None:
    """What cannot be seen may live."""
    with pytest.raises(StorageError, match="no"):
        newest_heartbeat(FailsToList(str(tmp_path)))
