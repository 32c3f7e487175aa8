"""Apps whose input, output and checkpoint are URLs, run through the command line on Spark."""

from __future__ import annotations

import json
import os
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from dagflow.storage.backends.s3.client import S3Client
from tests.cli.processes import dagflow_command
from tests.hdfs_cluster import hdfs, hdfs_root
from tests.nightly import IS_NIGHTLY

__all__ = ["hdfs", "hdfs_root"]

pytestmark = [pytest.mark.spark, pytest.mark.e2e]

# Neither is part of any other text that could be printed.
KEY, SECRET = "AKIAQ7ZJX3VKPW5NH2TD", "zq8Xw4Vt9kLm2Rb7Yc5Nd3Ph6Jg1Fs0Ea+Ui/Ow"

APP = """\
name: remote
attributes:
  checkpoint: {root}/checkpoint
  master: local[2]
{storage}
operators:
  splitter: {{class: FileSplitterInput, properties: {{files: [{root}/in], block_size: 32KiB, blocks_threshold: 8}}}}
  reader: {{class: BlockReader, properties: {{min_readers: 2, max_readers: 2}}}}
  filter: {{class: RecordFilter, properties: {{drop: {{prefix: "#"}}}}, partition: parallel}}
  writer: {{class: RecordWriter, properties: {{path: {root}/out, file_name: block}}, partition: parallel}}
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  records: {{from: reader.messages, to: filter.input}}
  kept: {{from: filter.output, to: writer.input}}
"""
STORAGE = "  storage: {{s3: {{endpoint_url: '{endpoint}', key: '{key}', secret: '{secret}'}}}}"


def library() -> list[Path]:
    """Return text that was not made for tests: modules of Python's standard library."""
    return sorted(Path(os.__file__).parent.glob("[a-c]*.py"))[:14]


def put_input(root: str) -> list[bytes]:
    """Write the text into a store; return the lines that the app keeps, sorted."""
    filesystem, path = S3Client("s3", {}).locate(f"{root}/in")
    filesystem.makedirs(path, exist_ok=True)
    for file in library():
        filesystem.pipe_file(f"{path}/{file.name}", file.read_bytes())
    command = ["grep", "-ahv", "^#", *map(str, library())]
    return sorted(subprocess.run(command, capture_output=True, check=True).stdout.split(b"\n")[:-1])


def contents(filesystem: Any, path: str) -> dict[str, bytes]:
    """Return all objects below a location."""
    return {name: filesystem.cat_file(name) for name in filesystem.find(path)}


def records(root: str) -> list[bytes]:
    """Return the records of all published objects, sorted."""
    filesystem, path = S3Client("s3", {}).locate(f"{root}/out")
    found = contents(filesystem, path)
    assert not [name for name in found if "/." in name.removeprefix(path)]
    return sorted(line for content in found.values() for line in content.split(b"\n")[:-1])


def without_ambient_credentials() -> dict[str, str]:
    """Return variables that hide this process's credentials from another one."""
    return dict.fromkeys(["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL"], "")


@pytest.fixture
def bucket_app(s3_root: str, s3_server: str, tmp_path: Path) -> Path:
    """An app with everything in a bucket, and its credentials in the environment."""
    storage = STORAGE.format(endpoint=s3_server, key="${STORE_KEY}", secret="${STORE_SECRET}")
    (tmp_path / "app.yaml").write_text(APP.format(root=s3_root, storage=storage))
    return tmp_path / "app.yaml"


@pytest.mark.parametrize("first", [["--local"], pytest.param([], id="Spark", marks=pytest.mark.nightly)])
def test_everything_may_be_in_a_bucket_and_no_credential_shows_anywhere(
    bucket_app: Path, s3_root: str, tmp_path: Path, first: list[str]
) -> None:
    """The output equals that of grep; the secret is in no output, log, plan, journal or published file."""
    expected = put_input(s3_root)
    variables = {**without_ambient_credentials(), "STORE_KEY": KEY, "STORE_SECRET": SECRET}
    printed = ""
    journal = [f"{s3_root}/checkpoint", "--app", "app.yaml"]
    commands = [
        ["-v", "run", "app.yaml", "--json", *first],
        ["status", *journal, "--files", f"{s3_root}/in/*.py"],
        ["plan", "app.yaml"],
        ["scan", *journal],
    ]
    # Each starts a process that imports the client.
    for arguments in (*(commands if IS_NIGHTLY else commands[:1]), ["run", "app.yaml", "--json", "--local"]):
        done = dagflow_command(arguments, cwd=tmp_path, **variables)
        assert done.returncode == 0, done.stderr
        printed += done.stdout + done.stderr
        if arguments[0] == "plan":
            assert "blocks" in done.stdout
        if arguments[0] == "status":
            assert done.stdout.count("    read: ") == len(library())
    assert records(s3_root) == expected
    assert json.loads(done.stdout)["blocks"] == 0
    filesystem, path = S3Client("s3", {}).locate(s3_root)
    written = [printed.encode(), *contents(filesystem, path).values()]
    written += [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()]
    assert len(written) > 20
    for credential in (KEY.encode(), SECRET.encode()):
        assert not [text for text in written if credential in text]


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["run", "app.yaml", "--json", "--local"], marks=pytest.mark.nightly),
        pytest.param(["run", "app.yaml", "--json"], marks=pytest.mark.nightly),
        pytest.param(["-v", "run", "app.yaml"], marks=pytest.mark.nightly),
        pytest.param(["plan", "app.yaml"], marks=pytest.mark.nightly),
    ],
)
def test_no_error_shows_a_credential(arguments: list[str], tmp_path: Path, s3_server: str) -> None:
    """No credential of environment or file is shown, not even in a traceback."""
    storage = STORAGE.format(endpoint=s3_server, key=KEY, secret="${STORE_SECRET}")
    (tmp_path / "app.yaml").write_text(APP.format(root="s3://no-such-bucket-here", storage=storage))
    variables = {**without_ambient_credentials(), "STORE_SECRET": SECRET}
    done = dagflow_command(arguments, cwd=tmp_path, **variables)
    printed = done.stdout + done.stderr
    assert "no-such-bucket-here" in printed
    assert KEY not in printed and SECRET not in printed


@pytest.mark.hdfs
def test_everything_may_be_in_hdfs(hdfs_root: str, tmp_path: Path) -> None:
    """A real HDFS with two DataNodes can be read, listed, and hold the journal and the output."""
    expected = put_input(hdfs_root)
    (tmp_path / "app.yaml").write_text(APP.format(root=hdfs_root, storage=""))
    for blocks in (True, False):
        done = dagflow_command(["run", "app.yaml", "--json"], cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert bool(json.loads(done.stdout)["blocks"]) is blocks
    assert records(hdfs_root) == expected


@pytest.mark.nightly
def test_a_missing_package_is_named_with_the_extra_that_brings_it(tmp_path: Path) -> None:
    """The error for each known store names its extra."""
    for scheme, extra, module in (("gs", "gcs", "gcsfs"), ("abfs", "azure", "adlfs")):
        if find_spec(module) is not None:
            continue
        (tmp_path / "app.yaml").write_text(APP.format(root=f"{scheme}://somewhere", storage=""))
        done = dagflow_command(["run", "app.yaml"], cwd=tmp_path)
        assert done.returncode == 1
        assert f"pip install 'dagflow[{extra}]'" in done.stderr
