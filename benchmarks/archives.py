"""How fast compressed lines are read, by one process and by two, and beside the decompressing library alone.

    python benchmarks/archives.py                  200 MB of lines, about two minutes
    python benchmarks/archives.py --size 50MB

Makes lines of logs, compresses them in several ways, and reads each file as it is read in a run, without Spark: a
survey where the file is cut, then the blocks. Rates are of what is compressed, by the CPU seconds of the process that
takes most, in the best of three rounds; so they hold on a machine that does other things, too. Units are
small beside blocks, as they are in runs: a block decompresses the unit before it, too, to find its first record.
"""

from __future__ import annotations

import argparse
import bz2
import gzip
import os
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from backports import zstd

from dagflow.api.context import OperatorContext
from dagflow.api.properties import parse_size
from dagflow.storage.files import stat
from operators.codecs import codec_of_name
from operators.metadata import BlockMetadata, FileVersion
from operators.reader.block_reader import BlockReader

UNIT_BYTES = 512 << 10
BLOCK_BYTES = 2 << 20
ROUNDS = 3
LEVELS = ("INFO", "WARN", "ERROR")


def main() -> None:
    """Make the files, read them, print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="200MB", help="bytes of lines")
    content = lines(parse_size(parser.parse_args().size))
    print(f"{os.cpu_count()} cores, {len(content) / 1e6:.0f} MB of lines, MB/s")
    print(f"{'file':24}{'library':>10}{'whole':>10}{'cut, 1':>10}{'cut, 2':>10}{'2 : 1':>8}{'2 : whole':>11}")
    with tempfile.TemporaryDirectory() as folder:
        for label, name, pack in CASES:
            path = Path(folder) / name
            path.write_bytes(pack(content))
            rates = [len(content) / 1e6 / best(act) for act in acts(path, content)]
            ratios = f"{rates[3] / rates[2]:>8.2f}{rates[3] / rates[1]:>11.2f}" if len(rates) > 2 else ""
            print(f"{label:24}" + "".join(f"{rate:>10.0f}" for rate in rates) + ratios, flush=True)
            path.unlink()


def lines(size_bytes: int) -> bytes:
    """Lines of a log, no two alike."""
    chosen = random.Random(7)
    made, total = [], 0
    while total < size_bytes:
        number = chosen.getrandbits(40)
        line = f"2026-01-01T00:00:{number % 60:02} {LEVELS[number % 3]} request {number} took {number % 977} ms\n"
        made.append(line)
        total += len(line)
    return "".join(made).encode()


def several(compress: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    """A compression in many units."""
    return lambda data: b"".join(
        compress(data[start : start + UNIT_BYTES]) for start in range(0, len(data), UNIT_BYTES)
    )


CASES: list[tuple[str, str, Callable[[bytes], bytes]]] = [
    ("gzip, one member", "a.gz", lambda data: gzip.compress(data, 1)),
    ("gzip, several members", "b.gz", several(lambda data: gzip.compress(data, 1))),
    ("zstd, several frames", "c.zst", several(zstd.compress)),
    ("bzip2", "d.bz2", bz2.compress),
]


def acts(path: Path, content: bytes) -> list[Callable[[], float]]:
    """What is timed for a file: the library alone, the file as one block, cut by one process, and by two."""
    expected = content.count(b"\n")
    whole = block_of(path, 0, path.stat().st_size)
    found = [lambda: library_alone(path), lambda: checked(read(whole)[::2], expected)]
    if path.name != "a.gz":
        found += [lambda: checked(read_cut(path, 1), expected), lambda: checked(read_cut(path, 2), expected)]
    return found


def checked(done: tuple[Any, ...], expected: int) -> float:
    """The seconds, if the count is right: fast and wrong does not count."""
    count, seconds = done
    if count != expected:
        raise SystemExit(f"{count} records, where {expected} are right")
    return float(seconds)


def library_alone(path: Path) -> float:
    """CPU seconds of decompressing a file, and throwing away what comes."""
    begun = time.process_time()
    codec = codec_of_name(path.name)
    if codec is None:
        raise ValueError(f"{path} is not compressed")
    rest = path.read_bytes()
    while rest:
        decompressor = codec.decompressor()
        while not decompressor.eof:
            decompressor.decompress(rest, 1 << 20)
            rest = b""
        rest = decompressor.unused_data
    return time.process_time() - begun


def read_cut(path: Path, processes: int) -> tuple[int, float]:
    """The number of records of a file that is cut, and the CPU seconds of the busiest of so many processes."""
    size = path.stat().st_size
    ranges = [(start, min(start + BLOCK_BYTES, size)) for start in range(0, size, BLOCK_BYTES)]
    blocks = [block_of(path, start, end) for start, end in ranges]
    with ProcessPoolExecutor(processes) as pool:
        reader = BlockReader()
        surveyed = list(pool.map(survey, blocks))
        counted = list(pool.map(read, reader.resolve(blocks, [finding for finding, _, _ in surveyed])))
    return sum(count for count, _, _ in counted), max(busy(surveyed + counted).values())


def busy(done: list[tuple[Any, int, float]]) -> Counter[int]:
    """CPU seconds of each process."""
    seconds: Counter[int] = Counter()
    for _, process, spent in done:
        seconds[process] += spent  # type: ignore[assignment]  # a Counter of seconds
    return seconds


def block_of(path: Path, start: int, end: int) -> BlockMetadata:
    """A block of a file."""
    found = stat(str(path))
    version = FileVersion(found.size_bytes, found.mtime_ns, found.etag)
    return BlockMetadata(start + 1, str(path), version, start, end, end == found.size_bytes)


def survey(block: BlockMetadata) -> tuple[Any, int, float]:
    """What a first pass finds of a block, the process, and its CPU seconds."""
    begun = time.process_time()
    reader = BlockReader()
    finding = reader.survey(block)
    reader.teardown()
    return finding, os.getpid(), time.process_time() - begun


def read(block: BlockMetadata) -> tuple[int, int, float]:
    """How many records a block has, the process, and its CPU seconds."""
    begun = time.process_time()
    reader, counts = BlockReader(), [0]

    def count(batch: Any) -> None:
        counts[0] += len(batch)

    reader.messages.connect(count)
    reader.setup(OperatorContext())
    for _ in reader.read(block):
        pass
    reader.teardown()
    return counts[0], os.getpid(), time.process_time() - begun


def best(act: Callable[[], float]) -> float:
    """CPU seconds of the best round."""
    return min(act() for _ in range(ROUNDS))


if __name__ == "__main__":
    main()
