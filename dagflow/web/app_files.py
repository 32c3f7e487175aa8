"""The app file of a checkpoint: its text, and its content as a separate process finds it.

The app's modules run in that process, and not in the server: they are those of today, and leave nothing behind.
"""

from __future__ import annotations

import json
import logging
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dagflow.spec.shown_text import shown_yaml
from dagflow.web.checkpoints import Checkpoint, RequestError

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

        Args:
            wait_s: How long to wait for a look that is under way.

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
        """The answer of the app's splitters about a file."""
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
