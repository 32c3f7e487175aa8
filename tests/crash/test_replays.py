"""Replays that die before each change of the disk, or at each request to a bucket."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.engine.window_replay import replay_windows
from dagflow.errors import StorageError
from dagflow.journal.reader import read_state
from dagflow.plan.load import load_app
from dagflow.report.manifest import manifests
from dagflow.runtime.local import InlineRuntime
from dagflow.storage.backends.s3.client import S3Client
from dagflow.storage.context import StorageContext
from dagflow.testing.faults import InjectedCrash, crashing_disk
from tests.cli.processes import ENTRY, environment
from tests.crash.restored import restored_afterwards
from tests.crash.test_object_store import SAMPLES, dying, published, uploads
from tests.nightly import every

STORAGE = StorageContext.default()

APP = """\
name: sample
attributes: {checkpoint: ROOT/journal, master: "local[2]"}
operators:
  splitter: {class: FileSplitterInput, properties: {files: [ROOT/in], blocks_threshold: 2, batch_bytes: 0}}
  reader: {class: BlockReader, properties: {min_readers: 2, max_readers: 2}}
  filter: {class: RecordFilter, properties: {RULE}, partition: parallel}
  writer: {class: RecordWriter, properties: {path: ROOT/out}, partition: parallel}
streams:
  blocks: {from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}
  records: {from: reader.messages, to: filter.input}
  kept: {from: filter.output, to: writer.input}
