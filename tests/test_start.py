"""The set-up script, with an environment whose Python only records its arguments."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from start import run_shown

ROOT = Path(__file__).parent.parent
FAKE_PYTHON = """\
#!/bin/sh
echo "$@" >> "$0.log"
case "$*" in
  *"{failing}"*) echo "no such package"; exit 3 ;;
esac
"""


class Checkout:
    """A copy of the files that the script reads."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.keeps_nothing = folder, False
        for name in ("start.py", "setup.cfg", "pyproject.toml"):
            shutil.copy(ROOT / name, folder)
        self.python = folder / ".venv" / "bin" / "python"
        self.stamp = folder / ".venv" / "dagflow-setup.json"

    def make_environment(self, failing: str = "nothing fails") -> None:
        """Make an environment that fails for arguments that contain a text."""
        self.python.parent.mkdir(parents=True, exist_ok=True)
        self.python.write_text(FAKE_PYTHON.format(failing=failing))
        self.python.chmod(0o755)

    def write_stamp(self, **values: object) -> None:
        """Write the stamp of a finished environment."""
        self.stamp.write_text(json.dumps({"settings": "those of yesterday", "extras": [], **values}))

    def start(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the script from another directory."""
        command = [sys.executable, str(self.folder / "start.py"), *arguments]
        variables = {"PYTHONDONTWRITEBYTECODE": "1" if self.keeps_nothing else ""}
        return subprocess.run(
            command, cwd="/", capture_output=True, text=True, stdin=subprocess.DEVNULL, env={**os.environ, **variables}
        )

    def asked(self) -> list[str]:
        """Return the arguments that the environment's Python got since the last call."""
        log = self.python.with_name("python.log")
        lines = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return lines


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    """A new checkout in a directory whose name has a space."""
    folder = tmp_path / "my checkout"
    folder.mkdir()
    return Checkout(folder)


@pytest.mark.parametrize("arguments", [[], ["dmeo"], ["demo", "extra"], ["--help"]])
def test_an_unknown_command_explains_the_commands(checkout: Checkout, arguments: list[str]) -> None:
    """A mistake makes no environment."""
    answer = checkout.start(*arguments)
    assert answer.returncode == 2
    assert "start.py demo" in answer.stderr and "start.py test" in answer.stderr
    assert not checkout.python.parent.parent.exists()


def test_changed_settings_are_installed_once(checkout: Checkout) -> None:
    """A new setup.cfg brings the environment up to date; the second time there is nothing to do."""
    checkout.make_environment()
    checkout.write_stamp(extras=["java"])
    assert checkout.start("setup").returncode == 0
    install, java = checkout.asked()
    assert "pip" in install and install.endswith(f"--editable {checkout.folder}[java]")
    assert java == "-m dagflow.runtime.java"
    assert checkout.start("setup").returncode == 0
    assert checkout.asked() == []


@pytest.mark.parametrize("keeps_nothing", [False, True])
def test_everything_is_compiled_where_python_keeps_nothing(checkout: Checkout, keeps_nothing: bool) -> None:
    """Otherwise each process compiles the same modules of packages, and of the checkout."""
    checkout.keeps_nothing = keeps_nothing
    checkout.make_environment()
    checkout.write_stamp()
    assert checkout.start("setup").returncode == 0
    install, *further = checkout.asked()
    assert ("--no-compile" in install) == (not keeps_nothing)
    assert ("-m compileall -q dagflow operators" in further) == keeps_nothing


def test_what_takes_long_says_what_it_is_at(capfd: pytest.CaptureFixture[str]) -> None:
    """The last line of a command is shown with its time again and again, and what does not end is ended."""
    code, said = run_shown(["sh", "-c", "echo Collecting pyspark; exec tail -f /dev/null"], limit_s=0.5, pulse_s=0.2)
    assert code and "did not end within" in said
    assert "s: Collecting pyspark" in capfd.readouterr().out


def test_tests_need_more_than_the_demo(checkout: Checkout) -> None:
    """The test command adds its packages, warms Spark, and passes its arguments to pytest."""
    checkout.make_environment()
    checkout.write_stamp()
    assert checkout.start("setup").returncode == 0
    assert checkout.asked()[0].endswith(f"--editable {checkout.folder}")
    assert checkout.start("test", "-k", "journal").returncode == 0
    install, _, warm, tests = checkout.asked()
    assert install.endswith(f"--editable {checkout.folder}[test]")
    assert warm == "-m dagflow warm"
    assert tests == "-m pytest -k journal"
    assert json.loads(checkout.stamp.read_text())["extras"] == ["test"]


def test_the_first_demo_stores_the_classes_behind_itself(checkout: Checkout) -> None:
    """The output comes first, and the next start of Spark is faster; a second demo has nothing to store."""
    checkout.make_environment()
    checkout.write_stamp()
    command = checkout.python.with_name("dagflow")
    command.write_text('#!/bin/sh\necho "dagflow $@" >> "${0%dagflow}python.log"\n')
    command.chmod(0o755)
    assert "in the background" in checkout.start("demo").stdout
    log, deadline_s = checkout.python.with_name("python.log"), time.monotonic() + 60
    while "-m dagflow warm" not in log.read_text() and time.monotonic() < deadline_s:
        pass
    asked = checkout.asked()
    assert asked.index("dagflow run apps/block_reader.yaml --fresh") < asked.index("-m dagflow warm")
    assert "in the background" not in checkout.start("demo").stdout
    assert checkout.asked() == ["dagflow run apps/block_reader.yaml --fresh"]


def test_a_setup_without_warming_leaves_spark_as_it_is(checkout: Checkout) -> None:
    """With --no-warm nothing is done for a faster start, neither now nor by the next command."""
    checkout.make_environment()
    checkout.write_stamp()
    assert checkout.start("setup", "--dev", "--no-warm").returncode == 0
    assert [line for line in checkout.asked() if "dagflow warm" in line] == []
    assert checkout.start("test").returncode == 0
    assert checkout.asked() == ["-m pytest"]


def test_a_java_that_keeps_no_classes_is_good_enough(checkout: Checkout) -> None:
    """Without stored classes, tests run all the same."""
    checkout.make_environment(failing="dagflow warm")
    checkout.write_stamp()
    assert checkout.start("test").returncode == 0
    assert checkout.asked()[-2:] == ["-m dagflow warm", "-m pytest"]
    assert checkout.start("test").returncode == 0
    assert checkout.asked() == ["-m pytest"]


def test_the_exit_code_is_that_of_the_tests(checkout: Checkout) -> None:
    """The test command returns pytest's exit code."""
    checkout.make_environment(failing="-m pytest")
    checkout.write_stamp()
    assert checkout.start("test").returncode == 3


def test_a_failed_installation_is_not_taken_for_a_finished_one(checkout: Checkout) -> None:
    """Without its stamp the environment is made again the next time."""
    checkout.make_environment(failing="install")
    checkout.write_stamp()
    answer = checkout.start("setup")
    assert answer.returncode == 1
    assert "pip could not install" in answer.stderr and "no such package" in answer.stderr
    assert not checkout.stamp.exists()


def test_a_machine_without_java_gets_one(checkout: Checkout) -> None:
    """If dagflow finds no Java, the extra `java` is installed."""
    checkout.make_environment(failing="dagflow.runtime.java")
    checkout.write_stamp()
    assert checkout.start("setup").returncode == 0
    assert checkout.asked()[-1].endswith(f"--editable {checkout.folder}[java]")
    assert json.loads(checkout.stamp.read_text())["extras"] == ["java"]
