"""What installed packages bring is named like what is built in; a broken package is one line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from dagflow.cli.main import command_line
from dagflow.cli.scaffold.app_text import app_text, plugin_files
from dagflow.cli.scaffold.format_guess import FormatGuess
from tests.nightly import by_day

ENTRY_POINTS = """[dagflow.formats]
acme-logs = acme_logs.record_format:AcmeLogs
broken = acme_logs.nothing:Format
[dagflow.operators]
AcmeLogsFilter = acme_logs.operator:AcmeLogsFilter
Broken = acme_logs.nothing:Broken
[dagflow.targets]
acme = acme_logs.nothing:AcmeTable
[dagflow.stores]
acme = acme_logs.nothing:AcmeStore
"""

APP = """name: a
steps:
  - files: in.txt
  - read: {type: acme-logs, columns: {bytes: int64}}
  - class: AcmeLogsFilter
    column: bytes
  - write: out
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package that `dagflow init --plugin` writes, with the metadata that pip would write beside it."""
    folder = tmp_path_factory.mktemp("plugin") / "acme-logs"
    assert CliRunner().invoke(command_line, ["init", str(folder), "--plugin", "acme-logs"]).exit_code == 0
    metadata = folder / "acme_logs-0.1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-logs\nVersion: 0.1.0\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    (folder / "in.txt").write_text("host:a\tbytes:1\nhost:b\n")
    return folder


def started(package: Path, *command: str, app: str = APP) -> subprocess.CompletedProcess[str]:
    """Start Python, with the package installed."""
    (package / "app.yaml").write_text(app)
    environment = {**os.environ, "PYTHONPATH": str(package)}
    return subprocess.run(
        [sys.executable, "-m", *command], cwd=package, env=environment, capture_output=True, text=True, timeout=120
    )


def test_the_format_of_the_template_is_that_of_the_walkthrough() -> None:
    """Which the page shows, and whose suite runs."""
    walkthrough = Path(__file__).parent / "visitors" / "ltsv_format.py"
    assert dict(plugin_files("ltsv"))["ltsv/record_format.py"] == walkthrough.read_text("utf-8")


def test_a_table_of_a_package_is_none_of_a_database() -> None:
    """An app for one that `dagflow init` writes has no property that only tables of databases take."""
    text = app_text("a", "in.txt", FormatGuess("parquet"), "acme:out/table")
    assert "table: acme:out/table" in text and "metadata_columns" not in text


@pytest.mark.nightly
def test_the_template_passes_its_own_tests(package: Path) -> None:
    """The contract of formats, and the test of its operator."""
    done = started(package, "pytest", "-q", "-p", "no:cacheprovider", "tests")
    assert done.returncode == 0, done.stdout


def test_an_app_names_what_a_package_brings(package: Path) -> None:
    """A format and an operator, by their short names."""
    done = started(package, "dagflow", "run", "app.yaml", "--local", "--workers", "1", "-q")
    assert (done.returncode, done.stderr) == (0, "")
    assert "".join(path.read_text() for path in (package / "out").glob("part-*")) == '{"bytes":1}\n'


def test_what_is_listed_names_the_package_and_a_broken_one_is_a_line(package: Path) -> None:
    """An operator and a format, each named once; the command works."""
    done = started(package, "dagflow", "operators")
    assert done.returncode == 0 and "(package" in done.stdout and "AcmeLogsFilter" in done.stdout
    why = "of the package acme-logs cannot be imported: ModuleNotFoundError: No module named 'acme_logs.nothing'"
    assert sorted(done.stderr.splitlines()) == [f"'Broken' {why}", f"'broken' {why}"]
    assert started(package, "dagflow", "schema").returncode == 0


@pytest.mark.parametrize(
    ("old", "new", "message"),
    by_day(
        2,
        [
            ("acme-logs", "acme-log", "there is no format 'acme-log'; did you mean 'acme-logs'? formats: acme-logs, "),
            ("acme-logs", "broken", "cannot import acme_logs.nothing"),
            ("AcmeLogsFilter", "Broken", "acme_logs.nothing"),
            ("write: out", "table: acme:x", "cannot import acme_logs.nothing"),
            ("write: out", "table: delt:x", "acme:LOCATION"),
        ],
    ),
)
def test_a_wrong_name_is_a_mistake_in_the_app(package: Path, old: str, new: str, message: str) -> None:
    """At its line, whether no package has the name, or the package that has it is broken."""
    done = started(package, "dagflow", "validate", "app.yaml", app=APP.replace(old, new))
    assert done.returncode == 2 and message in done.stderr and "app.yaml:" in done.stderr, done.stderr
