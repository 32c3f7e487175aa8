"""Reads compressed lines with one process and with two, beside the decompressing library alone.

    python -m benchmarks.archives                  200 MB of lines, about two minutes
    python -m benchmarks.archives --size 50MB

Makes lines of logs, compresses them in several ways, and reads each file as in a run, without Spark: as one block; if
it can be cut, also as blocks after a pre-scan, by one process and by two; and two such files by two processes. Rates
are of the content in wall time, medians of rounds in which all of these take turns, so the machine should be idle.
"""

from __future__ import annotations

import argparse
import bz2
import gzip
import lzma
import random
import struct
import tempfile
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import lz4.frame
from backports import zstd

from benchmarks.two_processes import Act, TwoProcesses, blocks_of
from dagflow.api.properties import parse_size
from dagflow.execution.task_process import keep_freed_memory
from operators.files.compression import compression_of_name

UNIT_BYTES = 512 << 10
BGZF_BYTES = 65_280
BLOCKS = 6
"""Blocks of a file that is cut: fewer than units, as in runs."""

INPUT_BYTES, OUTPUT_BYTES = 256 << 10, 1 << 20
"""Bytes of a step of the library alone."""

ROUNDS = 10
LEVELS = ("INFO", "WARN", "ERROR")


@dataclass(frozen=True)
class CompressionCase:
    """A compression.

    Attributes:
        label: Row of the table.
        name: Name of the file.
        pack: Compresses.
        is_cut: Whether the file consists of units.
        share: Part of the lines; less for slow compressions.
    """

    label: str
    name: str
    pack: Callable[[bytes], bytes]
    is_cut: bool = False
    share: float = 1


def main() -> None:
    """Make the files, read them, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="200MB", help="bytes of lines")
    parser.add_argument("--only", default="", help="the rows whose names begin so")
    arguments = parser.parse_args()
    content = lines(parse_size(arguments.size))
    keep_freed_memory()
    print("| file | library | one task | of library | two files, two processes | cut, one | cut, two | of one task |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder, TwoProcesses() as two:
        for case in CASES:
            if case.label.startswith(arguments.only):
                part = content[: int(len(content) * case.share)]
                path = Path(folder) / case.name
                path.write_bytes(case.pack(part))
                print(row(case, path, len(part), two), flush=True)
                path.unlink()


def row(case: CompressionCase, path: Path, size_bytes: int, two: TwoProcesses) -> str:
    """Return a row of the table."""
    blocks = blocks_of(path, BLOCKS)
    acts: list[Act] = [partial(two.read_files, "lines", [path], 1), partial(two.read_files, "lines", [path, path], 2)]
    if case.is_cut:
        acts += [partial(two.read_blocks, "lines", blocks, 1), partial(two.read_blocks, "lines", blocks, 2)]
    one, twice, *rest = (size_bytes / 1e6 / seconds for seconds in two.best(ROUNDS, *acts))
    library = size_bytes / 1e6 / min(library_alone(path) for _ in range(ROUNDS + 1))
    cut = [f"{rest[0]:,.0f}", f"{rest[1]:,.0f}", f"{rest[1] / one:.2f}"] if case.is_cut else ["", "", ""]
    cells = [f"{library:,.0f}", f"{one:,.0f}", f"{one / library:.2f}", f"{2 * twice:,.0f}", *cut]
    return f"| {case.label} | {' | '.join(cells)} |"


def lines(size_bytes: int) -> bytes:
    """Return lines of a log, all different."""
    chosen = random.Random(7)
    made, total = [], 0
    while total < size_bytes:
        number = chosen.getrandbits(40)
        line = f"2026-01-01T00:00:{number % 60:02} {LEVELS[number % 3]} request {number} took {number % 977} ms\n"
        made.append(line)
        total += len(line)
    return "".join(made).encode()


def several(compress: Callable[[bytes], bytes], unit_bytes: int = UNIT_BYTES) -> Callable[[bytes], bytes]:
    """Return a compression into many units."""
    return lambda data: b"".join(
        compress(data[start : start + unit_bytes]) for start in range(0, len(data), unit_bytes)
    )


def bgzf_member(data: bytes) -> bytes:
    """Return a gzip member with its length, as bgzip writes it."""
    deflater = zlib.compressobj(1, wbits=-15)
    packed = deflater.compress(data) + deflater.flush()
    head = b"\x1f\x8b\x08\x04\0\0\0\0\0\xff" + struct.pack("<H2sHH", 6, b"BC", 2, len(packed) + 25)
    return head + packed + struct.pack("<II", zlib.crc32(data), len(data))


def gzipped(data: bytes) -> bytes:
    """Return a gzip member."""
    return gzip.compress(data, 1)


def xz(data: bytes) -> bytes:
    """Return an xz stream."""
    return lzma.compress(data, preset=1)


CASES = [
    CompressionCase("gzip, one member", "a.gz", gzipped),
    CompressionCase("gzip, members of 512 KiB", "b.gz", several(gzipped), True),
    CompressionCase("BGZF", "c.bgz", several(bgzf_member, BGZF_BYTES), True),
    CompressionCase("zstd, one frame", "d.zst", zstd.compress),
    CompressionCase("zstd, frames of 512 KiB", "e.zst", several(zstd.compress), True),
    CompressionCase("lz4", "f.lz4", lz4.frame.compress),
    CompressionCase("bzip2, one stream", "g.bz2", bz2.compress, False, 0.25),
    CompressionCase("xz", "h.xz", xz, False, 0.25),
]


def library_alone(path: Path) -> float:
    """Return the seconds of decompressing a file without using its content."""
    codec = compression_of_name(path.name)
    if codec is None:
        raise ValueError(f"{path} is not compressed")
    begun = time.monotonic()
    with path.open("rb") as file:
        rest = file.read(INPUT_BYTES)
        while rest:
            decompressor: Any = codec.decompressor()
            while not decompressor.eof:
                data, rest = (rest or file.read(INPUT_BYTES), b"") if decompressor.needs_input else (b"", rest)
                decompressor.decompress(data, OUTPUT_BYTES)
            rest = decompressor.unused_data or file.read(INPUT_BYTES)
    return time.monotonic() - begun


if __name__ == "__main__":
    main()
