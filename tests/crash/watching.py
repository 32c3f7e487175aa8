"""A process that lists an output directory in a loop, and reads every file as soon as it appears."""

from __future__ import annotations

import json
import os
import select
import sys
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self


@dataclass(slots=True)
class DirectoryWatcher:
    """What a reader of a directory has seen.

    Attributes:
        directory: The directory.
        seen: Size and checksum of each visible file when it was first seen, by name.
        looks: Number of listings.
        complaints: Files that vanished, or changed after they were first seen.
    """

    directory: Path
    seen: dict[str, list[int]] = field(default_factory=dict)
    looks: int = 0
    complaints: list[str] = field(default_factory=list)

    def look(self) -> None:
        """List once; read new files, and check the known ones."""
        self.looks += 1
        try:
            names = {name for name in os.listdir(self.directory) if name[0] not in "._"}
        except FileNotFoundError:
            names = set()
        self.complaints += [f"{name} vanished" for name in self.seen.keys() - names]
        for name in names:
            try:
                if name not in self.seen:
                    content = (self.directory / name).read_bytes()
                    self.seen[name] = [len(content), zlib.crc32(content)]
                elif (self.directory / name).stat().st_size != self.seen[name][0]:
                    self.complaints.append(f"{name} changed its size")
            except FileNotFoundError:
                self.complaints.append(f"{name} vanished after it was listed")

    def to_json(self) -> str:
        """Return this as text."""
        return json.dumps([str(self.directory), self.seen, self.looks, self.complaints])

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the result of to_json()."""
        directory, *others = json.loads(text)
        return cls(Path(directory), *others)


def main() -> None:
    """Watch the directory of the command line until there is input on stdin, and print what was seen."""
    watcher = DirectoryWatcher(Path(sys.argv[1]))
    # The pause leaves most of the CPU to the watched runs.
    while not select.select([sys.stdin], [], [], 0.03)[0]:
        watcher.look()
    watcher.look()
    sys.stdout.write(watcher.to_json())


if __name__ == "__main__":
    main()
