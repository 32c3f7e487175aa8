"""The command that continues a run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from dagflow.engine.run import RunOptions
from dagflow.storage.location import redacted

_SECRET = re.compile(r"secret|passw|token|credential|(access|account|private|api).?key", re.IGNORECASE)


def resume_command(app: str, overrides: Sequence[str], options: RunOptions) -> str:
    """The command line that continues a run: the same one, without --fresh and without secrets.

    Args:
        app: The app file as it was typed.
        overrides: What `--set` was given.
        options: The other options.
    """
    words = ["dagflow", "run", app]
    for override in overrides:
        words += ["--set", _veiled(override)]
    if options.checkpoint is not None:
        words += ["--checkpoint", redacted(options.checkpoint)]
    if options.master is not None:
        words += ["--master", options.master]
    for key, value in options.conf.items():
        words += ["--conf", _veiled(f"{key}={value}")]
    if options.follow:
        words.append("--follow")
    return shlex.join(words)


def _veiled(setting: str) -> str:
    key, _, value = setting.partition("=")
    return f"{key}=***" if _SECRET.search(key) else f"{key}={redacted(value)}"
