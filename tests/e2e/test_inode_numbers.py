"""Apps on mounts whose inode numbers take all 64 bits."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.processes import dagflow_command, environment

pytestmark = pytest.mark.e2e

APP = """
name: high
attributes: {checkpoint: ckpt}
operators:
  splitter: {class: FileSplitterInput, properties: {files: [in], block_size: 64}}
  reader: {class: BlockReader, properties: {format: lines}}
  writer: {class: RecordWriter, properties: {path: out}, partition: parallel}
streams:
  blocks: {from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}
  records: {from: reader.messages, to: writer.input}
"""


@pytest.fixture
def high_inodes(tmp_path: Path) -> dict[str, str]:
    """Variables with which a process sees inode numbers above 2**63."""
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    library = tmp_path / "inodes.so"
    source = str(Path(__file__).with_name("inodes.c"))
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(library), source, "-ldl"], check=True)
    variables = {"LD_PRELOAD": str(library)}
    look = "import os; print(os.stat('app.yaml').st_ino, *(e.inode() for e in os.scandir() if e.name == 'app.yaml'))"
    (tmp_path / "app.yaml").write_text(APP)
    done = subprocess.run(
        [sys.executable, "-c", look], cwd=tmp_path, env=environment(**variables), capture_output=True, check=True
    )
    assert [int(number) for number in done.stdout.split()] == [os.stat(tmp_path / "app.yaml").st_ino + (1 << 63)] * 2
    return variables


def records(folder: Path) -> list[str]:
    """What is published."""
    return sorted(line for path in (folder / "out").glob("*") for line in path.read_text().splitlines())


@pytest.mark.nightly
@pytest.mark.parametrize("files", [3, 40])
def test_files_with_high_inode_numbers_are_read_once(tmp_path: Path, high_inodes: dict[str, str], files: int) -> None:
    """Also after they were renamed and appended to, each alone and in batches, small ones and such of many blocks."""
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(files):
        (folder / f"{number:03}").write_text(f"{number} small\n")
    (folder / "large").write_text("".join(f"{number} large\n" for number in range(50)))
    expected = [f"{number} small" for number in range(files)] + [f"{number} large" for number in range(50)]
    for change in range(3):
        if change == 1:
            for name in ("000", "large"):
                (folder / name).rename(folder / f"{name}-renamed")
            with (folder / "large-renamed").open("a") as file:
                file.write("more\n")
            expected.append("more")
        if change == 2:
            (folder / "link").hardlink_to(folder / "001")
            expected.append("1 small")
        done = dagflow_command(["run", "app.yaml", "--local", "--workers", "1", "-q"], cwd=tmp_path, **high_inodes)
        assert done.returncode == 0, done.stderr
        assert records(tmp_path) == sorted(expected)
