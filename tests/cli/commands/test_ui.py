"""`dagflow ui` and `dagflow report`, as a person starts them."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import urllib.request
from pathlib import Path

from tests.cli.commands.inspected_app import folder, invoke, journal
from tests.cli.processes import ENTRY, environment

__all__ = ["folder", "journal"]


def test_pages_are_served_until_a_signal_ends_them(journal: Path) -> None:
    """The address is printed, answers, and the process ends with 0."""
    command = [*ENTRY, "ui", str(journal), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment()) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        address = re.fullmatch(r"1 checkpoint at (http://127\.0\.0\.1:\d+/) \(Ctrl-C ends\)\n", line)
        assert address is not None, line
        with urllib.request.urlopen(f"{address[1]}api/v1/app", timeout=30) as answer:
            assert json.load(answer)["app"] == "sample"
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0


def test_pages_may_be_opened_before_the_first_run(folder: Path) -> None:
    """A line says that there is no journal, with its location: it may be misspelt."""
    command = [*ENTRY, "ui", str(folder / "later.journal"), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment()) as process:
        assert process.stderr is not None
        said = [process.stderr.readline() for _ in range(2)]
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0
    assert said[0] == f"there is no journal at '{folder}/later.journal'; the page waits for a run\n"
    assert said[1].startswith("1 checkpoint at http://")


def test_one_checkpoint_that_cannot_be_read_leaves_the_others(journal: Path, folder: Path) -> None:
    """A line says which and why, and its row of the fleet says the same."""
    (folder / "bad.journal" / "log").mkdir(parents=True)
    (folder / "bad.journal" / "log" / "000000000001").write_bytes(b"no journal")
    command = [*ENTRY, "ui", str(journal), str(folder / "bad.journal"), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment()) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith(f"a checkpoint cannot be read: {folder}/bad.journal/log/0000")
        address = re.fullmatch(r"2 checkpoints at (http\S+) \(Ctrl-C ends\)\n", process.stderr.readline())
        assert address is not None
        with urllib.request.urlopen(f"{address[1]}api/v1/apps", timeout=30) as answer:
            assert [each["state"] for each in json.load(answer)["apps"]] == ["completed", "unreadable"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0


def test_a_report_is_one_file_with_the_data_of_its_moment(journal: Path, folder: Path) -> None:
    """It holds what the server would answer, and names no other file or address."""
    code, _, error = invoke("report", str(journal), "-o", "run.html")
    assert code == 0 and error.startswith("wrote run.html (")
    text = (folder / "run.html").read_text()
    data = re.search(r'<script type="application/json" id="dagflow-data">(.*?)</script>', text, re.DOTALL)
    assert data is not None
    resources = json.loads(data[1])["resources"]
    (row,) = resources["apps"]["apps"]
    assert row["app"] == "sample"
    own = f"apps/{row['id']}"
    assert {f"{own}/graph", f"{own}/windows", f"{own}/windows/1", own} <= resources.keys()
    assert not re.search(r'(src|href)="(?!data:)', text)


def test_what_is_no_checkpoint_is_refused(folder: Path) -> None:
    """Nothing listens, and nothing is written."""
    code, _, error = invoke("report", "nowhere", "-o", "run.html")
    assert code == 2 and "there is no journal at" in error
    code, _, error = invoke("ui", "app.yaml/nowhere")
    assert code == 2 and "app.yaml is a file" in error
    assert not (folder / "run.html").exists()


def test_a_report_that_cannot_be_written_says_so(journal: Path) -> None:
    """The message names the file."""
    code, _, error = invoke("report", str(journal), "-o", "none/run.html")
    assert code == 1 and "none/run.html: cannot write the report: No such file or directory" in error
