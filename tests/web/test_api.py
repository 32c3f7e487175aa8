"""What the server answers about real checkpoints."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path

import pytest

from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.engine.window_replay import replay_windows
from dagflow.errors import DagflowError, MissingError
from dagflow.journal.reader import newest_windows, read_state
from dagflow.journal.windows import Window, WindowIntent, WindowPlan
from dagflow.plan.load import load_app
from dagflow.report.open_rejects import RejectChoice
from dagflow.report.own_figures import OwnFigures
from dagflow.report.reading import status
from dagflow.runtime.local import InlineRuntime
from dagflow.storage.context import StorageContext
from dagflow.web.api import Api, status_of
from dagflow.web.application import mark_of
from dagflow.web.checkpoints import Checkpoint, RequestError, named
from dagflow.web.resources.graph_resource import partition_times
from dagflow.web.resources.windows_resource import slow_tasks
from tests.engine.test_driver import crashing
from tests.web.conftest import APP, ROWS, api_of, ask, finish


def test_a_row_of_the_fleet_says_whether_all_bytes_add_up(folder: Path) -> None:
    """A finished run is up to date, and its bytes are records, delimiters, skips and rejects."""
    (row,) = ask("apps")["apps"]
    assert (row["id"], row["app"], row["state"], row["rejected"]) == ("sample", "sample", "completed", 1)
    assert row["account"]["adds_up"]
    assert row["account"]["bytes"] == (folder / "in" / "a.csv").stat().st_size
    assert row["backlog"] == {"blocks": 0, "bytes": 0, "seconds": None}


def test_bytes_are_not_said_to_be_lost_while_files_are_read(folder: Path) -> None:
    """A record may reach into a block that is not committed; at the end the equation holds."""
    last = ask("apps")["apps"][0]["windows"]
    (folder / "in" / "big.csv").write_bytes(b"name,n\n" + b"x,%d\n" * 40 % (*range(40),))
    with pytest.raises(DagflowError, match="the lights went out"):
        run(load_app("app.yaml"), RunOptions(), runtime=crashing(after=last + 2))
    (row,) = ask("apps")["apps"]
    assert row["account"]["adds_up"] is None
    finish()
    (row,) = ask("apps")["apps"]
    assert row["account"]["adds_up"] is True


def test_status_is_what_the_command_prints(folder: Path) -> None:
    """There is one truth about a checkpoint."""
    expected = status("out/sample.journal", StorageContext.default()).status_json()
    found = ask("apps/sample")
    for moving in (found, expected):
        moving["driver"].pop("beat_age_seconds")
    assert found == json.loads(json.dumps(expected)) == {**ask("status"), "driver": found["driver"]}


def test_the_graph_has_what_passed_each_stream(folder: Path) -> None:
    """Fused operators share a stage, and an edge knows how many records passed."""
    found = ask("graph")
    (stage,) = found["stages"]
    assert stage["name"] == "reader" and {*stage["operators"]} == {"reader", "filter", "writer", "refused"}
    edges = {each["from"]: each for each in found["edges"]}
    assert edges["filter.output"]["records_in"] - edges["filter.output"]["records"] == 1
    assert edges["splitter.blocks_metadata_output"]["is_exchange"] and not edges["filter.output"]["is_exchange"]
    nodes = {each["name"]: each for each in found["nodes"]}
    assert nodes["reader"]["rejected"] == 1
    assert nodes["reader"]["seconds"]["reading"] > 0 and nodes["writer"]["seconds"]["writing"] > 0
    assert {"name": "block_size", "value": "16", "default": False} in [
        {name: each[name] for name in ("name", "value", "default")} for each in nodes["splitter"]["properties"]
    ]


def test_windows_come_page_by_page_newest_first(folder: Path) -> None:
    """The pages together have each window once, in descending order."""
    seen: list[int] = []
    page = ask("windows", limit="2")
    while True:
        seen += [each["window"] for each in page["windows"]]
        if page["next"] is None:
            break
        page = ask("windows", limit="2", before=str(page["next"]))
    assert len(seen) > 1 and seen == list(range(len(seen), 0, -1))
    assert sum(each["records"] for each in ask("windows")["windows"]) == 7
    with pytest.raises(RequestError, match="limit must be a whole number of at least 0, not 'x'"):
        ask("windows", limit="x")


def test_a_window_knows_its_ranges_outputs_and_marks(folder: Path) -> None:
    """It is the manifest of the command line, with its marks."""
    found = [ask(f"windows/{each['window']}") for each in ask("windows")["windows"]]
    assert {each["state"] for each in found} == {"published"}
    assert sum(len(each["inputs"]) for each in found) == sum(each["counts"]["inputs"] for each in found) > 0
    assert [mark["text"] for each in found for mark in each["marks"] if mark["kind"] == "reject"] == [
        "1 records were refused"
    ]
    with pytest.raises(MissingError, match="window 99 is unknown"):
        ask("windows/99")


def test_files_are_found_by_name_and_state(folder: Path) -> None:
    """A version is shown once on a page, with the windows that read it."""
    (row,) = ask("files")["files"]
    assert row["url"] == str(folder / "in" / "a.csv") and row["state"] == "read"
    assert len(row["windows"]) > 1 and row["rejected"] == 1
    assert ask("files", search="A.CSV")["files"] == ask("files", search="in/*.csv")["files"] == [row]
    assert ask("files", search="b.txt")["files"] == ask("files", state="planned")["files"] == []


@pytest.mark.parametrize("reading_s", [600.0, -1.0])
def test_pages_of_files_cover_each_range_once(folder: Path, reading_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a page leaves out, the next one begins with, also where one window takes longer than a request may."""
    monkeypatch.setattr("dagflow.web.checkpoints.READING_S", reading_s)
    for name in ("c", "d", "e", "f"):
        (folder / "in" / f"{name}.csv").write_bytes(b"name,n\nx,1\n")
    finish()
    urls: list[str] = []
    after = ""
    while True:
        page = ask("files", limit="1", after=after)
        urls += [each["url"] for each in page["files"]]
        if page["next"] is None:
            break
        after = page["next"]
    assert set(urls) == {str(folder / "in" / f"{name}.csv") for name in "acdef"}
    with pytest.raises(RequestError, match="after must be the value of next in an earlier answer"):
        ask("files", after="1,2")


