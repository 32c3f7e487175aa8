"""Reads the first bytes of a few files, decompressed, from any store."""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

from dagflow.cli.output import on_one_line
from dagflow.engine.preview import Preview, PreviewOptions, preview
from dagflow.engine.preview_source import first_files
from dagflow.errors import DagflowError, MissingError
from dagflow.plan.load import load_app
from dagflow.plan.logical import LogicalPlan

_PIECE_BYTES = 64 << 10
_PIECES = 4
_MOST_FILES = 5
"""Files that are looked at."""

_APP = """\
name: first-bytes
attributes: {checkpoint: journal}
operators:
  splitter: {class: FileSplitterInput, properties: {files: FILES, block_size: 1TiB, batch_bytes: 0}}
  reader: {class: BlockReader, properties: {format: {type: fixed, length: LENGTH, tail: keep}}}
streams:
  blocks: {from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}
"""


@dataclass(frozen=True, slots=True)
class FileHead:
    """The beginning of a file.

    Attributes:
        data: Its first bytes, decompressed.
    """

    url: str
    data: bytes
    is_whole: bool


def read_heads(location: str) -> list[FileHead]:
    """The beginnings of the first files at a location, without those that are empty.

    Raises:
        MissingError: The location has no files, or only empty ones.
        DagflowError: The files cannot be listed, read or decompressed; or no app can name them.
    """
    if any("\ud800" <= char <= "\udfff" for char in location):
        raise DagflowError(
            f"{on_one_line(location)}: the name is not UTF-8, and an app cannot hold it",
            hint="put a question mark in the place of each such byte, as in 'a?b.csv', or name the directory",
        )
    app = plan_of(_APP.replace("FILES", json.dumps([location])).replace("LENGTH", str(_PIECE_BYTES)))
    heads = [_head(app, url) for url in first_files(app, _MOST_FILES)]
    if not any(head.data for head in heads):
        raise MissingError("there is no file with anything in it", url=location)
    return [head for head in heads if head.data]


def _head(app: LogicalPlan, url: str) -> FileHead:
    limits = PreviewOptions(at="reader.messages", file=url, records=_PIECES, read_bytes=_PIECE_BYTES * _PIECES)
    found = require_read(preview(app, limits))
    data = b"".join(record.values["record"] for record in found.records)
    return FileHead(url, data, found.is_complete and len(data) < _PIECE_BYTES * _PIECES)


def require_read(found: Preview) -> Preview:
    if found.error is not None:
        raise found.error
    return found


def plan_of(text: str) -> LogicalPlan:
    with tempfile.TemporaryDirectory(prefix="dagflow-init-") as directory:
        path = Path(directory, "app.yaml")
        path.write_text(text, encoding="utf-8")
        return load_app(path)
