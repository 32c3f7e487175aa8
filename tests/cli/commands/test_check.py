"""`dagflow check`: whether a checkpoint is well, for cron and Nagios."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import pytest

from dagflow.engine.run import run
from dagflow.errors import DagflowError
from dagflow.journal.journal import Journal
from dagflow.journal.reader import take_snapshot
from dagflow.plan.load import load_app
from dagflow.storage.context import StorageContext
from tests.cli.commands.inspected_app import APP, folder, invoke, journal
from tests.engine.test_driver import crashing

__all__ = ["folder", "journal"]


def test_a_checkpoint_that_is_well_is_one_line_and_0(journal: Path) -> None:
    """With figures behind a bar, as Nagios reads them."""
    code, out, err = invoke("check", "journal", "--max-age", "600", "--max-rejects", "1%", "--max-backlog", "1KiB")
    assert (code, err) == (0, "")
    assert re.fullmatch(
        r"DAGFLOW OK - sample: completed \| age=\d+\.\ds;600 rejects=0%;1 backlog=0B;1024 windows=1c\n", out
    )


@pytest.mark.parametrize(
    ("options", "finding"),
    [
        (["--max-age", "0"], "the output is .* behind, 0.0 s are allowed"),
        (["--max-rejects", "0%"], ""),
        (["--max-backlog", "0"], ""),
        ([], ""),
    ],
)
def test_a_limit_that_is_exceeded_is_a_finding_and_1(journal: Path, options: list[str], finding: str) -> None:
    """Without limits nothing is."""
    code, out, _ = invoke("check", "journal", *options)
    assert code == (1 if finding else 0)
    assert re.match(f"DAGFLOW {'NOT OK' if finding else 'OK'} - sample: {finding or 'completed'} ", out)


@pytest.mark.parametrize("age", ["nan", "inf", "1e306"])
def test_an_age_that_is_no_number_of_seconds_is_a_mistake(journal: Path, age: str) -> None:
    """Not a finding, and not a bug."""
    code, _, err = invoke("check", "journal", "--max-age", age)
    assert (code, "'--max-age'" in err) == (2, True)


def test_the_limits_of_an_app_are_those_of_its_alerts(journal: Path) -> None:
    """Whether the app stands for its checkpoint, or beside one; an option replaces one of them."""
    app = APP.replace("checkpoint: journal,", "checkpoint: journal, alerts: {freshness_millis: 1},")
    (journal.parent / "app.yaml").write_text(app)
    assert invoke("check", "app.yaml")[0] == 1
    assert invoke("check", "journal", "--app", "app.yaml")[0] == 1
    assert invoke("check", "app.yaml", "--max-age", "1000")[0] == 0
    assert invoke("check", "journal")[0] == 0


def test_a_failed_run_is_a_finding(folder: Path) -> None:
    """With why it failed, and how old what it has left is."""
    with pytest.raises(DagflowError, match="the lights went out"):
        run(load_app("app.yaml"), runtime=crashing(1))
    code, out, _ = invoke("check", "journal")
    assert code == 1
    assert out.startswith("DAGFLOW NOT OK - sample: failed: the lights went out | age=")
    assert " backlog=21B; " in out


def test_a_journal_without_an_archive_is_a_finding(journal: Path) -> None:
    """Its windows can neither be read nor replayed, and nothing else needs them for long."""
    with contextlib.closing(Journal.open(StorageContext.default().objects("journal"), app="sample")) as opened:
        opened.archive()
        take_snapshot(opened._log, opened.state, opened._seq)
    assert invoke("check", "journal")[0] == 0
    for path in Path("journal/archive/000000").iterdir():
        path.unlink()
    code, out, _ = invoke("check", "journal")
    assert code == 1
    assert re.match(r"DAGFLOW NOT OK - \S+: not readable: .*the archive of window 1 is missing", out)


def test_a_journal_that_is_not_there_is_a_finding(folder: Path) -> None:
    """A check that is set up once goes on to say so."""
    code, out, _ = invoke("check", "journal")
    assert code == 1
    assert out == f"DAGFLOW NOT OK - {folder}/journal: not readable: {folder}/journal: there is no journal\n"


@pytest.mark.parametrize(
    "options", [["--max-rejects", "5"], ["--max-rejects", "101%"], ["--max-backlog", "many"], ["--max-age", "-1"]]
)
def test_a_wrong_option_is_2(journal: Path, options: list[str]) -> None:
    """Which no finding is."""
    assert invoke("check", "journal", *options)[0] == 2
