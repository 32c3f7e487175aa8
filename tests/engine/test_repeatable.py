"""What a run reports about an app that has changed since the run before."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from deltalake import DeltaTable

from dagflow.cli.commands import replay
from dagflow.cli.shared_options import Settings
from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.engine.window_replay import replay_windows
from dagflow.errors import JournalError
from dagflow.journal.reader import read_state
from dagflow.plan.load import load_app
from dagflow.plan.logical import LogicalPlan
from dagflow.runtime.local import InlineRuntime
from dagflow.storage.context import StorageContext
from tests.engine.test_driver import RecordingObserver
from tests.engine.test_window_replay import APP, published
from tests.nightly import by_day

COMMAND = "dagflow replay journal"
CHANGED = "the app has changed since the run before: filter.drop: "


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A working directory in which an app has read three files in three windows."""
    (tmp_path / "in").mkdir()
    for name in "abc":
        (tmp_path / "in" / name).write_text(f"# {name}\n{name}1\n{name}2\n")
    with contextlib.chdir(tmp_path):
        assert notices_of(APP) == []
        yield tmp_path


def notices_of(app: str, *, fresh: bool = False) -> list[str]:
    """Run an app; return its notices."""
    Path("app.yaml").write_text(app)
    watcher = RecordingObserver()
    run(load_app("app.yaml"), RunOptions(fresh=fresh, replay_command=COMMAND), watcher, runtime=InlineRuntime)
    return watcher.notices


def changed(new: str) -> str:
    """The app with another filter."""
    return APP.replace('drop: {prefix: "#"}', new)


