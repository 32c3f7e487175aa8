"""The jobs of small_files.py: their input, their apps, and a run of one of them on a running Spark."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark import SparkContext

FILES_IN_DIRECTORY = 1000
DIRECTORIES_OF_A_FILE = 50
"""File systems allow a file some 65,000 names."""
FILE_BYTES = 5000

SPLITTER = "{{files: {files}{more}}}"
FILTER = """
name: small-files
attributes: {{checkpoint: {work}/journal}}
operators:
  splitter: {{class: FileSplitterInput, properties: {splitter}}}
  reader: {{class: BlockReader, properties: {{min_readers: {cores}, max_readers: {cores}}}}}
  filter: {{class: RecordFilter, properties: {{drop: {{prefix: "."}}}}, partition: parallel}}
  writer: {{class: RecordWriter, properties: {{path: {work}/output}}, partition: parallel}}
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  lines: {{from: reader.messages, to: filter.input}}
  kept: {{from: filter.output, to: writer.input}}
"""
MERGE = """
name: small-files
attributes: {{checkpoint: {work}/journal}}
operators:
  splitter: {{class: FileSplitterInput, properties: {splitter}}}
  reader: {{class: BlockReader, properties: {{format: whole_file, min_readers: {cores}, max_readers: {cores}}}}}
  merger: {{class: FileMerger, properties: {{path: {work}/output}}, partition: parallel}}
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  files: {{from: reader.messages, to: merger.input}}
"""
JOBS = {"filter": FILTER, "merge": MERGE}


def make_input(folder: Path, files: int) -> None:
    """Write files of about 5 KB, in directories of a thousand; one line in ten begins with a dot."""
    dice = random.Random(1)
    letters = "abcdefghijklmnopqrstuvwxyz0123456789/=& "
    dots = ["." if dice.random() < 0.1 else "" for _ in range(4000)]
    lines = [f"{dot}{''.join(dice.choices(letters, k=dice.randint(20, 115)))}\n".encode() for dot in dots]
    bodies = []
    for _ in range(200):
        body = b""
        while len(body) < FILE_BYTES:
            body += dice.choice(lines)
        bodies.append(body)
    for number in range(files):
        directory = folder / f"{number // FILES_IN_DIRECTORY:05}"
        if number % FILES_IN_DIRECTORY == 0:
            directory.mkdir(parents=True)
        (directory / f"file-{number:08}.txt").write_bytes(bodies[number % len(bodies)])


def make_names(folder: Path, names: int) -> None:
    """Give a few files many names, in directories of a thousand; all of their lines begin with a dot."""
    content = b".all of this is dropped, so that the output of the measured run is empty\n" * 8
    for number in range(names // FILES_IN_DIRECTORY):
        directory = folder / f"{number // FILES_IN_DIRECTORY:03}" / f"{number:06}"
        directory.mkdir(parents=True)
        first = 0
        if number % DIRECTORIES_OF_A_FILE == 0:
            source = directory / "file-000.txt"
            source.write_bytes(content)
            first = 1
        for position in range(first, FILES_IN_DIRECTORY):
            os.link(source, directory / f"file-{position:03}.txt")


class FirstWindow:
    """Records when a run's first window is published, and its number of files."""

    def __init__(self) -> None:
        self.started = time.perf_counter()
        self.first_s = 0.0
        self.first_files = 0

    def progress(self, summary: Any) -> None:
        """See Observer."""
        if summary.windows and not self.first_s:
            self.first_s = time.perf_counter() - self.started
            self.first_files = summary.files

    def notice(self, text: str) -> None:
        """See Observer."""


def run_dagflow(context: SparkContext, work: Path, app: str, files: str, cores: int, more: str = "") -> FirstWindow:
    """Run the engine on a running Spark; return when its first window was published.

    Raises:
        ValueError: The run did not complete.
    """
    from dagflow.engine.run import run
    from dagflow.plan.load import load_app
    from dagflow.runtime.spark import SparkRuntime

    splitter = SPLITTER.format(files=files, more=f", {more}" if more else "")
    path = work / "small_files.yaml"
    path.write_text(app.format(work=work, splitter=splitter, cores=cores))
    watch = FirstWindow()
    summary = run(load_app(str(path)), observer=watch, runtime=lambda program: SparkRuntime(program, context))
    if summary.state != "completed":
        raise ValueError(f"dagflow's run ended as {summary}")
    return watch
