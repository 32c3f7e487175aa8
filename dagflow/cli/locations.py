"""What the command line was given to work on: an app, or a checkpoint, and what reaches it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import click

from dagflow.cli import output
from dagflow.cli.shared_options import Settings, redaction
from dagflow.errors import MissingError
from dagflow.journal import read_state
from dagflow.plan.load import load_app
from dagflow.plan.logical import LogicalPlan
from dagflow.storage.context import StorageContext
from dagflow.storage.location import is_local


def load(app: str, settings: Settings, overrides: Sequence[str] = ()) -> LogicalPlan:
    """Load an app, and make messages from here on show its secrets as references.

    Raises:
        AppError: The app has mistakes.
    """
    with output.reserved_for_results():
        logical = load_app(app, overrides=list(overrides))
    settings.redact = redaction(logical.spec.secrets if logical.spec else {})
    settings.note = partial(note_beside, app=app)
    return logical


def note_beside(error: BaseException, app: str) -> None:
    """Add to the error of a missing file that one of its name lies beside the app, where that is so."""
    if not isinstance(error, MissingError) or not app or not is_local(error.url) or Path(error.url).is_absolute():
        return
    folder = Path(app).parent
    if folder.resolve() != Path.cwd() and (folder / error.url).exists():
        error.add_note(
            f"    {error.url} was looked for in {Path.cwd()}, and one is beside the app: start dagflow in {folder}, or "
            f"name it {folder / error.url}"
        )


def storage_of(app: str | None, settings: Settings) -> StorageContext:
    """Reaches stores as an app does, where one is given, or else as the environment says.

    Raises:
        AppError: The app has mistakes.
    """
    if app is None:
        return StorageContext.default()
    return load(app, settings).attributes.storage_context()


def locate(checkpoint: str, app: str | None, settings: Settings) -> tuple[str, StorageContext]:
    """The checkpoint that a command was given, or that of the app file that it was given instead.

    Args:
        checkpoint: URL of a checkpoint, or an app file.
        app: An app that says how to reach the checkpoint; None for the environment, or the app file itself.
        settings: Of the command line.

    Returns:
        The checkpoint's URL, and what reaches it.

    Raises:
        AppError: The app has mistakes.
    """
    if not is_app_file(checkpoint):
        require_no_file_above(checkpoint)
        return checkpoint, storage_of(app, settings)
    logical = load(checkpoint, settings)
    storage = logical.attributes.storage_context() if app is None else storage_of(app, settings)
    return logical.attributes.checkpoint, storage


def require_no_file_above(checkpoint: str) -> None:
    """Refuse a checkpoint that would lie in a file.

    Raises:
        UsageError: It would.
    """
    for path in Path(checkpoint).parents if is_local(checkpoint) else ():
        if path.is_file():
            app = f"; if it is an app, give {path} alone" if path.suffix in (".yaml", ".yml") else ""
            raise click.UsageError(f"{checkpoint} is no checkpoint: {path} is a file{app}")


def require_journal(checkpoint: str, storage: StorageContext) -> None:
    """Refuse a location at which there is no journal.

    Raises:
        UsageError: There is none.
        JournalError: It cannot be read.
        StorageError: The store failed.
    """
    try:
        read_state(storage.objects(checkpoint))
    except MissingError as error:
        raise click.UsageError(f"there is no journal at '{error.url}'") from error


def require_directory(checkpoint: str) -> None:
    """Refuse a place for a checkpoint that is a file, or would lie in one.

    Raises:
        UsageError: It is, or would.
    """
    require_no_file_above(checkpoint)
    if is_local(checkpoint) and Path(checkpoint).is_file():
        raise click.UsageError(f"{checkpoint} is a file, and a checkpoint is a directory")


def is_app_file(location: str) -> bool:
    """Whether what stands for a checkpoint on the command line is an app file: a checkpoint is a directory."""
    path = Path(location)
    return path.is_file() or (path.suffix in (".yaml", ".yml") and not path.exists() and is_local(location))
