"""`dagflow extract`: takes a source file out of the file that it was merged into."""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import click

from dagflow.cli import output
from dagflow.cli.locations import is_app_file, load
from dagflow.cli.shared_options import Settings
from dagflow.engine.preparation import output_locations
from dagflow.errors import MissingError
from dagflow.plan.logical import LogicalPlan
from dagflow.storage.backends.local.disk import storage_error, translated
from dagflow.storage.concatenated import extract, find, list_entries, require_index
from dagflow.storage.context import StorageContext


@click.command("extract")
@click.argument("directory", metavar="DIRECTORY|APP")
@click.argument("path", metavar="PATH", required=False)
@click.option("-o", "--output", "target", metavar="FILE", help="Write to FILE, which must not exist; default: stdout.")
@click.option(
    "--list", "is_list", is_flag=True, help="List the merged source files: length, file, offset and path of each."
)
@click.pass_obj
def command(settings: Settings, directory: str, path: str | None, target: str | None, is_list: bool) -> int:
    """Print the source file PATH as it was before it was merged into a file below DIRECTORY, or into one of APP.

    PATH is written as the app's FileMerger recorded it: below its property `below`, or from the root.
    """
    if is_list == (path is not None):
        raise click.UsageError("give either PATH or --list")
    storage = StorageContext.default()
    if is_app_file(directory):
        logical = load(directory, settings)
        storage = logical.attributes.storage_context()
        directory = _merged_by(directory, logical, storage)
    if path is None:
        is_empty = True
        for entry in list_entries(storage, directory):
            is_empty = False
            output.result(f"{entry.length}\t{_shown(entry.url)}\t{entry.offset}\t{_shown(entry.path)}")
        if is_empty:
            require_index(storage, directory)
        return 0
    found = find(storage, directory, path)
    with contextlib.ExitStack() as stack:
        if target is not None:
            with translated(target, "create"):
                sink = stack.enter_context(Path(target).open("xb"))
        elif sys.stdout is None:  # the caller closed it
            sink = stack.enter_context(Path(os.devnull).open("wb"))
        else:
            sink = sys.stdout.buffer  # type: ignore[assignment]  # a BinaryIO too
        try:
            _write(extract(storage, found), sink, target or "standard output")
        except BaseException:
            # A piece of the source file must not be taken for all of it.
            if target is not None:
                Path(target).unlink()
            raise
    return 0


def _merged_by(app: str, logical: LogicalPlan, storage: StorageContext) -> str:
    locations = sorted(output_locations(logical))
    found = []
    for location in locations:
        with contextlib.suppress(MissingError):
            require_index(storage, location)
            found.append(location)
    if len(found) != 1:
        which = f"one of {', '.join(found or locations)}" if locations else "a directory of merged files"
        raise click.UsageError(f"{app} does not say where merged files are; name {which}")
    return found[0]


def _write(pieces: Iterator[bytes], sink: BinaryIO, shown: str) -> None:
    for piece in itertools.chain(pieces, (None,)):
        try:
            _ = sink.flush() if piece is None else sink.write(piece)
        except BrokenPipeError:
            raise  # a reader that has seen enough, as click knows
        except OSError as error:
            raise storage_error(error, shown, "write") from error


def _shown(path: str) -> str:
    """A path on one line, different for each path: bytes that are no text, and backslashes, are escaped."""
    for character, escape in ("\\", "\\\\"), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"):
        path = path.replace(character, escape)
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
