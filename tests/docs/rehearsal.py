"""Rehearses commands that cannot run where tests run: bash takes them apart, and dagflow's own parser reads them.

A rehearsal is a run of bash in which no program can be found. Loops, variables, quotes and continued lines are bash's
own matter; each program that would have been started is written down with its arguments.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from pathlib import Path

import click

from dagflow.cli.main import command_line
from tests.docs.snippets import ROOT

_REHEARSAL = r"""
command_not_found_handle() { printf '%s\0' "$@" $'\n' >&9; }
cd() { :; }
source() { :; }
exit() { :; }
TIMEFORMAT=
"""
_ELSEWHERE = {"aws", "curl", "databricks", "docker", "gcloud", "kubectl"}
"""Programs that need not be on this machine; scripts are tried where their page shows them."""


def mistakes(script: str, directory: Path) -> list[str]:
    """What bash, dagflow and the modules that a script names would refuse."""
    # A program with a folder is called without it; paths of machines that are not there are not written to.
    script = re.sub(r"(?<![\w/.=])[\w/.]*/bin/(\w+)(?= )", r"\1", script)
    script = re.sub(r"(?<!\S)/(?:srv|var)/\S*/(\S)", r"\1", script)
    calls = directory / "calls"
    calls.touch()
    done = subprocess.run(
        ["/bin/bash", "-c", f"{_REHEARSAL}exec 9>>'{calls}'\n{script}"],
        cwd=directory,
        env={"PATH": "/nowhere"},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    words = [call.split("\0") for call in calls.read_text("utf-8").split("\0\n\0")[:-1]]
    calls.unlink()
    return [line for line in done.stderr.splitlines() if line] + [text for call in words if (text := _refused(call))]


def _refused(call: list[str]) -> str:
    match call:
        case ["dagflow", *arguments]:
            return _refused_by_dagflow(arguments)
        case ["spark-submit", *arguments] if "run" in arguments:
            return _refused_by_dagflow(arguments[arguments.index("run") :])
        case ["python" | "python3", "-m", module, *options]:
            spec = importlib.util.find_spec(module)
            text = Path(spec.origin).read_text("utf-8") if spec and spec.origin else ""
            unknown = [option for option in options if option.startswith("--") and option not in text]
            return "" if text and not unknown else f"python -m {module}: no such module, or no {unknown}"
        case ["python" | "python3", path, *_] if path.endswith(".py"):
            return "" if (ROOT / path).exists() else f"{path}: no such file"
        case [program, *_] if program in _ELSEWHERE or program.endswith(".sh") or shutil.which(program):
            return ""
    return f"no program that is known here: {call}"


def _refused_by_dagflow(arguments: list[str]) -> str:
    if not arguments or arguments[0] == "--help":
        return ""
    context = click.Context(command_line, info_name="dagflow")
    try:
        name, command, rest = command_line.resolve_command(context, arguments)
        assert command
        command.make_context(name, [re.sub(r"^(N|…)$", "1", word) for word in rest], context)
    except click.ClickException as error:
        return f"dagflow {' '.join(arguments)}: {error.format_message()}"
    return ""
