"""What a reader would type on pages of the reference runs: Python, page by page, and commands over apps of `apps/`."""

from __future__ import annotations

import gzip
import os
import re
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.docs.snippets import ROOT
from tests.docs.test_blocks import BLOCK, PAGES, RUN

NOT_RUN = {
    "# tests/visitors/": "it is a file of the tests, which run it",
    'spark = SparkSession.builder.remote("sc://': "it needs a server; tests/runtime/test_connect.py has one",
    "from importlib.metadata": "it needs a wheel with an entry point",
    "from dagflow.cli.main": "it is the command line",
}
"""Blocks that are not run, by their first words, and why."""
SESSION = "from pyspark.sql import SparkSession\nspark = SparkSession.builder.master('local[2]').getOrCreate()\n"
APP = "name: a\nsteps: [{files: data/logs}, {read: lines}, {write: out/a}]\n"
STREAMED = "\nquery.processAllAvailable()\nquery.stop()\n"


def python_of(page: Path) -> list[str]:
    """The blocks of Python on a page."""
    found = BLOCK.findall(page.read_text("utf-8"))
    return [textwrap.dedent(text) for _, info, text in found if info.partition(" ")[0] == "python"]


REFERENCE = [page for page in PAGES if page.parent.name not in RUN and python_of(page)]


@pytest.mark.nightly
@pytest.mark.parametrize("page", REFERENCE, ids=lambda page: page.stem)
def test_the_python_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    """Beside the files that the page speaks of, and in a session where it has one."""
    for name in ("apps", "data"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/a.log").write_text("one\ntwo\n")
    (tmp_path / "logs/b.log.gz").write_bytes(gzip.compress(b"three\n"))
    (tmp_path / "app.yaml").write_text(APP)
    code = "\n".join(text for text in python_of(page) if not text.startswith(tuple(NOT_RUN)))
    code = (SESSION if "spark" in code else "") + code + (STREAMED if "query =" in code else "")
    search = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=search, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


PATIENT = """
import sys
from dagflow.cli.main import main
from dagflow.engine import preview_chain
preview_chain.SAMPLE_S = 600.0
sys.argv[0] = "dagflow"
main()
"""
"""The command line, which takes as long for its samples as a busy machine needs."""

SHOWN = [
    (page, command, printed)
    for page in PAGES
    if page.parent.name not in RUN
    for _, info, text in BLOCK.findall(page.read_text("utf-8"))
    for command, _, printed in [text.removeprefix("$ ").partition("\n")]
    if info == "console" and " apps/" in command
]


@pytest.mark.nightly
@pytest.mark.parametrize(("page", "command", "printed"), SHOWN, ids=[command for _, command, _ in SHOWN])
def test_a_page_shows_what_a_command_prints_of_an_app(page: Path, command: str, printed: str) -> None:
    """In the directory of the repository; commands over files that only the page speaks of are rehearsed."""
    program, *arguments = shlex.split(command)
    assert program == "dagflow"
    search = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "COLUMNS": "100"}
    called = [sys.executable, "-c", PATIENT, *arguments]
    ran = subprocess.run(called, cwd=ROOT, env=search, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == printed.strip(), page


ALONE = [
    text.strip()
    for page in PAGES
    if page.parent.name not in RUN
    for _, info, text in BLOCK.findall(page.read_text("utf-8"))
    if info == "bash" and text.count("\n") == 1 and re.match(r"dagflow \S+ app\.yaml(?!.*--master)", text)
]


@pytest.mark.nightly
@pytest.mark.parametrize("command", sorted({*ALONE}))
def test_a_command_over_an_app_runs(command: str, tmp_path: Path) -> None:
    """Where it needs nothing but an app and its input."""
    (tmp_path / "data").symlink_to(ROOT / "data")
    (tmp_path / "app.yaml").write_text(APP)
    search = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    typed = command.replace("dagflow", f"{sys.executable} -m dagflow", 1)
    ran = subprocess.run(["bash", "-c", typed], cwd=tmp_path, env=search, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


def test_each_block_that_does_not_run_is_on_a_page() -> None:
    """The list has no words that no block begins with."""
    blocks = [text for page in REFERENCE for text in python_of(page)]
    assert [words for words in NOT_RUN if not any(text.startswith(words) for text in blocks)] == []
