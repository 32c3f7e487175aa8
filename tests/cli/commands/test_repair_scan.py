"""Asking a run to look for new files."""

from __future__ import annotations

import threading
from pathlib import Path

from click.testing import CliRunner

from dagflow.cli.main import command_line
from dagflow.engine.live_run import StopRequest
from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.plan.load import load_app
from dagflow.runtime.local import InlineRuntime
from tests.engine.test_driver import RecordingObserver

APP = """\
name: sample
attributes: {{checkpoint: {folder}/journal, window_millis: 20}}
operators:
  splitter: {{class: FileSplitterInput, properties: {{files: ["{folder}/in"], scan_interval_millis: 3600000}}}}
  reader: {{class: BlockReader}}
  writer: {{class: RecordWriter, properties: {{path: "{folder}/out"}}, partition: parallel}}
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  records: {{from: reader.messages, to: writer.input}}
"""


def invoke(*args: str) -> tuple[int, str]:
    """Run a command in this process: its exit code and stderr."""
    done = CliRunner().invoke(command_line, args)
    return done.exit_code, done.stderr


def test_a_run_that_waits_for_an_hour_scans_when_it_is_asked_to(tmp_path: Path) -> None:
    """A file that came after the first scan is read at once."""
    (tmp_path / "app.yaml").write_text(APP.format(folder=tmp_path))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "first").write_text("1\n")
    stop = StopRequest()
    committed = [threading.Event(), threading.Event()]

    def act(summary: object) -> None:
        for event in committed[: getattr(summary, "last_committed", 0)]:
            event.set()

    app = load_app(str(tmp_path / "app.yaml"))
    arguments = app, RunOptions(follow=True), RecordingObserver(act), stop, InlineRuntime
    follower = threading.Thread(target=run, args=arguments)
    follower.start()
    try:
        assert committed[0].wait(30)
        (tmp_path / "in" / "second").write_text("2\n")
        code, text = invoke("scan", str(tmp_path / "app.yaml"), "--wait", "30")
        assert (code, text) == (0, "a run has taken the request, and scans\n")
        assert committed[1].wait(30)
    finally:
        stop.request()
        follower.join()
    assert sorted(path.read_text() for path in (tmp_path / "out").iterdir()) == ["1\n", "2\n"]


def test_a_request_that_no_run_takes_waits_for_the_next(tmp_path: Path) -> None:
    """Without --wait that is no error; with it, it is."""
    (tmp_path / "app.yaml").write_text(APP.format(folder=tmp_path))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "first").write_text("1\n")
    run(load_app(str(tmp_path / "app.yaml")), RunOptions(), runtime=InlineRuntime)
    code, text = invoke("scan", str(tmp_path / "journal"))
    assert (code, text.startswith("asked for a scan")) == (0, True)
    code, text = invoke("scan", str(tmp_path / "app.yaml"), "--wait", "0.1")
    assert (code, "no run has taken the request in 0.1 s" in text) == (1, True)
    assert invoke("scan", str(tmp_path / "nothing"))[0] == 2
    code, text = invoke("scan", str(tmp_path / "app.yaml"), "--wait", "nan")
    assert (code, "nan is no number of seconds" in text) == (2, True)
