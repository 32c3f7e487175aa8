"""Packages that only the processes of one test have: other versions of Spark, or what is no part of the tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.cli.processes import PATIENCE_S, environment


def environment_with(directory: Path, *requirements: str) -> dict[str, str]:
    """Install packages into a directory; returns an environment in which they come before those of the tests."""
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(directory)]
    subprocess.run([*install, *requirements], check=True, timeout=PATIENCE_S)
    variables = environment()
    return {**variables, "PYTHONPATH": os.pathsep.join([str(directory), variables["PYTHONPATH"]])}


def require_passes(variables: dict[str, str], *arguments: str) -> None:
    """Run tests in an environment."""
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", *arguments]
    root = Path(__file__).parents[1]
    done = subprocess.run(command, cwd=root, env=variables, capture_output=True, text=True, timeout=10 * PATIENCE_S)
    assert done.returncode == 0, done.stdout
