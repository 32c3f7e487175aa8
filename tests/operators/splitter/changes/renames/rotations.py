"""Log rotations, as programs make them on real files."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from backports import zstd

COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstd.compress,
}


def compress(path: Path, suffix: str = ".gz") -> None:
    """As gzip does: the compressed file is complete, and dated as the other one, before that is removed."""
    status = path.stat()
    other = path.with_name(path.name + suffix)
    other.write_bytes(COMPRESSORS[suffix](path.read_bytes()))
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    path.unlink()


def shift(log: Path, keep: int = 9) -> None:
    """Rename NAME.1 to NAME.2 and so on, the last one first, and compressed ones as well."""
    for number in range(keep, 0, -1):
        for suffix in ("", *COMPRESSORS):
            path = log.with_name(f"{log.name}.{number}{suffix}")
            if path.exists():
                path.rename(log.with_name(f"{log.name}.{number + 1}{suffix}"))


def rename(log: Path) -> None:
    """As logrotate does by default, and Python's RotatingFileHandler."""
    shift(log)
    log.rename(log.with_name(log.name + ".1"))


def rename_with_date(log: Path) -> None:
    """As logrotate does with dateext, and TimedRotatingFileHandler."""
    number = sum(1 for _ in log.parent.iterdir())
    log.rename(log.with_name(f"{log.name}-{20261123 + number}"))


def rename_with_date_inside(log: Path) -> None:
    """As logrotate does with extension and dateext, and logback; the new name sorts before the old one."""
    number = sum(1 for _ in log.parent.iterdir())
    log.rename(log.with_name(f"{log.stem}-2026-11-{number:02}{log.suffix}"))


def rename_to_any_name(log: Path) -> None:
    """As people do."""
    number = sum(1 for _ in log.parent.iterdir())
    log.rename(log.with_name(f"{9 - number}"))


def rename_into_directory(log: Path) -> None:
    """As logrotate does with olddir."""
    old = log.with_name("old")
    old.mkdir(exist_ok=True)
    shift(old / log.name)
    log.rename(old / (log.name + ".1"))


def move_to_another_file_system(log: Path) -> None:
    """As mv does, which keeps the time, and not the inode."""
    old = log.with_name("old")
    old.mkdir(exist_ok=True)
    shutil.copy2(log, old / (log.name + ".1"))
    log.unlink()


def keep_inode(path: Path) -> None:
    """Give the inode of a file to no other file, when this has no name any more in the directory that is scanned."""
    os.link(path, path.parent.with_name(f"kept-{path.stat().st_ino}"))


def replace_with_copy(path: Path) -> None:
    """As where a directory tree is restored: the inode is another one."""
    keep_inode(path)
    shutil.copy2(path, path.with_name(".copy"))
    path.with_name(".copy").replace(path)


def mirror(log: Path) -> None:
    """As `rsync -a` does when logs were renamed elsewhere, and the next one was created: inodes are new, times kept.

    Compressed logs are renamed: with other inodes they would come again.
    """
    rename(log)
    for path in log.parent.glob(f"{log.name}.[0-9]*"):
        if path.suffix not in COMPRESSORS:
            replace_with_copy(path)
    log.touch()


def copy_and_truncate(log: Path) -> None:
    """As logrotate does with copytruncate."""
    shift(log)
    shutil.copyfile(log, log.with_name(log.name + ".1"))
    os.truncate(log, 0)


def copy_with_date_inside_and_truncate(log: Path) -> None:
    """As logrotate does with copytruncate, extension and dateext."""
    number = sum(1 for _ in log.parent.iterdir())
    shutil.copyfile(log, log.with_name(f"{log.stem}-2026-11-{number:02}{log.suffix}"))
    os.truncate(log, 0)


def compress_at_once(log: Path) -> None:
    """As logrotate does with compress."""
    rename(log)
    compress(log.with_name(log.name + ".1"))


def compress_later(log: Path) -> None:
    """As logrotate does with compress and delaycompress."""
    shift(log)
    if (second := log.with_name(log.name + ".2")).exists():
        compress(second)
    log.rename(log.with_name(log.name + ".1"))


def compress_with_zstd(log: Path) -> None:
    """As logrotate does with compresscmd zstd."""
    rename(log)
    compress(log.with_name(log.name + ".1"), ".zst")


def compress_with_bzip2(log: Path) -> None:
    """As logrotate does with compresscmd bzip2."""
    rename(log)
    compress(log.with_name(log.name + ".1"), ".bz2")


def compress_with_xz(log: Path) -> None:
    """As logrotate does with compresscmd xz."""
    rename(log)
    compress(log.with_name(log.name + ".1"), ".xz")


def copy_truncate_and_compress(log: Path) -> None:
    """As logrotate does with copytruncate and compress."""
    copy_and_truncate(log)
    compress(log.with_name(log.name + ".1"))


ROTATIONS: list[Callable[[Path], None]] = [
    *(rename, rename_with_date, rename_with_date_inside, rename_to_any_name, rename_into_directory),
    *(mirror, copy_and_truncate, copy_with_date_inside_and_truncate),
    *(compress_at_once, compress_later, compress_with_zstd, compress_with_bzip2, compress_with_xz),
    copy_truncate_and_compress,
]
