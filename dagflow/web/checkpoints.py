"""What a server shows: checkpoints, how pages name them, the parameters of requests, and app files.

The modules of an app run in a process of their own: they are those of today, and leave nothing behind in the server.
"""

from __future__ import annotations

import json
import logging
import os
import re
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dagflow.errors import DagflowError
from dagflow.frozen import frozen, mutable
from dagflow.journal.heartbeat import Heartbeat, newest_heartbeat
from dagflow.journal.log import LOG, SNAPSHOTS
from dagflow.journal.reader import read_journal
from dagflow.journal.state import JournalState
from dagflow.report.concerns import OldRows
from dagflow.report.reading import CheckpointReading, read_checkpoint
from dagflow.report.snapshot import RunSnapshot
from dagflow.spec.shown_text import shown_yaml
from dagflow.storage.base import ObjectStore
from dagflow.storage.context import StorageContext
from dagflow.storage.location import absolute, redacted

_ODD = re.compile(r"[^a-z0-9]+")


Mark = tuple[str, str, str]
"""The nonce of the newest run, the names of the newest record and of the newest snapshot.

It changes where a journal has grown, or was replaced: one that begins anew has the same names, and other runs.
"""


@mutable
class KeptJournal:
    """The state of a journal when it was read last; requests only read it.

    Attributes:
        journal: The store and the state; None before the first time.
        looking: Held while old rows are looked for: all windows are read, and other requests do not wait for that.
        old_rows: What later versions of files have left of earlier ones, by the mark at which it was looked for.
    """

    lock: threading.Lock = field(default_factory=threading.Lock)
    mark: Mark | None = None
    journal: tuple[ObjectStore, JournalState] | None = None
    looking: threading.Lock = field(default_factory=threading.Lock)
    old_rows: dict[Mark, tuple[OldRows, ...] | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint that is shown.

    Attributes:
        app: The app file that was named on the command line, or "".
        id: Names it in addresses: lower-case letters, digits and hyphens; "" before it is named.
    """

    url: str
    storage: StorageContext
    app: str = ""
    id: str = ""
    kept: KeptJournal = field(default_factory=KeptJournal, repr=False, compare=False)

    def read(self) -> CheckpointReading:
        """The state of the checkpoint now; any error becomes a part of it."""
        return read_checkpoint(self.url, self.storage)

    def journal(self) -> tuple[ObjectStore, JournalState]:
        """The store, with the named roots of the newest run, and the state of the journal."""
        with self.kept.lock:
            mark = self.mark()[0]
            # A record that comes while the journal is read shows with the next request, which finds another mark.
            if self.kept.journal is None or self.kept.mark != mark:
                self.kept.journal = None
                self.kept.journal, self.kept.mark = read_journal(self.storage, self.url), mark
            return self.kept.journal

    def with_old_rows(self, snapshot: RunSnapshot) -> RunSnapshot:
        """The snapshot of a run that has ended, with the rows that stay of earlier versions of files."""
        # Heavy, and seldom needed.
        from dagflow.engine.window_replay import with_old_rows

        mark = self.mark()[0]
        with self.kept.looking:
            if mark not in self.kept.old_rows:
                self.kept.old_rows = {mark: with_old_rows(snapshot, self.url, self.storage).old_rows}
            return replace(snapshot, old_rows=self.kept.old_rows[mark])

    def mark(self) -> tuple[Mark, Heartbeat | None]:
        """The mark of the journal with the newest heartbeat, and that heartbeat.

        Three listings of a few names and one small object: no journal is read.
        """
        store = self.storage.objects(self.url)
        # The heartbeat comes first: a new run's nonce beside names of the old journal would fit the new one later.
        heartbeat = newest_heartbeat(store)[1]
        run = "" if heartbeat is None else heartbeat.nonce
        return (run, max(store.list(LOG), default=""), max(store.list(SNAPSHOTS), default="")), heartbeat

    @property
    def shown_url(self) -> str:
        return redacted(self.url)


def named(checkpoints: Iterable[Checkpoint]) -> Mapping[str, Checkpoint]:
    """Checkpoints by the ids that addresses name them by, with a number if need be.

    An id is the last part of the location that says more than where apps usually write: of `orders/journal`, as init
    has it, and of `orders/out/journal`, `orders`.
    """
    found: dict[str, Checkpoint] = {}
    by_url = {absolute(each.url): each for each in reversed(list(checkpoints))}
    for url, checkpoint in reversed(by_url.items()):
        place = redacted(url).rstrip("/").removesuffix("/journal").removesuffix("/out")
        stem = place.rpartition("/")[2].removesuffix(".journal").lower()
        base = _ODD.sub("-", stem).strip("-") or "checkpoint"
        number, name = 2, base
        while name in found:
            number, name = number + 1, f"{base}-{number}"
        found[name] = replace(checkpoint, url=url, id=name)
    return found


READING_S = 1.0
"""About how many seconds one request reads the journal; its answer says how far it came, and the next one goes on."""

MOST_ROWS = 1000
_MOST_DIGITS = 18
_MOST_CHARACTERS = 4096
"""A path may have as many."""


class RequestError(DagflowError):
    """Raised when a request asks for something that does not exist, or that is invalid.

    Attributes:
        status: The status code of HTTP that answers it.
    """

    def __init__(self, message: str, hint: str = "", status: int = 400) -> None:
        super().__init__(message, hint=hint)
        self.status = status


def is_number(text: str) -> bool:
    """Whether a text is a whole number that a row may have: Python refuses to convert numbers of very many digits."""
    return text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS


def reading_deadline() -> float:
    """The moment of the monotonic clock after which a request that begins to read now looks at no further window.

    It looks at one at least, however long that takes: otherwise no request would come further than the one before.
    """
    return time.monotonic() + READING_S


@frozen
class Query:
    values: Mapping[str, str]

    def text(self, name: str) -> str:
        """The text of a parameter; "" where it is not given.

        Raises:
            RequestError: The parameter is longer than any name, or holds a character that is in none.
        """
        text = self.values.get(name, "")
        if len(text) > _MOST_CHARACTERS:
            raise RequestError(f"{name} has {len(text)} characters, and may have {_MOST_CHARACTERS}")
        if "\0" in text:
            raise RequestError(f"{name} holds the character 0, which no name has")
        return text

    def number(self, name: str, default: int = 0, *, least: int = 0) -> int:
        """The number that a parameter is.

        Raises:
            RequestError: The parameter is not a whole number of at least `least`.
        """
        text = self.text(name)
        if not text:
            return default
        if not (is_number(text) and int(text) >= least):
            raise RequestError(f"{name} must be a whole number of at least {least}, not {text[:40]!r}")
        return int(text)

    def limit(self, default: int) -> int:
        return min(self.number("limit", default) or default, MOST_ROWS)


@frozen
class Cursor:
    """A place in a list, the newest windows first.

    Attributes:
        before: Windows below this id are still to be listed; 0 for all.
        position: How many rows of the first of these windows were listed.
    """

    before: int = 0
    position: int = 0

    @classmethod
    def of(cls, text: str) -> Cursor:
        """Parse a cursor; "" is the beginning of the list."""
        if not text:
            return cls()
        parts = text.split(".")
        if len(parts) != 2 or not all(map(is_number, parts)):
            raise RequestError(f"after must be the value of next in an earlier answer, not {text[:40]!r}")
        return cls(*map(int, parts))

    def __str__(self) -> str:
        return f"{self.before}.{self.position}"


logger = logging.getLogger(__name__)

LOOK_S = 30.0
"""Seconds after which a process that looks at an app is stopped."""

SOON_S = 0.1
"""Seconds that a page waits for a look at the app; a look that takes longer ends in an event that updates the page."""

MOST_YAML_BYTES = 1 << 20


class AppFile:
    """The app file of one checkpoint.

    Args:
        path: The app file; "" where none is known.
        directory: The working directory of the newest run, or "".

    Attributes:
        newest_run: What the app is compared with: something that differs where the newest run had another app.
        looks: How many looks have ended: what is known may differ after each.
    """

    def __init__(self, checkpoint: Checkpoint, path: str, directory: str) -> None:
        self._checkpoint = checkpoint
        self.path = path
        self._directory = directory if directory and os.path.isdir(directory) else os.getcwd()
        self._lock = threading.Lock()
        self._wanted: tuple[Any, ...] = ()
        self._looking: threading.Thread | None = None
        self._found: dict[str, Any] = {}
        self.looks = 0
        self.newest_run = ""

    @property
    def _file(self) -> Path:
        return Path(self._directory, self.path)

    def text(self) -> str | None:
        """The YAML with its secrets hidden; None where there is no such file here."""
        try:
            if not self.path or self._file.stat().st_size > MOST_YAML_BYTES:
                return None
            text = self._file.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None
        return shown_yaml(text)

    def why_not_loaded(self) -> str:
        """Why the app is not looked at, in words; "" where it is."""
        if not self.path or not self._file.is_file():
            return "The app file is not on this machine."
        # Another user's journal may name any file, and any directory to import modules from.
        if self._checkpoint.app or _are_own(self._file, self._file.parent, Path(self._directory)):
            return ""
        return (
            "Another user can change the app file or the directory of its run, so its modules are not run here; name "
            "the app on the command line of dagflow ui to have it looked at."
        )

    def look(self, wait_s: float = LOOK_S) -> dict[str, Any]:
        """The content of the app file, compared with the newest run; a change of the file reloads its modules.

        Returns:
            The result of app_process: {} where the app is not looked at, and the previous result where the newest look
            has not ended in time.
        """
        if self.why_not_loaded():
            return {}
        found = self._file.stat()
        wanted = found.st_ino, found.st_mtime_ns, found.st_size, self.newest_run
        with self._lock:
            if wanted != self._wanted:
                self._wanted = wanted
                self._looking = threading.Thread(target=self._look, args=(wanted,), name="dagflow-web-app", daemon=True)
                self._looking.start()
            looking = self._looking
        if looking is not None:
            looking.join(wait_s)
        return self._found

    def _look(self, wanted: tuple[Any, ...]) -> None:
        found = self._asked(["look", self.path, self._checkpoint.url])
        with self._lock:
            if wanted == self._wanted:
                self._found = found
                self.looks += 1

    def why(self, url: str) -> dict[str, Any]:
        if reason := self.why_not_loaded():
            raise RequestError(f"no splitter can be asked. {reason}")
        return self._asked(["why", self.path, self._checkpoint.url, url])

    def sample(self, port: str) -> dict[str, Any]:
        """The first records that reach a port today, as `dagflow preview` shows them."""
        if reason := self.why_not_loaded():
            raise RequestError(f"no record can be read. {reason}")
        return self._asked(["sample", self.path, port])

    def _asked(self, arguments: Sequence[str]) -> dict[str, Any]:
        # -P: files in the directory must not hide modules of Python or dagflow.
        command = [sys.executable, "-P", "-m", "dagflow.web.app_process", *arguments]
        # The process ends with this one, which may be killed: then the other end of its stdin is closed.
        stdin, held = os.pipe()
        try:
            with open(stdin, "rb") as end, open(held, "wb"):
                done = subprocess.run(
                    command, cwd=self._directory, capture_output=True, timeout=LOOK_S, check=False, stdin=end
                )
            found = json.loads(done.stdout)
        except (OSError, subprocess.TimeoutExpired, ValueError) as error:
            logger.warning("an app could not be looked at app=%s error=%s", self.path, type(error).__name__)
            return {"error": "the process that looks at the app has not answered"}
        return found if isinstance(found, dict) else {}


def app_file_of(checkpoint: Checkpoint) -> AppFile:
    """The app file that the command line named for a checkpoint, or else that of its newest run."""
    state = checkpoint.journal()[1]
    file = AppFile(checkpoint, checkpoint.app or state.source, "" if checkpoint.app else state.directory)
    file.newest_run = "" if state.facts is None else f"{state.facts.fingerprint} {state.last_committed > 0}"
    return file


def _are_own(*paths: Path) -> bool:
    """Whether only this user can change some files and directories."""
    for path in paths:
        found = path.stat()
        if found.st_uid not in (os.getuid(), 0) or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return False
    return True
