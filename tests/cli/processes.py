"""The command line in processes of its own, as a person starts it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import dagflow

ENTRY = (sys.executable, "-m", "dagflow")

PATIENCE_S = 300.0
"""When a process is taken to hang: far more than it needs also where others keep the machine busy."""


def environment(**variables: str) -> dict[str, str]:
    """This process's environment, with dagflow importable from any directory."""
    root = str(Path(dagflow.__file__).parents[1])
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")])),
        **variables,
    }


def dagflow_command(
    args: Sequence[str], *, cwd: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run `dagflow` to its end and keep what it printed."""
    return subprocess.run(
        [*ENTRY, *args],
        cwd=cwd,
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def modules_loaded_by(args: Sequence[str], *, cwd: Path) -> set[str]:
    """The top-level packages that a command has imported when it ends."""
    code = (
        "import atexit, sys\n"
        "atexit.register(lambda: print('LOADED', *{name.partition('.')[0] for name in sys.modules}, file=sys.stderr))\n"
        "from dagflow.cli.main import main\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *args],
        cwd=cwd,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stderr.rpartition("LOADED ")[2].split())
