"""Programs that write into a directory as real ones do: logs that rotate, files that come, change, move and go."""

from __future__ import annotations

import gzip
import logging
import os
import random
import shutil
import threading
import time
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Sequence
from logging.handlers import RotatingFileHandler
from pathlib import Path

import numpy as np
import numpy.typing as npt

REQUIRED, OPTIONAL = 1, 2


class RecordRegister:
    """Gives out numbered records, and knows which of them must arrive.

    A record whose file version was replaced, truncated or deleted is optional: the run may have read it before, or
    not. Every other record is required. Neither may arrive twice.
    """

    def __init__(self) -> None:
        self._states = bytearray()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._states)

    def make(self, count: int) -> tuple[range, bytes]:
        """Return the numbers of new records, and their lines: number and time of writing in nanoseconds."""
        with self._lock:
            first = len(self._states)
            self._states += bytes([REQUIRED]) * count
        numbers = range(first, first + count)
        now = time.time_ns()
        return numbers, b"".join(b"%d %d\n" % (number, now) for number in numbers)

    def release(self, numbers: Sequence[int]) -> None:
        """Make records optional."""
        with self._lock:
            for number in numbers:
                self._states[number] = OPTIONAL

    def states(self) -> npt.NDArray[np.uint8]:
        """The state of each record, by number."""
        with self._lock:
            return np.frombuffer(bytes(self._states), np.uint8)


class LogSource(ABC, threading.Thread):
    """One program that writes into the directory until `stopping` is set.

    Args:
        directory: Where it writes; no other source writes there.
        register: Gives out the records.
        seed: What its choices are drawn from.
        rate: Records a second, roughly.
    """

    def __init__(self, directory: Path, register: RecordRegister, seed: int, rate: float) -> None:
        super().__init__(name=type(self).__name__, daemon=True)
        self.directory = directory
        self.register = register
        self.random = random.Random(seed)
        self.rate = rate
        self.stopping = threading.Event()
        self.error: BaseException | None = None
        directory.mkdir(parents=True, exist_ok=True)

    def run(self) -> None:
        """Act, and pause as the rate says, until stopping is set."""
        try:
            while not self.stopping.is_set():
                written = self.act()
                self.stopping.wait(max(0.02, written / self.rate))
            self.finish()
        except BaseException as error:
            self.error = error
            raise

    @abstractmethod
    def act(self) -> int:
        """Do one thing; return how many records it wrote."""

    def finish(self) -> None:
        """Leave what a program leaves that ends in order."""


class AppendedLog(LogSource):
    """Appends to one log for ever, now and then in the middle of a line."""

    def act(self) -> int:
        """Write some records."""
        count = self.random.randint(1, 200)
        _, lines = self.register.make(count)
        middle = self.random.randrange(len(lines)) if self.random.random() < 0.3 else len(lines)
        with (self.directory / "service.log").open("ab", buffering=0) as log:
            log.write(lines[:middle])
            if middle < len(lines):
                self.stopping.wait(self.random.uniform(0, 0.5))
                log.write(lines[middle:])
        return count


class NumberedLog(LogSource):
    """Logs through Python's RotatingFileHandler: app.log becomes app.log.1, and each older one moves on by one."""

    def __init__(self, directory: Path, register: RecordRegister, seed: int, rate: float) -> None:
        super().__init__(directory, register, seed, rate)
        self._logger = logging.Logger(f"soak.{directory.name}")
        self._handler = RotatingFileHandler(directory / "app.log", maxBytes=100_000, backupCount=400)
        self._logger.addHandler(self._handler)

    def act(self) -> int:
        """Write some records."""
        count = self.random.randint(1, 100)
        for line in self.register.make(count)[1].splitlines():
            self._logger.error(line.decode())
        return count

    def finish(self) -> None:
        """Close the log."""
        self._handler.close()


class DatedLog(LogSource):
    """Is rotated by rename to a name with a date; the program goes on in the old file for a moment."""

    _rotations = 0

    def act(self) -> int:
        """Write some records, and rotate the log if it is large."""
        path = self.directory / "web.log"
        count = self.random.randint(1, 100)
        with path.open("ab", buffering=0) as log:
            log.write(self.register.make(count)[1])
            if log.tell() > 80_000:
                self._rotations += 1
                path.rename(self.directory / f"web.log-20261123-{self._rotations:05}")
                self.stopping.wait(self.random.uniform(0, 1))
                more = self.random.randint(0, 20)
                log.write(self.register.make(more)[1])
                count += more
        return count