def test_why_a_file_was_not_taken_is_said_by_the_splitter(folder: Path) -> None:
    """What the journal knows comes first, and then the rule that skips the file."""
    assert ask("why", url=str(folder / "in" / "a.csv"))["taken"]
    found = ask("why", url=str(folder / "in" / "b.txt"))
    assert not found["taken"]
    assert found["sentence"] == "It is not taken: file_pattern '(?s).*[.]csv' does not match the name 'b.txt'."


@pytest.mark.nightly
def test_an_app_of_another_user_is_not_run(folder: Path) -> None:
    """A file that others can change may hold anything; its text is shown, and a named one is looked at."""
    os.chmod("app.yaml", 0o666)
    assert "Another user can change the app file" in ask("app")["note"]
    assert ask("app")["yaml"] == (folder / "app.yaml").read_text()
    with pytest.raises(RequestError, match=r"no splitter can be asked\. Another user can change"):
        ask("why", url=str(folder / "in" / "b.txt"))
    os.chmod("app.yaml", 0o600)
    assert ask("app")["note"] == ""
    # A module there would be imported.
    os.chmod(folder, 0o777)
    assert "the directory of its run" in ask("app")["note"]
    api = Api(named([Checkpoint("out/sample.journal", StorageContext.default(), "app.yaml")]))
    assert api.answer("app", {})["note"] == ""


