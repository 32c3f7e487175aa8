"""Command lines that messages suggest, with the arguments of the run."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from dagflow.engine.run_setup import RunOptions
from dagflow.runtime.cores import usable_cores
from dagflow.spec.shown_text import shown_value
from dagflow.storage.location import redacted


def resume_command(app: str, overrides: Sequence[str], options: RunOptions) -> str:
    """The command line that continues a run: the same one, without --fresh and without secrets.

    Args:
        app: The app file as it was typed.
        overrides: What `--set` was given.
        options: The other options.
    """
    words = ["dagflow", "run", app, *_settings(overrides, options)]
    if options.checkpoint is not None:
        words += ["--checkpoint", redacted(options.checkpoint)]
    if options.follow:
        words.append("--follow")
    return shlex.join(words)


def looking_command(app: str, options: RunOptions, *, has_rejects: bool) -> str:
    """The command line that shows the status of a checkpoint, or its refused records.

    Args:
        app: The app file as it was typed.
        options: The options of the run.
        has_rejects: Whether the run has refused anything.
    """
    command = "rejects" if has_rejects else "status"
    return shlex.join(["dagflow", command, app if options.checkpoint is None else redacted(options.checkpoint)])


def replay_command(checkpoint: str, overrides: Sequence[str], options: RunOptions) -> str:
    """The command line that replays windows with the arguments of a run, without window ids and without secrets.

    Args:
        checkpoint: The app's checkpoint.
        overrides: What `--set` was given.
        options: The other options of the run.
    """
    return shlex.join(["dagflow", "replay", redacted(options.checkpoint or checkpoint), *_settings(overrides, options)])


def _settings(overrides: Sequence[str], options: RunOptions) -> list[str]:
    words = []
    for override in overrides:
        setting, _, value = override.partition("=")
        # The part before the dot is the name of an operator, and says nothing about the value.
        words += ["--set", _veiled(setting, setting.partition(".")[2], value)]
    if options.workers is not None:
        words += ["--local"] if options.workers == usable_cores() else ["--local", "--workers", f"{options.workers}"]
    if options.master is not None:
        words += ["--master", options.master]
    for key, value in options.conf.items():
        words += ["--conf", _veiled(key, key, value)]
    return words


def _veiled(setting: str, name: str, value: str) -> str:
    return f"{setting}={shown_value(name, value)}"
