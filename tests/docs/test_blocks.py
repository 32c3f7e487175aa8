"""Every block on every page is tried: the rule for it goes by its language, and no block is without one."""

from __future__ import annotations

import configparser
import json
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.docs.rehearsal import mistakes
from tests.docs.snippets import COMMAND, ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^( *)```([^\n]*)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
RUN = {"start", "tutorials", "cookbook"}
"""Folders whose sessions test_snippets.py runs."""
ELSEWHERE = {
    "console": "test_snippets.py",
    "csv": "its page writes it as a file, and its commands read it: test_snippets.py",
    "mermaid": "only a browser can draw it",
    "python": "test_python_blocks.py, and as files of their pages test_snippets.py",
    "text": "what a program prints, or a figure",
    "yaml": "test_parts_of_apps.py",
}
"""Languages that are tried elsewhere, or cannot be, and why."""
FIELD = r"(\*|\d+(-\d+)?)(/\d+)?(,(\*|\d+(-\d+)?)(/\d+)?)*"
CRON = re.compile(rf"(?:{FIELD} +){{5}}(?P<command>\S.*)")
NOT_RUN = {
    "README.md": {
        "python3 start.py demo": "it is run by .ci/run",
        "pip install": "it needs a network",
        ".venv/bin/pip": "it needs a network",
    },
    "docs/index.md": {"dagflow run app.yaml --local": "it is the command of the page on a laptop"},
    "docs/start/laptop.md": {"python3 -m venv": "it needs a network"},
    "docs/start/spark.md": {"pip install": "it needs a network", "dagflow run": "it needs a cluster"},
    "docs/tutorials/follow_logs.md": {"dagflow run": "it does not end"},
    "docs/cookbook/files.md": {"export AWS": "it needs S3"},
    "docs/cookbook/tables.md": {"PGHOST": "it needs a server"},
}
"""Commands for readers that no test runs: the first words of their block, and the reason. They are rehearsed."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_each_block_is_what_its_language_takes(page: Path, tmp_path: Path) -> None:
    """Commands are ones that dagflow has, and units, crontabs and data can be read by what they are for."""
    text = page.read_text("utf-8")
    assert "```" not in BLOCK.sub("", text)
    found = []
    for _, info, indented in BLOCK.findall(text):
        language, content = info.partition(" ")[0], textwrap.dedent(indented)
        if language == "console" and page.parent.name not in RUN:
            found += mistakes("\n".join(line for line, _ in COMMAND.findall(content)), tmp_path)
        elif language == "bash":
            found += mistakes(content, tmp_path)
        elif language == "crontab":
            for line in content.splitlines():
                cron = CRON.fullmatch(line)
                found += mistakes(cron["command"], tmp_path) if cron else [f"no line of a crontab: {line}"]
        elif language == "ini":
            found += mistakes_of_unit(content, tmp_path)
        elif language == "json":
            json.loads(content)
        elif language == "dockerfile":
            found += [line for line in content.splitlines() if line.split()[0] not in {"FROM", "USER", "RUN", "COPY"}]
        elif language not in ELSEWHERE:
            found.append(f"no check for the language {info!r}: {content[:60]!r}")
    assert not found


def mistakes_of_unit(content: str, directory: Path) -> list[str]:
    """What systemd, or without it a plain look, has against a unit."""
    parser = configparser.ConfigParser()
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # as its documentation says
    parser.read_string(content)
    found = mistakes(parser["Service"]["ExecStart"], directory)
    if systemd := shutil.which("systemd-analyze"):
        program = Path(sys.executable).with_name("dagflow")
        unit = directory / "dagflow.service"
        unit.write_text(re.sub(r"(?<=ExecStart=)\S+", str(program), content))
        done = subprocess.run([systemd, "verify", "--man=no", unit], capture_output=True, text=True)
        found += [line for line in done.stderr.splitlines() if "dagflow" in line]
    return found


def test_each_command_that_is_not_run_has_a_reason() -> None:
    """What readers of README, start, tutorials and cookbook are told to type is run, or listed here."""
    pages = [page for page in PAGES if page.parent.name in RUN or page.stem == "index"]
    for page in [PAGES[0], *pages]:
        blocks = [content for _, info, content in BLOCK.findall(page.read_text("utf-8")) if info == "bash"]
        reasons = list(NOT_RUN.get(str(page.relative_to(ROOT)), ()))
        assert all(any(block.startswith(words) for words in reasons) for block in blocks), page
        assert all(any(block.startswith(words) for block in blocks) for words in reasons), page


@pytest.mark.parametrize(
    "script",
    [
        "dagflow rum app.yaml",
        "cd /srv/orders && .venv/bin/dagflow run app.yaml --locl",
        'for day in 1 2; do DAY=$day dagflow run app.yaml --limit "x"; done',
        "dagflow status \\\n  --windws 3",
        "python -m benchmarks.absent",
        "python -m benchmarks.throughput --laps 3",
        "spark-submit --master x job.py run app.yaml --folow",
        "for day in 1 2; do",
        "dogflow run app.yaml",
        "echo $(dagflow run)",
    ],
)
def test_a_command_that_a_reader_could_not_run_is_found(script: str, tmp_path: Path) -> None:
    """A wrong command, option or value, also in loops and behind others, and text that is no script."""
    assert mistakes(script, tmp_path)