def test_a_changed_app_is_reported_with_the_command_that_applies_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where nothing is new; the command replaces all earlier output, and then there is nothing to report."""
    notices = notices_of(changed("keep: {suffix: '1'}"))
    command = f"{COMMAND} --window 1-3"
    assert notices == [
        f'{CHANGED}{{"prefix": "#"}} -> the default; filter.keep: the default -> {{"suffix": "1"}}',
        f"the output of windows 1 to 3 was made by the earlier app; to make it again: {command}",
    ]
    assert notices_of(changed("keep: {suffix: '1'}")) == []
    asked: list[list[int]] = []

    def remember(
        app: LogicalPlan, options: RunOptions, windows: list[int], *others: object, **more: object
    ) -> list[object]:
        asked.append(windows)
        return []

    monkeypatch.setattr(replay, "replay_windows", remember)
    done = CliRunner().invoke(replay.command, shlex.split(command)[2:], obj=Settings())
    assert (done.exit_code, asked) == (0, [[1, 2, 3]])
    replay_windows(load_app("app.yaml"), RunOptions(), asked[0], runtime=InlineRuntime)
    assert sorted(published(folder).values()) == ["a1\n", "b1\n", "c1\n"]


def test_a_replay_of_everything_before_the_run_leaves_nothing_to_report(folder: Path) -> None:
    """A replay of a part does."""
    mended = changed("keep: {suffix: '1'}")
    Path("app.yaml").write_text(mended)
    replay_windows(load_app("app.yaml"), RunOptions(), [1, 2], runtime=InlineRuntime)
    replay_windows(load_app("app.yaml"), RunOptions(), [1, 2, 3], runtime=InlineRuntime)
    assert notices_of(mended) == []
    Path("app.yaml").write_text(APP)
    replay_windows(load_app("app.yaml"), RunOptions(), [2], runtime=InlineRuntime)
    assert len(notices_of(APP)) == 2


def test_only_what_can_be_done_is_advised(folder: Path) -> None:
    """Other input changes no output, no output is to be made again after --fresh, and state stands in the way."""
    [notice] = notices_of(APP.replace("files: [in]", "files: [in], ignore_pattern: x"))
    assert notice == "the app has changed since the run before: splitter.ignore_pattern: the default -> x"
    assert notices_of(changed("keep: {suffix: '1'}"), fresh=True) == []
    stateful = APP.replace(
        'filter: {class: RecordFilter, properties: {drop: {prefix: "#"}}, partition: parallel}',
        "filter: {class: Deduplicator, partition: 1}",
    )
    last = notices_of(stateful)[-1]
    assert "by the earlier app; only a run with --fresh makes it again, because operator 'filter' has state" in last
    notices_of(stateful, fresh=True)
    assert sum(content.count("\n") for content in published(folder).values()) == 9


def test_advice_to_an_app_with_state_and_a_table_leads_somewhere(folder: Path) -> None:
    """--fresh is refused where the table has the windows, and offers no replay, which would be refused as well."""
    writer = "{class: RecordWriter, properties: {path: out}, partition: parallel}"
    stateful = APP.replace(
        'filter: {class: RecordFilter, properties: {drop: {prefix: "#"}}, partition: parallel}',
        "filter: {class: Deduplicator, partition: 1}",
    )
    table = stateful.replace(writer, "{class: TableWriter, properties: {table: 'delta:first'}, partition: parallel}")
    notices_of(table, fresh=True)
    bounded = table.replace("Deduplicator, partition: 1", "Deduplicator, properties: {max_keys: 9}, partition: 1")
    expected = (
        f"only a run with --fresh, into another place than table delta:{folder / 'first'}, makes it again, because "
        "operator 'filter' has state"
    )
    assert expected in notices_of(bounded)[-1]
    with pytest.raises(JournalError, match=r"rows of windows 1 to \d into .* a second time") as raised:
        notices_of(bounded, fresh=True)
    assert raised.value.hint.endswith("and run again with --fresh")
    notices_of(bounded.replace("delta:first", "delta:second"), fresh=True)
    assert DeltaTable("second").to_pyarrow_table().num_rows == 9


def test_what_cannot_be_made_again_is_not_advised(folder: Path) -> None:
    """Neither a replay nor a fresh run has source files that were removed."""
    stream = "streams:\n  done: {from: reader.blocks_metadata_output, to: cleaner.input}"
    cleaning = APP.replace("streams:", "  cleaner: {class: SourceCleaner, properties: {action: remove}}\nstreams:")
    cleaning = cleaning.replace("streams:", stream)
    notices_of(cleaning)
    (folder / "in" / "d").write_text("d1\n")
    notices_of(cleaning)
    last = notices_of(cleaning.replace('drop: {prefix: "#"}', "keep: {suffix: '1'}"))[-1]
    assert "by the earlier app; nothing makes it again, because operator 'cleaner' has removed the source" in last


def test_no_replay_is_advised_to_an_app_that_cannot_take_the_windows(folder: Path) -> None:
    """What was planned for a reader is not read by one of another name."""
    last = notices_of(APP.replace("reader:", "other:").replace("reader.", "other."))[-1]
    assert (
        "only a run with --fresh makes it again, because window 1 has tuples for 'reader', and the app has no" in last
    )


@pytest.mark.parametrize("other", by_day(1, ["delta:other", "parquet:other"]))
def test_no_replay_is_advised_of_what_another_table_has(folder: Path, other: str) -> None:
    """Nothing is replaced there; neither when the table has just changed, nor when another change comes later."""
    writer = "{class: RecordWriter, properties: {path: out}, partition: parallel}"
    table = APP.replace(writer, "{class: TableWriter, properties: {table: 'TABLE'}, partition: parallel}")
    notices_of(table.replace("TABLE", "delta:first"), fresh=True)
    newest = read_state(StorageContext.default().objects(str(folder / "journal"))).last_committed
    last = notices_of(table.replace("TABLE", other))[-1]
    assert (
        f"only a run with --fresh makes it again, because the output of operator 'writer' up to window {newest} is "
        f"in table delta:{folder / 'first'}, and stays there"
    ) in last
    (folder / "in" / "d").write_text("d1\n")
    assert notices_of(table.replace("TABLE", other)) == []
    later = notices_of(table.replace("TABLE", other).replace('{prefix: "#"}', '{prefix: "!"}'))[-1]
    assert f" up to window {newest} is in " in later and "dagflow replay" not in later
    notices_of(table.replace("TABLE", "delta:all"), fresh=True)
    found = DeltaTable("all").to_pyarrow_table()["record"].to_pylist()
    assert sorted(found) == [b"a1", b"a2", b"b1", b"b2", b"c1", b"c2", b"d1"]


def test_no_replay_is_advised_to_an_app_with_results_over_windows(folder: Path) -> None:
    """It would give a result for each window, which only a new run can put together."""
    counting = changed("by: record").replace("RecordFilter", "CountBy")
    last = notices_of(counting)[-1]
    assert "only a run with --fresh makes it again, because operator 'filter' gives results over" in last


def test_a_result_over_the_run_is_made_again_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replay refuses its windows."""
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()
    Path("in/a").write_text("x\ny\n")
    counting = APP.replace(
        'filter: {class: RecordFilter, properties: {drop: {prefix: "#"}}, partition: parallel}',
        "filter: {class: CountBy, properties: {by: record}, partition: parallel}",
    )
    assert notices_of(counting) == []
    last = notices_of(counting.replace("by: record", "by: record, over: window"))[-1]
    assert "only a run with --fresh makes it again, because window 1 is part of a result of operator 'filter" in last
