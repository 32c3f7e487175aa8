"""Names of published files: a window that is run again gives the same ones."""

from __future__ import annotations

import re

_EXTENSION = r"(\.\w+)*"


def block_name(block_id: int) -> str:
    """The name of the file that holds the records of one block: its id in hex, so that names sort as blocks do."""
    return f"{block_id:016x}"


def numbered_name(prefix: str, window_id: int, partition: int, number: int) -> str:
    """The name of one of the files that a partition writes in a window."""
    return f"{prefix}-{window_id:08d}-{partition:05d}-{number:04d}"


def window_name(prefix: str, window_id: int) -> str:
    """The name of the only file of a window."""
    return f"{prefix}-{window_id:08d}"


BLOCK_NAMES = re.compile(rf"[0-9a-f]{{16}}{_EXTENSION}")
"""What block_name gives, with any extension."""


def numbered_names(prefix: str) -> re.Pattern[str]:
    """What numbered_name gives for a prefix, with any extension."""
    return re.compile(rf"{prefix}-\d{{8}}-\d{{5}}-\d{{4}}{_EXTENSION}")


def window_names(prefix: str) -> re.Pattern[str]:
    """What window_name gives for a prefix, with any extension."""
    return re.compile(rf"{prefix}-\d{{8}}{_EXTENSION}")