class CompressedLog(LogSource):
    """Is rotated as logrotate does with `compress`: renamed, then written to a .gz, then removed."""

    _rotations = 0

    def act(self) -> int:
        """Write some records, and rotate the log if it is large."""
        path = self.directory / "db.log"
        count = self.random.randint(1, 100)
        with path.open("ab", buffering=0) as log:
            log.write(self.register.make(count)[1])
            size = log.tell()
        if size > 80_000:
            self._rotations += 1
            rotated = self.directory / f"db.log.{self._rotations}"
            path.rename(rotated)
            self.stopping.wait(self.random.uniform(0, 2))
            with rotated.open("rb") as plain, gzip.open(f"{rotated}.gz", "wb") as packed:
                shutil.copyfileobj(plain, packed)
            shutil.copystat(rotated, f"{rotated}.gz")
            rotated.unlink()
        return count


class CopiedLog(LogSource):
    """Is rotated as logrotate does with `copytruncate`; the program pauses meanwhile, so that nothing is lost there."""

    _rotations = 0

    def act(self) -> int:
        """Write some records, and rotate the log if it is large."""
        path = self.directory / "mail.log"
        count = self.random.randint(1, 100)
        with path.open("ab", buffering=0) as log:
            log.write(self.register.make(count)[1])
            size = log.tell()
        if size > 80_000:
            self._rotations += 1
            shutil.copy2(path, self.directory / f"mail.log.{self._rotations}")
            self.stopping.wait(self.random.uniform(0, 0.2))
            os.truncate(path, 0)
        return count


class Arrivals(LogSource):
    """Finished files that are renamed into place, one large or many small ones."""

    _files = 0

    def act(self) -> int:
        """Bring files."""
        sizes = [self.random.randint(500, 5000)] if self.random.random() < 0.5 else [3] * self.random.randint(10, 200)
        for size in sizes:
            self._files += 1
            _place(self.directory / f"batch-{self._files:06}.txt", self.register.make(size)[1])
        return sum(sizes)


class ChangingFiles(LogSource):
    """A few files that are replaced by rename, written anew in place, renamed, or deleted at any moment."""

    def __init__(self, directory: Path, register: RecordRegister, seed: int, rate: float) -> None:
        super().__init__(directory, register, seed, rate)
        self._numbers_by_path: dict[Path, range] = {}
        self._files = 0

    def act(self) -> int:
        """Change one file."""
        changes = [self._create, self._create, self._replace, self._rewrite, self._rename, self._delete]
        return self.random.choice(changes)()

    def _some(self) -> Path | None:
        return self.random.choice(list(self._numbers_by_path)) if self._numbers_by_path else None

    def _create(self) -> int:
        self._files += 1
        return self._write(self.directory / f"table-{self._files:06}.txt", _place)

    def _replace(self) -> int:
        return self._write(self._some(), _place)

    def _rewrite(self) -> int:
        return self._write(self._some(), Path.write_bytes)

    def _write(self, path: Path | None, write: Callable[[Path, bytes], object]) -> int:
        if path is None:
            return 0
        if path in self._numbers_by_path:
            self.register.release(self._numbers_by_path[path])
        numbers, lines = self.register.make(self.random.randint(1, 500))
        write(path, lines)
        self._numbers_by_path[path] = numbers
        return len(numbers)

    def _rename(self) -> int:
        if path := self._some():
            self._files += 1
            target = self.directory / f"moved-{self._files:06}.txt"
            path.rename(target)
            self._numbers_by_path[target] = self._numbers_by_path.pop(path)
        return 0

    def _delete(self) -> int:
        if path := self._some():
            numbers = self._numbers_by_path.pop(path)
            self.register.release(numbers)
            path.unlink()
        return 0


SOURCES: Sequence[type[LogSource]] = (
    AppendedLog,
    NumberedLog,
    DatedLog,
    CompressedLog,
    CopiedLog,
    Arrivals,
    ChangingFiles,
)


class Arrived:
    """Counts the records that have been published.

    Attributes:
        counts: How often each record was published, by number.
        delays_s: Seconds from writing to publication.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._seen: set[str] = set()
        self.counts = bytearray()
        self.delays_s = array("f")

    @property
    def files(self) -> int:
        """Number of published files."""
        return len(self._seen)

    def look(self) -> int:
        """Read the files that are new; return how many records they hold."""
        found = 0
        try:
            names = {entry.name for entry in os.scandir(self._directory) if entry.name[0] != "."}
        except FileNotFoundError:
            return 0
        for name in names - self._seen:
            self._seen.add(name)
            now = time.time_ns()
            for line in (self._directory / name).read_bytes().splitlines():
                number, written = map(int, line.split(b" "))
                if number >= len(self.counts):
                    self.counts += bytes(max(1 << 20, number + 1 - len(self.counts)))
                self.counts[number] = min(255, self.counts[number] + 1)
                self.delays_s.append((now - written) / 1e9)
                found += 1
        return found


def _place(path: Path, content: bytes) -> None:
    hidden = path.with_name(f".{path.name}")
    hidden.write_bytes(content)
    hidden.rename(path)