@pytest.mark.nightly
def test_what_an_app_is_compared_with_is_the_newest_run(folder: Path) -> None:
    """After a run with the changed app the same server shows nothing as changed any more."""
    api, text = api_of(), (folder / "app.yaml").read_text()
    (folder / "app.yaml").write_text(text.replace("n <> 1", "n <> 2"))
    assert len(api.answer("app", {})["changes"]) == 1
    (folder / "in" / "d.csv").write_bytes(b"name,n\nx,1\n")
    finish()
    assert api.answer("app", {})["changes"] == []


@pytest.mark.nightly
def test_modules_beside_a_run_do_not_replace_those_of_python(folder: Path) -> None:
    """An app is looked at in the directory of its run, where a file may have any name."""
    (folder / "inspect.py").write_text("raise SystemExit('imported')")
    assert ask("app")["problems"] == [] and ask("why", url=str(folder / "in" / "b.txt"))["taken"] is False


@pytest.mark.nightly
def test_the_app_shows_its_mistakes_and_what_changed(folder: Path) -> None:
    """Each change has a verdict, and each mistake its line."""
    assert (ask("app")["problems"], ask("app")["changes"]) == ([], [])
    text = (folder / "app.yaml").read_text()
    (folder / "app.yaml").write_text(text.replace("n <> 1", "n <> 2"))
    (change,) = ask("app")["changes"]
    assert change["verdict"] == "repeats" and "filter.where" in change["text"]
    (folder / "app.yaml").write_text(text.replace("where", "wehre"))
    (problem,) = ask("app")["problems"]
    assert problem["line"] == 1 + text[: text.index("where")].count("\n")
    assert "did you mean 'where'?" in problem["message"]


def test_records_at_a_port_are_those_of_a_preview(folder: Path) -> None:
    """The sample has the columns of the port, and the place of each record."""
    found = ask("sample", port="filter.output")
    assert found["columns"] == ["file:offset", "name", "n"]
    assert found["rows"][0] == [f"{folder}/in/a.csv:7", "ant", "0"]
    with pytest.raises(RequestError, match="port is missing"):
        ask("sample")
    with pytest.raises(RequestError, match=r"^operator 'filter' has no port 'nope'") as unknown:
        ask("sample", port="filter.nope")
    assert unknown.value.status == 404


FAILS = """\
from dagflow import InputPort, Operator, OutputPort, RecordBatch


class Fails(Operator):
    password: str
    input = InputPort()
    output = OutputPort()

    @input.batch
    def fail(self, batch: RecordBatch) -> None:
        raise ValueError(f"no {self.password}")
"""