"""
RULES = {"old": 'drop: {regex: "^(#|e|# e)"}', "new": 'drop: {regex: "2$|^b|^#"}'}
WINDOWS = [1, 3]
"""They read a, b, e and f, and have a file each for a, b, f by the old rule, for a, e, f by the new one."""

Shown = dict[str, bytes]


def text_of(name: str) -> bytes:
    """Return the content of an input file."""
    return f"# {name}\n{name}1\n{name}2\n".encode()


def make(folder: Path, root: str) -> dict[str, str]:
    """Write both apps into a folder, with input and output below a URL; return their paths by name."""
    app_paths = {}
    folder.mkdir(parents=True, exist_ok=True)
    for name, rule in RULES.items():
        path = folder / f"{name}.yaml"
        path.write_text(APP.replace("ROOT", root).replace("RULE", rule))
        app_paths[name] = str(path)
    return app_paths


def made(root: Path) -> dict[str, str]:
    """A directory in which the old app has run in three windows of two files."""
    (root / "in").mkdir(parents=True)
    for name in "abcdef":
        (root / "in" / name).write_bytes(text_of(name))
    apps = make(root, str(root))
    assert run(load_app(apps["old"]), runtime=InlineRuntime).windows == 3
    return apps


def shown(root: Path) -> Shown:
    """Return the visible files of the output."""
    return {path.name: path.read_bytes() for path in (root / "out").glob("[!.]*")}


def replay_all(app: str, windows: list[int] = WINDOWS) -> None:
    """Replay windows with an app."""
    replay_windows(load_app(app), RunOptions(), windows, runtime=InlineRuntime)


def require_sane(found: Shown, old: Shown, new: Shown) -> None:
    """Fail unless every name that stays is there, with its old or its new content."""
    assert old.keys() & new.keys() <= found.keys() <= old.keys() | new.keys()
    assert all(content in (old.get(name), new.get(name)) for name, content in found.items())


def require_old_or_new(root: Path, old: Shown, new: Shown) -> str:
    """Fail unless all files are old or all new, nothing is pending, and the journal agrees; return which."""
    found = {path.name: path.read_bytes() for path in (root / "out").iterdir()}
    assert found in (old, new)
    recorded = {
        each.url.rpartition("/")[2]: each.size_bytes
        for one in manifests(f"{root}/journal", STORAGE)
        for each in one.outputs
    }
    assert recorded == {name: len(content) for name, content in found.items()}
    return "old" if found == old else "new"


@pytest.fixture
def both(tmp_path: Path) -> tuple[Shown, Shown]:
    """Return what is published before a replay, and after one without a crash."""
    apps = made(tmp_path / "undisturbed")
    old = shown(tmp_path / "undisturbed")
    replay_all(apps["new"])
    new = shown(tmp_path / "undisturbed")
    first, second, other, last = (
        f"part-{window:08d}-{part:05d}-0000" for window, part in ((1, 0), (1, 1), (2, 0), (3, 0))
    )
    assert (old.keys() - new.keys(), new.keys() - old.keys()) == ({second}, {last})
    assert (old[first], new[first], new[other]) == (b"a1\na2\n", b"a1\n", old[other])
    return old, new


@every(20)
def test_a_replay_that_dies_is_undone_or_completed_by_the_next_command(
    tmp_path: Path, both: tuple[Shown, Shown], step: int
) -> None:
    """After crashes of the replay and of the restart at any disk change, all files are old, or all new.

    The next command is a run and a replay in turn.
    """
    outcomes = set()
    root = tmp_path / "made"
    apps = made(root)
    for at in range(1, 500, step):
        with restored_afterwards(root):
            with crashing_disk(str(root), at) as faults, contextlib.suppress(InjectedCrash):
                replay_all(apps["new"])
            require_sane(shown(root), *both)
            is_decided = bool(read_state(STORAGE.objects(f"{root}/journal")).reprocessing)
            with crashing_disk(str(root), 1 + at % 23), contextlib.suppress(InjectedCrash):
                run(load_app(apps["old"]), runtime=InlineRuntime)
            require_sane(shown(root), *both)
            if at % 2:
                assert run(load_app(apps["old"]), runtime=InlineRuntime).windows == 0
            else:
                # A replay of another window with its old app completes the first replay, and changes nothing else.
                replay_all(apps["old"], [2])
            decisions = require_old_or_new(root, *both)
            assert decisions == "new" or not is_decided
            outcomes.add(decisions)
        if not faults.has_struck:
            assert (decisions, outcomes) == ("new", {"old", "new"})
            return
    pytest.fail("the replay never came through")


def decided(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """A directory in which a replay died after it had replaced its first file."""
    for at in range(20, 500):
        root = tmp_path / f"decided-{at}"
        apps = made(root)
        before = shown(root)
        script = (
            "import contextlib, sys\n"
            "from dagflow.testing.faults import InjectedCrash, crashing_disk\n"
            "from tests.crash.test_replays import replay_all\n"
            "with contextlib.suppress(InjectedCrash), crashing_disk(sys.argv[1], int(sys.argv[2])):\n"
            "    replay_all(sys.argv[3])\n"
        )
        if at % 4 == 0:  # a process each is slow, and any crash between the first and the last change will do
            command = [sys.executable, "-c", script, str(root), str(at), apps["new"]]
            subprocess.run(command, check=True, env=environment())
            if read_state(STORAGE.objects(f"{root}/journal")).reprocessing and shown(root) != before:
                return root, apps
        shutil.rmtree(root)
    raise AssertionError("no replay died in the right place")


@pytest.mark.nightly
def test_status_reports_a_dead_replay_and_the_next_run_completes_it(tmp_path: Path, both: tuple[Shown, Shown]) -> None:
    """Status changes nothing; the next run replaces the remaining files."""
    root, apps = decided(tmp_path)
    before = shown(root)
    require_sane(before, *both)
    command = [*ENTRY, "status", f"{root}/journal", "--json"]
    done = subprocess.run(command, check=True, env=environment(), capture_output=True, text=True)
    assert json.loads(done.stdout)["state"] == "stopped", done
    assert "the next run or replay finishes it" in done.stderr
    assert shown(root) == before
    run(load_app(apps["old"]), runtime=InlineRuntime)
    assert require_old_or_new(root, *both) == "new"


@pytest.mark.nightly
def test_a_replay_without_its_new_files_replaces_nothing(tmp_path: Path, both: tuple[Shown, Shown]) -> None:
    """If a pending file is gone after the decision, nothing is replaced until all of the windows run again."""
    root = tmp_path / "lost"
    apps = made(root)
    for at in range(1, 500):
        with crashing_disk(str(root), at), contextlib.suppress(InjectedCrash):
            replay_all(apps["new"])
        if read_state(STORAGE.objects(f"{root}/journal")).reprocessing:
            break
        shutil.rmtree(root)
        made(root)
    assert shown(root) == both[0]
    pending = sorted(path for path in (root / "out").rglob("*") if path.is_file() and ".dagflow-pending" in path.parts)
    pending[0].unlink()
    for _ in range(2):
        with pytest.raises(
            StorageError, match=r"(?s)1 of the \d files .* dagflow replay \S+/journal --window 1 --window 3"
        ):
            run(load_app(apps["old"]), runtime=InlineRuntime)
        begun: list[int] = []
        with pytest.raises(StorageError, match="neither pending nor in their places"):
            replay_windows(
                load_app(apps["new"]),
                RunOptions(),
                [1],
                runtime=lambda program: InlineRuntime(program, before=lambda window: begun.append(window.window_id)),  # noqa: B023  # called within the loop
            )
        assert (begun, shown(root)) == ([], both[0])
    replay_all(apps["new"])
    assert require_old_or_new(root, *both) == "new"
    [state] = [read_state(STORAGE.objects(f"{root}/journal"))]
    assert state.totals.of("filter").records["output"] == sum(content.count(b"\n") for content in both[1].values())


@pytest.mark.nightly
def test_a_replay_in_a_bucket_that_dies_is_undone_or_finished(
    s3_root: str, tmp_path: Path, both: tuple[Shown, Shown]
) -> None:
    """With checkpoint, input and output in S3, a process that has nothing else completes it after each crash."""

    def fill(root: str) -> dict[str, str]:
        filesystem, path = S3Client("s3", {}).locate(f"{root}/in")
        filesystem.pipe({f"{path}/{name}": text_of(name) for name in "abcdef"})
        apps = make(tmp_path / root.rpartition("/")[2], root)
        run(load_app(apps["old"]), runtime=InlineRuntime)
        return apps

    old, new = both
    apps = fill(f"{s3_root}/undisturbed")
    with dying(0, "before") as faults:
        replay_all(apps["new"])
    assert published(f"{s3_root}/undisturbed") == new
    calls = faults.calls
    outcomes = set()
    # Most requests come before the decision; this test is about those after it.
    earlier = range(1, calls - 8)
    some = random.Random(1).sample(earlier, min(SAMPLES // 4, len(earlier)))
    for at in sorted([*some, *range(calls - 8, calls + 1)]):
        root = f"{s3_root}/{at}"
        apps = fill(root)
        # After a request the bucket is as it is before the next one.
        with dying(at, "after"), contextlib.suppress(InjectedCrash):
            replay_all(apps["new"])
        require_sane(published(root), old, new)
        assert run(load_app(apps["old"]), runtime=InlineRuntime).windows == 0
        found = published(root)
        assert found in (old, new)
        outcomes.add(found == new)
    assert outcomes == {True, False}
    assert uploads(f"{s3_root}/undisturbed") == []


@pytest.mark.nightly
def test_a_replay_under_named_roots_survives_a_move_in_its_middle(tmp_path: Path, both: tuple[Shown, Shown]) -> None:
    """If everything moves after the decision, the next run finds the pending files in their new places."""
    decisions = 0
    root, moved = tmp_path / "roots", tmp_path / "moved"
    apps = made_with_roots(root)
    for at in range(1, 500):
        with restored_afterwards(root):
            with crashing_disk(str(root), at) as faults, contextlib.suppress(InjectedCrash):
                replay_all(apps["new"])
            if read_state(STORAGE.objects(f"{root}/journal")).reprocessing:
                os.rename(root, moved)
                assert run(load_app(with_roots(moved)["old"]), runtime=InlineRuntime).windows == 0
                assert {path.name: path.read_bytes() for path in (moved / "out").iterdir()} == both[1]
                decisions += 1
                os.rename(moved, root)
        if not faults.has_struck:
            assert decisions > 5
            return
    pytest.fail("the replay never came through")


def with_roots(root: Path) -> dict[str, str]:
    """Write both apps below a directory that is their named root."""
    apps = make(root, str(root))
    for path in map(Path, apps.values()):
        path.write_text(path.read_text().replace("attributes: {", f"attributes: {{roots: {{all: {root}}}, "))
    return apps


def made_with_roots(root: Path) -> dict[str, str]:
    """A named root in which the old app has run."""
    (root / "in").mkdir(parents=True)
    for name in "abcdef":
        (root / "in" / name).write_bytes(text_of(name))
    apps = with_roots(root)
    run(load_app(apps["old"]), runtime=InlineRuntime)
    return apps
