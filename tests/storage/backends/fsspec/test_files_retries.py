"""Asking a store again that fails for a moment."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from aiohttp import ClientResponseError, RequestInfo
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from dagflow.errors import MissingError, StorageError, TransientStorageError
from dagflow.storage.backends.fsspec import files
from dagflow.storage.backends.fsspec.files import LOOK_PATIENCE_S, MOST_PAUSE_S, PATIENCE_S, TRIES, answered


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pause as in a run; the waits are only noted."""
    monkeypatch.setattr(files, "FIRST_PAUSE_S", 0.5)


def refused(retry_after: str = "") -> TransientStorageError:
    """What is made of a server's 503, which may say how long to wait."""
    headers = CIMultiDictProxy(CIMultiDict({"retry-after": retry_after} if retry_after else {}))
    url = URL("http://host/a")
    error = TransientStorageError("busy", url=str(url))
    error.__cause__ = FileNotFoundError(url)
    error.__cause__.__cause__ = ClientResponseError(RequestInfo(url, "GET", headers, url), (), headers=headers)
    return error


def asked(
    *errors: StorageError, waits: list[float], clock: Iterator[float] | None = None, patience_s: float = PATIENCE_S
) -> str:
    """Ask a store that raises these errors before it answers."""
    left = iter(errors)

    def ask() -> str:
        for error in left:
            raise error
        return "answer"

    now = (lambda: 0.0) if clock is None else clock.__next__
    return answered(ask, patience_s=patience_s, wait=waits.append, clock=now)


def test_pauses_grow_until_the_store_answers() -> None:
    """The last attempt's error is the one that is raised."""
    waits: list[float] = []
    assert asked(waits=waits) == "answer"
    assert asked(*[refused()] * (TRIES - 1), waits=waits) == "answer"
    assert waits == [0.5, 1.0, 2.0, 4.0, 8.0]
    with pytest.raises(TransientStorageError, match="last"):
        asked(*[refused()] * (TRIES - 1), TransientStorageError("last", url="a"), waits=[])


def test_other_errors_are_reported_at_once() -> None:
    """A file that is missing stays so."""
    waits: list[float] = []
    with pytest.raises(MissingError, match="none"):
        asked(MissingError("none", url="a"), waits=waits)
    assert waits == []


@pytest.mark.parametrize(
    ("retry_after", "pause_s"), [("7", 7.0), ("0", 0.5), ("3600", MOST_PAUSE_S), ("Mon, 23 Nov 2026 10:00:00 GMT", 0.5)]
)
def test_a_server_says_how_long_to_wait(retry_after: str, pause_s: float) -> None:
    """Not for less than the pause, nor for longer than a run waits; a date is passed over."""
    waits: list[float] = []
    assert asked(refused(retry_after), waits=waits) == "answer"
    assert waits == [pause_s]


def test_a_store_that_takes_long_to_fail_is_not_asked_again() -> None:
    """It was waited for already; a task is tried again all the same."""
    waits: list[float] = []
    with pytest.raises(TransientStorageError, match="busy"):
        asked(*[refused()] * 3, waits=waits, clock=iter([100.0, 101.0, 100.0 + PATIENCE_S]))
    assert waits == [0.5]


@pytest.mark.parametrize(("retry_after", "pauses"), [("", [0.5]), ("7", [])])
def test_a_look_at_a_file_is_short(retry_after: str, pauses: list[float]) -> None:
    """A following run can stop, and a user gets an answer, while a server fails."""
    waits: list[float] = []
    with pytest.raises(TransientStorageError, match="busy"):
        asked(*[refused(retry_after)] * TRIES, waits=waits, clock=iter([0.0, 0.1, 0.7]), patience_s=LOOK_PATIENCE_S)
    assert waits == pauses
