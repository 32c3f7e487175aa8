"""What a run says as JSON, and the log file that it leaves."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dagflow.cli import run_log
from dagflow.cli.run_log import KEPT_RUNS, attached, json_line, open_run_log
from tests.cli.commands.inspected_app import APP, folder, invoke

__all__ = ["folder"]


def lines_of(text: str) -> list[dict[str, Any]]:
    """The objects of a log, one for each line."""
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("window committed window=7 files=2", {"window": 7}),
        ("window 7, operator 'keep' partition 3: no progress for 60 s", {"window": 7, "operator": "keep"}),
        ("block left out url=s3://b/a.txt start=5: gone", {"file": "s3://b/a.txt"}),
        ("scan failed path=/in/x error=no", {"file": "/in/x"}),
        ("two\nlines \ud800 and é", {}),
    ],
)
def test_a_line_has_what_its_message_names(text: str, fields: dict[str, Any]) -> None:
    """Window, operator and file, each in a field of its own; it is one line of ASCII whatever the message holds."""
    line = json_line("app", "info", text)
    assert line.isascii() and "\n" not in line
    found = json.loads(line)
    assert found.pop("time").endswith("+00:00")
    assert found == {"level": "info", "app": "app", **fields, "message": text}


def test_a_run_that_is_asked_for_json_says_only_json(folder: Path) -> None:
    """Also its summary and the place of its log; stdout stays for the result."""
    code, out, err = invoke("run", "app.yaml", "--local", "--workers", "1", "--log-format", "json", "--json")
    assert code == 0
    assert json.loads(out)["state"] == "completed"
    said = lines_of(err)
    assert {each["app"] for each in said} == {"sample"}
    assert next(each["run"]["records"] for each in said if "run" in each) == json.loads(out)["records"]
    assert "log of the run: .dagflow/logs/sample-" in said[-1]["message"]


def test_an_error_is_json_too_and_names_operator_and_file(folder: Path) -> None:
    """With the level error, and what to do."""
    app = (folder / "app.yaml").read_text()
    csv = "{max_readers: 4, format: {type: json_lines, columns: as_found}}"
    (folder / "app.yaml").write_text(
        app.replace("{max_readers: 4}", csv).replace('{drop: {prefix: "#"}}', "{keep: {prefix: a}}")
    )
    code, _, err = invoke("run", "app.yaml", "--local", "--workers", "1", "--log-format", "json")
    assert code == 1
    last = lines_of(err)[-1]
    assert last["level"] == "error"
    assert "continue with: dagflow run app.yaml" in last["message"]
    assert "log of the run: " in last["message"]
    (log,) = (folder / ".dagflow" / "logs").iterdir()
    kept = lines_of(log.read_text())[-1]
    assert kept["level"] == "error"
    assert kept["trace"].startswith("Traceback (most recent call last)")
    assert "json_records.py" in kept["trace"]
    assert "trace" not in last


def test_no_message_nor_field_of_an_error_has_a_value(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file of an error is a field of its own, and an exception shows the same name escaped."""
    monkeypatch.setenv("API_TOKEN", 'pw\\SeCr\nEt"e')
    (folder / "app.yaml").write_text((folder / "app.yaml").read_text().replace("[in]", "['in/${API_TOKEN}.txt']"))
    code, _, err = invoke("run", "app.yaml", "--local", "--workers", "1", "--log-format", "json")
    assert code == 1
    (log,) = (folder / ".dagflow" / "logs").iterdir()
    for said in (err, log.read_text()):
        assert lines_of(said)[-1]["file"] == "in/${API_TOKEN}.txt"
        assert "SeCr" not in said


def test_the_log_of_a_run_has_what_it_did(folder: Path) -> None:
    """Each window, and the summary at the end; only its owner may read it, and the last line of the run names it."""
    code, _, err = invoke("run", "app.yaml", "--local", "--workers", "1")
    assert code == 0
    name = err.rstrip().rpartition("log of the run: ")[2]
    file = folder / name
    said = lines_of(file.read_text())
    assert any(each["message"].startswith("window committed") and each["window"] == 1 for each in said)
    assert said[-1]["message"].startswith("completed: {")
    assert file.stat().st_mode & 0o777 == 0o600
    assert "window committed" not in err


