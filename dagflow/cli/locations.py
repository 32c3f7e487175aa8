"""Resolves the arguments of a command: an app, a checkpoint and its storage, or a file to write."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import click

from dagflow.api.properties import parse_size
from dagflow.cli import output
from dagflow.cli.shared_options import Settings
from dagflow.errors import DagflowError, MissingError, MissingJournalError, OperatorError, SpecError
from dagflow.journal.reader import read_state
from dagflow.plan.load import load_app
from dagflow.plan.logical import LogicalPlan
from dagflow.spec.app_reader import read_without_operators
from dagflow.spec.app_spec import AppSpec, Attributes
from dagflow.spec.shown_text import Redactor
from dagflow.storage.backends.local.disk import replace_file
from dagflow.storage.context import StorageContext
from dagflow.storage.location import is_local


def load(app: str, settings: Settings, overrides: Sequence[str] = ()) -> LogicalPlan:
    """Load an app, and make messages from here on show its secrets as references."""
    with output.reserved_for_results():
        logical = load_app(app, overrides=list(overrides))
    assert logical.spec is not None  # it comes from a file
    _take(logical.spec, settings)
    return logical


def attributes_of(app: str, settings: Settings) -> Attributes:
    """The attributes of an app, for a command that needs no operators: their variables need not be set."""
    with output.reserved_for_results():
        spec, problems = read_without_operators(app)
    if spec is None or problems:
        raise SpecError(problems)
    _take(spec, settings)
    return spec.attributes


def _take(app: AppSpec, settings: Settings) -> None:
    redact = Redactor(app.secrets)
    settings.redact, settings.redact_document = redact, redact.without_values
    settings.note = partial(_note, app=app)


def _note(error: BaseException, app: AppSpec) -> None:
    note_beside(error, app.file)
    written = app.written(error.operator) if isinstance(error, OperatorError) else None
    if written is not None:
        place = written.place
        # What to do comes last.
        note = f"    the operator is at {place.file}:{place.line}:{place.column}"
        error.__notes__ = [note, *getattr(error, "__notes__", ())]


def note_beside(error: BaseException, app: str) -> None:
    """Add a note to the error of a missing file if the app's directory, or the one around it, has one of its name."""
    if not isinstance(error, MissingError) or not app or not is_local(error.url) or Path(error.url).is_absolute():
        return
    folder = _folder_with(error.url, app)
    if folder is not None:
        place = "beside the app" if folder == Path(app).parent else f"in {folder.resolve()}"
        note = (
            f"    {error.url} was looked for in {Path.cwd()}, and one is {place}: start dagflow in {folder}, or "
            f"name it {folder / error.url}"
        )
        # The advice that fixes the error comes first, and further notes follow.
        error.__notes__ = [note, *getattr(error, "__notes__", ())]


def _folder_with(path: str, app: str) -> Path | None:
    """The directory of an app, or the one around it, where a relative path is there, and is another one than here."""
    folder = Path(app).parent
    for each in (folder, Path(os.path.relpath(folder / ".."))):
        if each.resolve() != Path.cwd() and (each / path).exists():
            return each
    return None


def locate(checkpoint: str, app: str | None, settings: Settings) -> tuple[str, StorageContext]:
    """The checkpoint that a command was given, or that of the app file that it was given instead.

    Args:
        app: An app that says how to reach the checkpoint; None for the environment, or the app file itself.
    """
    if not is_app_file(checkpoint):
        require_no_file_above(checkpoint)
        own = None if app is None else attributes_of(app, settings)
        return checkpoint, StorageContext.default() if own is None else own.storage_context()
    attributes = attributes_of(checkpoint, settings)
    own = attributes if app is None else attributes_of(app, settings)
    return attributes.checkpoint, own.storage_context()


def require_no_file_above(checkpoint: str) -> None:
    for path in Path(checkpoint).parents if is_local(checkpoint) else ():
        if path.is_file():
            app = f"; if it is an app, give {path} alone" if path.suffix in (".yaml", ".yml") else ""
            raise click.UsageError(f"{checkpoint} is no checkpoint: {path} is a file{app}")


def require_journal(checkpoint: str, storage: StorageContext, given: str) -> None:
    with journal_required(given):
        read_state(storage.objects(checkpoint))


@contextmanager
def journal_required(given: str) -> Iterator[None]:
    """Make a missing journal a mistake of the command line."""
    try:
        yield
    except MissingJournalError as error:
        advice = ""
        if is_app_file(given):
            path = os.path.relpath(error.url) if is_local(error.url) else ".."
            folder = None if path.startswith("..") else _folder_with(path, given)
            advice = f": {given} has not run yet, and `dagflow run {given}` begins one"
            if folder is not None:
                advice = f"; there is one at {(folder / path).resolve()}: start dagflow in {folder.resolve()}"
        raise click.UsageError(f"there is no journal at '{error.url}'{advice}") from error


def require_directory(checkpoint: str) -> None:
    require_no_file_above(checkpoint)
    if is_local(checkpoint) and Path(checkpoint).is_file():
        raise click.UsageError(f"{checkpoint} is a file, and a checkpoint is a directory")


def is_app_file(location: str) -> bool:
    """A checkpoint is a directory."""
    path = Path(location)
    return path.is_file() or (path.suffix in (".yaml", ".yml") and not path.exists() and is_local(location))


def size_in_bytes(context: click.Context, option: click.Parameter, value: str | None) -> int | None:
    try:
        return None if value is None else parse_size(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def write_whole(file: Path, text: str, what: str) -> None:
    """Replace the content of a file, so that a reader sees the old or the new text as a whole.

    Devices, pipes and this process's own output cannot be replaced, and are written to.
    """
    try:
        if (descriptor := _opened(file)) is not None:
            with open(descriptor, "w", encoding="utf-8") as written:
                written.write(text)
            return
        replace_file(str(file), text.encode(), 0o644)  # what reads it may be another user
    except OSError as error:
        raise DagflowError(
            f"{file}: cannot write {what}: {error.strerror or error}", hint="name a file in a writable directory"
        ) from error


def _opened(file: Path) -> int | None:
    """A descriptor to write to directly, as of a device; None for a file that is replaced, or does not exist yet."""
    try:
        status = os.stat(file)
    except FileNotFoundError:
        return None
    for own in (1, 2):
        with suppress(OSError):  # the caller closed it
            # The descriptor of /dev/stdout is a regular file where the shell appends to one, which holds more than this
            # text.
            if os.path.samestat(status, os.fstat(own)):
                return os.dup(own)
    return None if stat.S_ISREG(status.st_mode) else os.open(file, os.O_WRONLY)