@pytest.mark.nightly
def test_a_sample_says_where_an_operator_fails(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a record that came before, the request fails; what it says shows no secret."""
    monkeypatch.setenv("WORD", "open sesame")
    (folder / "own.py").write_text(FAILS)
    text = (folder / "app.yaml").read_text()
    fails = "class: own.Fails, properties: {password: '${WORD}'}"
    (folder / "app.yaml").write_text(text.replace('class: Select, properties: {where: "n <> 1"}', fails))
    with pytest.raises(
        RequestError, match=r"^operator 'filter': fail\(\) raised ValueError\(no \$\{WORD\}\)"
    ) as failed:
        ask("sample", port="filter.output")
    assert failed.value.status == 502 and "sesame" not in failed.value.message


@pytest.mark.nightly
def test_a_sample_of_what_ends_a_run_has_its_records(folder: Path) -> None:
    """What came is shown, and beside it what a run would end with."""
    assert ask("sample", port="filter.output")["error"] == ""
    lines = (folder / "app.yaml").read_text().splitlines(keepends=True)
    (folder / "app.yaml").write_text("".join(each for each in lines if not each.startswith(("  refused:", "  bad:"))))
    found = ask("sample", port="filter.output")
    assert found["rows"] and found["error"].startswith("operator 'reader': a run ends where a record is ref")


def test_a_name_that_no_file_can_have_is_a_mistake_of_the_request(folder: Path) -> None:
    """No process is asked for it."""
    for resource in ("why", "files/one"):
        with pytest.raises(RequestError, match="url holds the character 0") as refused:
            ask(resource, url="a\0b")
        assert refused.value.status == 400


def test_rejects_are_grouped_and_have_their_bytes(folder: Path) -> None:
    """The refused row is shown with its place, and only where it is asked for."""
    found = ask("rejects")
    (row,) = found["rejects"]
    assert base64.b64decode(row["raw"]) == b"fox,many"
    assert row["offset"] == (folder / "in" / "a.csv").read_bytes().index(b"fox")
    assert found["by_file"] == [{"name": str(folder / "in" / "a.csv"), "count": 1}]
    assert ask("rejects", window=str(row["window"]))["total"] == 1
    assert ask("rejects", file="/other")["total"] == ask("rejects", reason="other")["total"] == 0


def test_several_checkpoints_are_named_apart(folder: Path) -> None:
    """Without an id the answer says which there are."""
    os.rename("out", "other")
    finish()
    api = api_of("out/sample.journal", "other/sample.journal", "out/sample.journal")
    assert list(api.checkpoints) == ["sample", "sample-2"]
    assert api.answer("windows", {"checkpoint": "sample-2"})["windows"]
    with pytest.raises(RequestError, match="several checkpoints") as several:
        api.answer("windows", {})
    assert several.value.hint == "name one: ?checkpoint=sample|sample-2"
    for path in ("apps/third", "apps/sample/nothing", "apps/sample/windows/x", f"apps/sample/windows/{'9' * 5000}"):
        with pytest.raises(RequestError, match="there is no"):
            api.answer(path, {})


def test_rows_that_are_doubled_are_said_in_words(folder: Path) -> None:
    """Also where the app asks for them, so that no warning does."""
    (folder / "app.yaml").write_text(APP.replace("batch_bytes: 0,", "batch_bytes: 0, on_change: {replaced: reread},"))
    (folder / "new.csv").write_bytes(b"name,n\nant,5\n")
    (folder / "new.csv").replace(folder / "in" / "a.csv")
    finish()
    sentences = "\n".join(api_of().answer("apps", {})["apps"][0]["corrections"])
    assert "a.csv was read again: 5 old rows stay beside the new ones (records); to take them out" in sentences


def test_a_checkpoint_is_named_by_what_says_more_than_journal() -> None:
    """An address has the directory of an app that init made, and not a number."""
    urls = ["shop/orders/journal", "shop/weather/out/journal", "out/sales.journal", ".dagflow/events", "out/journal"]
    known = named(Checkpoint(url, StorageContext.default()) for url in urls)
    assert list(known) == ["orders", "weather", "sales", "events", Path.cwd().name.lower()]


def test_a_checkpoint_that_cannot_be_read_has_a_reason(folder: Path) -> None:
    """It is a row of the fleet all the same, and its resources are errors."""
    for record in Path("out/sample.journal/log").iterdir():
        record.write_bytes(b"no journal")
    row = ask("apps")["apps"][0]
    assert row["state"] == "unreadable" and "sample.journal" in row["error"]
    with pytest.raises(DagflowError, match=r"sample\.journal"):
        ask("windows")


def test_a_checkpoint_without_a_run_shows_it_as_soon_as_it_begins(folder: Path) -> None:
    """Looking makes no directory, and an open page shows the first record."""
    Path("app.yaml").write_text(APP.replace("out/", "new/"))
    api = api_of("new/sample.journal")
    (checkpoint,) = api.checkpoints.values()
    before = mark_of(checkpoint)
    row = api.answer("apps", {})["apps"][0]
    assert (row["id"], row["state"]) == ("sample", "no run yet")
    for resource in ("windows", "status", "graph"):
        with pytest.raises(DagflowError, match="there is no journal") as missing:
            api.answer(resource, {})
        assert status_of(missing.value) == 404
    assert not Path("new").exists()
    finish()
    assert mark_of(checkpoint) != before
    assert api.answer("apps", {})["apps"][0]["state"] == "completed"
    assert api.answer("windows", {})["windows"]


def test_hostile_names_stay_text(folder: Path) -> None:
    """Bytes that are no text, markup and line ends come through JSON unchanged."""
    names = [b"<script>alert(1)<script>.csv", b"a\nb\xff\xfe.csv", ("x" * 240 + ".csv").encode()]
    for name in names:
        Path(os.fsdecode(os.path.join(os.fsencode(folder / "in"), name))).write_bytes(b"name,n\nx,1\n")
    finish()
    found = {os.fsencode(each["url"]).rpartition(b"/")[2] for each in ask("files")["files"]}
    assert found == {b"a.csv", *names}


@pytest.mark.parametrize("reading_s", [600.0, -1.0])
def test_pages_of_rejects_have_each_record_once(
    folder: Path, reading_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page of one record, and the cursor that it gives, lead through all of them, the newest windows first."""
    (folder / "in" / "c.csv").write_bytes(b"name,n\na,x\nb,y\nc,3\nd,z\n")
    finish()
    whole = ask("rejects")["rejects"]
    monkeypatch.setattr("dagflow.web.checkpoints.READING_S", reading_s)
    found, after = [], ""
    while True:
        page = ask("rejects", limit="1", after=after)
        found += page["rejects"]
        if (after := page["next"]) is None:
            break
    assert found == whole and len(whole) == 4
    assert [row["window"] for row in whole] == sorted((row["window"] for row in whole), reverse=True)


@pytest.mark.parametrize("after", ["7", "1.2.3", "a.b", f"1.{'9' * 30}", "².1"])
@pytest.mark.parametrize("resource", ["files", "rejects"])
def test_a_cursor_that_no_answer_gave_is_refused(folder: Path, resource: str, after: str) -> None:
    """Such a cursor would begin anywhere."""
    with pytest.raises(RequestError, match="after must be the value of next in an earlier answer"):
        ask(resource, after=after)


def test_a_journal_that_has_grown_is_read_again(folder: Path) -> None:
    """What is kept from one request to the next is never older than the newest record."""
    api = api_of()
    before = api.answer("windows", {})["windows"][0]["window"]
    (folder / "in" / "c.csv").write_bytes(ROWS)
    finish()
    assert api.answer("windows", {})["windows"][0]["window"] > before


def test_marks_say_where_another_driver_began(folder: Path) -> None:
    """The first window that it planned has the mark, and those before and behind it have none."""
    before = ask("windows")["windows"]
    (folder / "in" / "c.csv").write_bytes(ROWS)
    finish()
    marked = [
        each["window"]
        for each in ask("windows")["windows"]
        for mark in each["marks"]
        if mark["text"].startswith(f"the first window of another driver: process {os.getpid()} on ")
    ]
    assert marked == [before[0]["window"] + 1]


def test_a_driver_without_a_window_is_in_no_mark(folder: Path) -> None:
    """The driver that has made a window is named, where several were to begin with it."""
    for _ in range(3):
        finish()
    (folder / "in" / "c.csv").write_bytes(ROWS)
    finish()
    texts = [mark["text"] for each in ask("windows")["windows"] for mark in each["marks"] if mark["kind"] == "driver"]
    (checkpoint,) = api_of().checkpoints.values()
    assert texts == [f"the first window of another driver: {checkpoint.journal()[1].drivers[-1].holder}"]


def test_a_window_of_records_that_came_back_says_so(folder: Path) -> None:
    """They count as records, and as no fewer rejects than none."""
    text = Path("app.yaml").read_text()
    Path("app.yaml").write_text(text.replace("n: int64", "n: string").replace("n <> 1", "n <> 'x'"))
    run(load_app("app.yaml"), RunOptions(rejects=RejectChoice()), runtime=InlineRuntime)
    newest, *others = ask("windows")["windows"]
    assert (newest["records"], newest["rejected"], sum(each["rejected"] for each in others)) == (1, 0, 1)
    texts = [mark["text"] for mark in newest["marks"]]
    (refusing,) = (each["window"] for each in others if each["rejected"])
    assert f"reads the refused records of windows {refusing} again: 1 record came back" in texts
    assert not any("refused" in text for text in texts if not text.startswith("reads the refused records"))
    assert "1 records were refused" in [mark["text"] for each in others for mark in each["marks"]]


def test_a_window_that_ran_again_took_as_long_as_its_last_run(folder: Path) -> None:
    """Its plan was made before the first run: the time between the runs is no part of it."""
    replay_windows(load_app("app.yaml"), RunOptions(), [1], runtime=InlineRuntime)
    shown = ask("windows/1")
    times = [shown["times"][name] for name in ("started_ms", "finished_ms", "committed_ms", "published_ms")]
    assert times[0] > 0 and times == sorted(times)
    assert (shown["times"]["emitted_ms"], shown["times"]["planned_ms"]) == (0, 0)
    assert shown["phases_ms"].keys() == {"run", "commit", "publish"}
    assert ask("windows")["windows"][-1]["times"] == shown["times"]


def test_a_task_that_took_many_times_as_long_is_marked() -> None:
    """Beside the others of its stage, and not where all are short."""
    slow = Window(WindowPlan(1), WindowIntent(1, task_ms={"reader": [900, 9000, 1000, 1100], "sink": [1, 1, 90]}))
    assert list(slow_tasks(slow, OwnFigures(None))) == ["partition 1 of reader took 9.0 s, the median 1.1 s"]
    assert list(slow_tasks(Window(WindowPlan(1)), OwnFigures(None))) == []


def test_partitions_are_compared(folder: Path) -> None:
    """How long each worked is in the journal, and one that has more to do is named."""
    (stage,) = ask("graph")["stages"]
    assert [each["partition"] for each in stage["partition_times"]["times"]] == [0, 1]
    store = StorageContext.default().objects("out/sample.journal")
    intents = [window.intent for window in newest_windows(store, read_state(store)) if window.intent is not None]
    for number, each in enumerate(stage["partition_times"]["times"]):
        assert each["working_seconds"] == sum(intent.task_ms["reader"][number] for intent in intents) / 1000
    uneven = [Window(WindowPlan(n, partitions={"x": 3}), WindowIntent(n, task_ms={"x": [100, 900]})) for n in (2, 1)]
    found = partition_times(uneven, "x")
    assert found["sentence"] == "Partition 1 works 2.7 times as long as the mean of 3."
    assert [each["waiting_seconds"] for each in found["times"]] == [1.6, 0.0, 1.8]
    fewer = Window(WindowPlan(1, partitions={"x": 1}), WindowIntent(1, task_ms={"x": [5]}))
    assert partition_times([uneven[0], fewer], "x")["times"][1]["working_seconds"] == 0.9
    assert partition_times([Window(WindowPlan(1))], "x") == {"count": 0, "times": [], "sentence": ""}


@pytest.mark.nightly
def test_the_app_is_shown_as_the_last_run_had_it(folder: Path) -> None:
    """Changed lines are shown, and the file is shown where it is gone; secrets were never kept."""
    text = (folder / "app.yaml").read_text()
    assert (ask("app")["yaml_of_run"], ask("app")["difference"]) == (text, [])
    (folder / "app.yaml").write_text(f"{text}# password: geheim\n".replace("n <> 1", "n <> 2"))
    lines = [each["text"] for each in ask("app")["difference"] if each["kind"] in ("added", "removed")]
    assert [line.strip() for line in lines] == [
        '-  filter: {class: Select, properties: {where: "n <> 1"}, partition: parallel}',
        '+  filter: {class: Select, properties: {where: "n <> 2"}, partition: parallel}',
        "+# ***",
    ]
    (folder / "app.yaml").write_text(text.replace("name: sample", "name: sample # a remark"))
    finish()
    (folder / "app.yaml").unlink()
    found = ask("app")
    assert found["yaml"] is None and found["yaml_of_run"].startswith("name: sample # a remark")
