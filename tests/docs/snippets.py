"""Runs the snippets of a page of docs/ as its reader would: in order, in a directory of their own.

A block with a title is a file: ```` ```yaml title="app.yaml" ````. A block of `console` is a session: each line that
begins with `$ ` is a command, and the lines below it are what the command prints. `...` stands for any text in a line,
and on a line of its own for any lines. A command without lines below it may print anything. Each command must succeed,
and each part of a pipe. Commands of crontabs and of Airflow's tasks run as well, with the directory for /srv/NAME, and
as if their day were 2026-05-02. test_blocks.py tries other blocks.

On a page of recipes, each second heading begins a directory of its own; elsewhere the whole page shares one. A page is
refused where something on it looks like one of these and is none, so that nothing stays untried by mistake.
"""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
FENCE = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"^\$ (.*(?:\\\n.*)*)\n((?:(?!\$).*\n)*)", re.MULTILINE)
UNTRIED = {"bash", "csv", "dockerfile", "ini", "python", "text", "yaml"}
"""Languages of blocks that are text, if they have no title."""
DATE = "date() { echo 2026-05-02; }; export -f date"
LIMIT_S = 300


@dataclass
class File:
    """What a page says to write."""

    path: str
    text: str


@dataclass
class Command:
    """What a page says to run, and the lines that it shows below."""

    line: str
    shown: list[str]


class Scheduled(Command):
    """What a page says to let another program run."""


@dataclass
class Recipe:
    """What a page, or a part of it, says to do in one directory, in this order."""

    title: str
    steps: list[File | Command]


def recipes(page: Path, is_cookbook: bool) -> list[Recipe]:
    """The recipes of a page that have commands.

    Raises:
        ValueError: A block or a command is not understood, or files are written that no command uses.
    """
    text = page.read_text(encoding="utf-8")
    parts = re.split(r"^(?=## )", text, flags=re.MULTILINE) if is_cookbook else [text]
    whole = [Recipe(part.splitlines()[0].lstrip("# "), _steps(part)) for part in parts]
    for recipe in whole:
        if recipe.steps and not isinstance(recipe.steps[-1], Command):
            raise ValueError(f"{page.name}: no command follows the last file of '{recipe.title}'")
    return [recipe for recipe in whole if recipe.steps]


def _steps(text: str) -> list[File | Command]:
    if "```" in (rest := FENCE.sub("", text)):
        raise ValueError(f"no block: {rest[rest.index('```') :][:100]!r}")
    steps: list[File | Command] = []
    for language, path, content in FENCE.findall(text):
        if path:
            steps.append(File(path, content))
        elif language == "crontab" or "BashOperator(" in content:
            lines = (
                _tasks(content) if language == "python" else [line.split(None, 5)[5] for line in content.splitlines()]
            )
            steps += [Scheduled(f"({DATE}; {re.sub(r'/srv/[a-z]+', '.', line)})", []) for line in lines]
        elif language == "console" and content and not COMMAND.sub("", content):
            steps += [Command(line, shown.splitlines()) for line, shown in COMMAND.findall(content)]
        elif language not in UNTRIED or re.search("^steps:", content, re.MULTILINE):
            raise ValueError(f"neither a file nor a session nor text: {language} {content[:100]!r}")
    return steps


def _tasks(dag: str) -> list[str]:
    calls = [node for node in ast.walk(ast.parse(dag)) if isinstance(node, ast.Call)]
    tasks = [{key.arg: key.value for key in call.keywords} for call in calls]
    return [
        "".join(f"export {name}={value}; " for name, value in ast.literal_eval(task["env"]).items()).replace(
            "{{ ds }}", "2026-05-02"
        )
        + ast.literal_eval(task["bash_command"])
        for task in tasks
        if "bash_command" in task
    ]


def follow(recipe: Recipe, directory: Path) -> list[str]:
    """Do what a recipe says, and return what is not as it shows: the command, what it printed, and its exit code."""
    for name in ("data", "apps"):
        (directory / name).symlink_to(ROOT / name)
    (directory / ".venv").symlink_to(sys.prefix)
    script = ["set -o pipefail"]
    for number, step in enumerate(recipe.steps):
        if isinstance(step, File):
            (directory / f".file{number}").write_text(step.text, encoding="utf-8")
            path = shlex.quote(step.path)
            script.append(f'mkdir -p "$(dirname {path})" && cp .file{number} {path}')
        else:
            script.append(f"{step.line}\nprintf '\\n@@@ %s\\n' $?")
    python = Path(sys.executable).parent
    printed = subprocess.run(
        ["bash", "-c", "\n".join(script)],
        cwd=directory,
        env={**os.environ, "PATH": f"{python}:{os.environ['PATH']}", "HOME": str(directory), "COLUMNS": "100"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_S,
    ).stdout
    results: list[tuple[str, str]] = re.findall(r"(.*?)\n@@@ (\d+)\n", printed, re.DOTALL)
    commands = [step for step in recipe.steps if isinstance(step, Command)]
    return [
        f"$ {command.line}\n{output}\n(exit code {code})"
        for command, (output, code) in zip(commands, results, strict=True)
        if code != "0" or (command.shown and not _is_shown(command.shown, output))
    ]


def _is_shown(lines: list[str], output: str) -> bool:
    pattern = "".join(
        r"(?:.*\n)*?" if line.strip() == "..." else re.escape(line.rstrip()).replace(r"\.\.\.", ".*") + r"[ \t]*\n"
        for line in lines
    )
    return re.fullmatch(pattern, output.rstrip("\n") + "\n") is not None
