"""Runs with everything in a bucket: several drivers of one checkpoint, and a new machine after a dead one."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from dagflow.journal.events import JournalHolder
from dagflow.journal.frames import decode, from_json
from dagflow.storage.backends.s3.client import S3Client
from dagflow.storage.context import StorageContext
from tests.cli.processes import ENTRY
from tests.crash.killing import APP, LOCALLY, RunProcess, also_on_spark, hurry, make_folder, oracle, slow_operator

STORAGE = StorageContext.default()

# Which driver may go on is decided in the bucket, in which Spark has no part.
pytestmark = [pytest.mark.crash, pytest.mark.e2e]

FILES = 24
LOOK_S = 0.2
"""How often the bucket is listed: each time costs its server as much as a window does."""
# Java resolves its host's name, so the name must exist.
_RENAME = ["unshare", "--uts", "sh", "-c", 'hostname localhost && exec "$@"', "sh"]
RENAMED = _RENAME if os.geteuid() == 0 and subprocess.run([*_RENAME, "true"], check=False).returncode == 0 else []
"""What runs a command on a host of another name; nothing where that is not allowed."""


def elsewhere(home: Path, name: str, root: str, block_size: str = "8KiB") -> Path:
    """Make the directory of another machine, with the app and nothing else; everything else is in the bucket."""
    folder = home / name
    folder.mkdir()
    text = APP.replace("8KiB", block_size).replace("[in]", f"[{root}/in]").replace("path: out", f"path: {root}/out")
    (folder / "app.yaml").write_text(text.replace("checkpoint: journal", f"checkpoint: {root}/journal"))
    shutil.copy(home / "slow_ops.py", folder)
    return folder


@pytest.fixture
def home(tmp_path: Path, s3_root: str) -> Path:
    """A directory with the app; its input is in the bucket."""
    make_folder(tmp_path, FILES)
    filesystem, path = S3Client("s3", {}).locate(f"{s3_root}/in")
    filesystem.pipe({f"{path}/{each.name}": each.read_bytes() for each in (tmp_path / "in").iterdir()})
    return tmp_path


def objects(root: str) -> dict[str, bytes]:
    """Return the published objects."""
    filesystem, path = S3Client("s3", {}).locate(f"{root}/out")
    names = filesystem.find(path)
    return filesystem.cat(names) if names else {}


def published(root: str, most: int) -> Callable[[], bool]:
    """Return whether at least this many objects are published."""
    filesystem, path = S3Client("s3", {}).locate(f"{root}/out")
    return lambda: len(filesystem.find(path)) >= most


def require_whole(home: Path, root: str) -> None:
    """Fail unless the bucket's output equals that of grep, and no upload is left."""
    found = sorted(line for content in objects(root).values() for line in content.split(b"\n")[:-1])
    expected = oracle(home)
    assert len(expected) > 1000
    assert found == expected, f"{len(found)} records are published where grep finds {len(expected)}"
    filesystem, path = S3Client("s3", {}).locate(root)
    left = filesystem.call_s3("list_multipart_uploads", Bucket=path.partition("/")[0]).get("Uploads", [])
    assert left == []


def log_of(folder: Path) -> str:
    """Return what a run has printed, which is never a stack trace."""
    log = (folder / "run.log").read_text()
    assert "Traceback" not in log, log
    return log


@pytest.mark.nightly
@also_on_spark
def test_of_drivers_that_take_over_a_bucket_exactly_one_completes(
    home: Path, s3_root: str, options: Sequence[str]
) -> None:
    """One publishes when two more start together: it ends, as does one of these, and each names a later one.

    What the first one has published stays as it is, and it publishes no more.
    """
    # Slow until the first one has ended: it may not be done before the others have started.
    (home / "slow_ops.py").write_text(slow_operator(home, 0.3))
    folders = [elsewhere(home, f"rival{number}", s3_root) for number in range(3)]
    rivals = [RunProcess(folders[0], "-q", *options)]
    try:
        assert rivals[0].wait_for(published(s3_root, 4), pause_s=LOOK_S)
        rivals += [RunProcess(place, "-q", *LOCALLY, "--take-over") for place in folders[1:]]
        codes = [rivals[0].end()]
        before = objects(s3_root)
        hurry(home)
        codes += [rival.end() for rival in rivals[1:]]
    finally:
        for rival in rivals:
            rival.destroy()
    assert (codes[0], sorted(codes)) == (1, [0, 1, 1])
    assert before.items() <= objects(s3_root).items()
    require_whole(home, s3_root)
    pids = {rival.process.pid for rival in rivals}
    for rival, place, code in zip(rivals, folders, codes, strict=True):
        reported = re.findall(r"another driver has taken over: process (\d+) on (\S+),", log_of(place))
        assert len(reported) == code
        assert {int(pid) for pid, _ in reported} <= pids - {rival.process.pid}
        assert {host for _, host in reported} <= {os.uname().nodename}


@pytest.mark.nightly
@also_on_spark
def test_another_machine_goes_on_with_nothing_but_the_checkpoint(
    home: Path, s3_root: str, options: Sequence[str]
) -> None:
    """After the first machine died with its disks, an empty one of another name completes the run."""
    place = elsewhere(home, "dead", s3_root, "32KiB")
    dead = RunProcess(place, "-q", *options)
    try:
        assert dead.wait_for(published(s3_root, 6), pause_s=LOOK_S)
        os.kill(dead.process.pid, signal.SIGKILL)
        assert dead.end() == -signal.SIGKILL
    finally:
        dead.destroy()
    before = objects(s3_root)
    shutil.rmtree(place)
    # The second has nothing to do, for which it needs no Spark.
    for name, chosen in (("heir", options), ("latecomer", LOCALLY)):
        heir = elsewhere(home, name, s3_root, "32KiB")
        run = RunProcess(heir, "-q", "--json", *chosen, prefix=RENAMED)
        try:
            assert run.end() == 0, log_of(heir)
        finally:
            run.destroy()
        assert before.items() <= objects(s3_root).items()
        require_whole(home, s3_root)
    assert '"windows": 0' in log_of(heir)
    # The journal's own records say where each driver was.
    store = STORAGE.objects(f"{s3_root}/journal")
    holders = [from_json(JournalHolder, decode(store.read(name), name), name) for name in store.list("epoch/")]
    assert len(holders) == 3
    assert [holder.host for holder in holders[1:]] == ["localhost" if RENAMED else holders[0].host] * 2
    status = subprocess.run([*ENTRY, "status", f"{s3_root}/journal"], capture_output=True, text=True, check=True)
    assert "completed" in status.stdout