def test_logs_are_bounded_in_size_and_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long log loses its middle part, and the oldest logs of the app make room; those of another app stay.

    Only their owner may read both parts.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run_log, "MOST_BYTES", 1000)
    logs = tmp_path / ".dagflow" / "logs"
    logs.mkdir(parents=True)
    for number in range(KEPT_RUNS + 5):
        (logs / f"app-20200101T0000{number:02}-1.log").write_text("old")
        (logs / f"app-20200101T0000{number:02}-1.log.1").write_text("older")
    (logs / "app-b-20200101T000000-1.log").write_text("another app's")
    log = open_run_log("app", lambda text: text.replace("secret", "***"))
    assert log is not None
    with attached(log):
        for number in range(100):
            logging.getLogger("dagflow.x").info("window committed with a secret window=%d", number)
    log.end("completed")
    parts = [file.stat() for file in (log.path, log.path.with_name(f"{log.path.name}.1"))]
    assert sum(part.st_size for part in parts) <= 2000
    assert {part.st_mode & 0o777 for part in parts} == {0o600}
    assert "window=99" in log.path.read_text() and "secret" not in log.path.read_text()
    names = [name for name in os.listdir(logs) if name.endswith(".log") and not name.startswith("app-b")]
    assert len(names) == KEPT_RUNS
    assert "app-20200101T000006-1.log" in names and "app-20200101T000005-1.log" not in names
    assert (logs / "app-b-20200101T000000-1.log").exists()


def test_a_run_that_can_keep_no_log_runs_all_the_same(folder: Path) -> None:
    """Where the directory cannot be made."""
    (folder / ".dagflow").write_text("a file")
    assert open_run_log("app", str) is None
    code, _, err = invoke("run", "app.yaml", "--local", "--workers", "1")
    assert code == 0
    assert "log of the run" not in err


def fill(path: Path) -> None:
    """Leave no space on the disk of a new file."""
    with pytest.raises(OSError, match="No space left"), path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


@pytest.mark.parametrize("most_bytes", [1000, 1 << 20], ids=["rolled over", "never rolled over"])
def test_a_full_disk_ends_no_log(disk: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, most_bytes: int) -> None:
    """Whole messages are lost, and nothing is raised; with space again the log goes on."""
    monkeypatch.setattr(run_log, "MOST_BYTES", most_bytes)
    monkeypatch.chdir(disk("size=64k"))
    log = open_run_log("app", str)
    assert log is not None
    logger = logging.getLogger("dagflow.x")
    with attached(log):
        for at in (1, 2):
            logger.info("there is space window=%d", at)
            assert lines_of(log.path.read_text())[-1]["window"] == at
            fill(Path("full"))
            for _ in range(200):
                logger.info("there is none: %s", "x" * 100)
            Path("full").unlink()
        fill(Path("full"))
        logger.info("there is none: %s", "x" * 5000)
    log.end("completed")


def test_a_log_whose_file_could_not_be_closed_ends_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk in a network may refuse that when the log goes on in a new file, and leaves it closed all the same."""
    monkeypatch.chdir(tmp_path)
    log = open_run_log("app", str)
    assert log is not None and log.handler.stream is not None
    log.handler.stream.close()
    log.end("completed")


@pytest.mark.parametrize("has_space", [True, False])
def test_a_run_in_a_full_directory_says_how_it_went(
    disk: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_space: bool
) -> None:
    """It completes where only its log is there, and otherwise fails with the error of the disk."""
    place = disk("size=256k")
    monkeypatch.chdir(place)
    root = tmp_path if has_space else place
    app = APP.replace("checkpoint: journal", f"checkpoint: {root}/journal").replace("path: out", f"path: {root}/out")
    Path("app.yaml").write_text(app)
    Path("in").mkdir()
    Path("in", "a.txt").write_text("two\nthree\n")
    run_log.DIRECTORY.mkdir(parents=True)
    fill(Path("full"))
    code, _, err = invoke("run", "app.yaml", "--local", "--workers", "1")
    assert "Traceback" not in err and "bug" not in err
    assert code == (0 if has_space else 1)
    assert ("completed in" if has_space else "No space left on device") in err
