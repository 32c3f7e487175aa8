"""`dagflow extract`: takes an original out of the file that it was merged into."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import click

from dagflow.cli import output
from dagflow.cli.options import verbose_option
from dagflow.errors import StorageError
from dagflow.storage.concatenated import Entry, entries, extract, find
from dagflow.storage.local_disk import translated


@click.command("extract", short_help="Take an original out of merged files.")
@click.argument("directory", metavar="DIRECTORY")
@click.argument("path", metavar="PATH", required=False)
@click.option("-o", "--output", "target", metavar="FILE", help="Write to FILE, which must not exist; else to stdout.")
@click.option("--list", "is_list", is_flag=True, help="List what there is: length, file, offset and path of each.")
@verbose_option
def command(directory: str, path: str | None, target: str | None, is_list: bool) -> int:
    """Print the original PATH as it was before it was merged into a file below DIRECTORY.

    PATH is told as the app's FileMerger told it: below its property `below`, or from the root.
    """
    if is_list == (path is not None):
        raise click.UsageError("give either PATH or --list")
    if path is None:
        for entry in entries(directory):
            output.result(_line(entry))
        return 0
    found = find(directory, path)
    with contextlib.ExitStack() as stack:
        if target is not None:
            with translated(target, "create"):
                sink = stack.enter_context(Path(target).open("xb"))
        else:
            sink = sys.stdout.buffer  # type: ignore[assignment]  # a BinaryIO too
        try:
            for piece in extract(found):
                sink.write(piece)
        except StorageError:
            if target is not None:
                Path(target).unlink()
            raise
    return 0


def _line(entry: Entry) -> str:
    shown = entry.path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    shown = shown.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t")
    return f"{entry.length}\t{entry.url}\t{entry.offset}\t{shown}"
