"""Telling an append from a rewrite in place, by a few bytes at a file's beginning and end."""

from __future__ import annotations

import hashlib
import os
from typing import Final

UNKNOWN: Final = 0
PROBED_BYTES: Final = 1 << 10
"""How many bytes at each end count: a page of the file is read in any case."""


def fingerprint(path: bytes, size_bytes: int) -> int:
    """A hash of the first and last bytes of the file's first size_bytes.

    Args:
        path: A local file.
        size_bytes: How many of its bytes count; it may have more by now.

    Returns:
        A signed 64-bit number; UNKNOWN where the file does not give these bytes.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return UNKNOWN
    try:
        head = _read(descriptor, 0, min(size_bytes, PROBED_BYTES))
        end = _read(descriptor, max(len(head), size_bytes - PROBED_BYTES), size_bytes)
    except OSError:
        return UNKNOWN
    finally:
        os.close(descriptor)
    if len(head) + len(end) < min(size_bytes, 2 * PROBED_BYTES):
        return UNKNOWN
    digest = hashlib.blake2b(head + end, digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True) or 1


def _read(descriptor: int, start: int, end: int) -> bytes:
    return os.pread(descriptor, end - start, start) if end > start else b""
