"""Input of the benchmark of tables: files of CSV and of JSON lines, repeated from a pool of random rows."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable
from pathlib import Path

FILES = 4
POOL_ROWS = 200_000
KEYS = 1_000_000

ORDER_HEADER = b"id,placed,shop,customer,note,product,qty,price,paid,day\n"
SALES_HEADER = b"sold_at,shop,product,qty,price\n"
COUNT_HEADER = b"user,country,qty,price\n"


def _orders(dice: random.Random) -> Iterable[bytes]:
    """Ten columns; the note is in quotes, one in ten with a comma, and one in fifty with quotes and a line break."""
    for number in range(POOL_ROWS):
        day = f"2026-{dice.randint(1, 12):02d}-{dice.randint(1, 28):02d}"
        mood = dice.random()
        note = 'said ""now"",\nand left' if mood < 0.02 else "soon, please" if mood < 0.1 else "nothing to add"
        yield (
            f"{number},{day} {dice.randint(0, 23):02d}:15:{dice.randint(0, 59):02d},shop {dice.randint(0, 9)}"
            f',customer {dice.randint(0, 99999)},"{note}",product {dice.randint(0, 9999)} of many'
            f",{dice.randint(0, 99)},{dice.randint(1, 99999) / 100:.2f},{dice.choice(['true', 'false'])},{day}\n"
        ).encode()


def _sales(dice: random.Random) -> Iterable[bytes]:
    """A time, two texts, a number and a price."""
    for _ in range(POOL_ROWS):
        yield (
            f"2026-{dice.randint(1, 12):02d}-{dice.randint(1, 28):02d} {dice.randint(0, 23):02d}:15:00"
            f",shop {dice.randint(0, 9)},product {dice.randint(0, 9999)} of many"
            f",{dice.choice([0, 1, 2]) * dice.randint(1, 99)},{dice.randint(1, 99999) / 100}\n"
        ).encode()


def _counts(dice: random.Random) -> Iterable[bytes]:
    """Twice as many rows as there are keys, whose order is random."""
    for number in dice.sample(range(2 * KEYS), 2 * KEYS):
        yield f"{number % KEYS},country {number % 97},{number % 100},{number % 9973 / 100:.2f}\n".encode()


def _events(dice: random.Random) -> Iterable[bytes]:
    """Objects with numbers, texts, a boolean, a time and a member that is not always there."""
    for number in range(POOL_ROWS):
        event = {
            "id": number,
            "at": f"2026-05-{dice.randint(1, 28):02d}T{dice.randint(0, 23):02d}:15:00",
            "user": f"user {dice.randint(0, 99999)}",
            "kind": dice.choice(["view", "click", "order"]),
            "amount": dice.randint(1, 99999) / 100,
            "ok": dice.random() < 0.9,
        }
        if dice.random() < 0.5:
            event["referrer"] = f"https://example.org/{dice.randint(0, 9999)}"
        yield json.dumps(event).encode() + b"\n"


KINDS: dict[str, tuple[Callable[[random.Random], Iterable[bytes]], bytes]] = {
    "orders": (_orders, ORDER_HEADER),
    "sales": (_sales, SALES_HEADER),
    "counts": (_counts, COUNT_HEADER),
    "events": (_events, b""),
}


def make_input(folder: Path, kind: str, size_bytes: int) -> None:
    """Write files of about so many bytes together."""
    rows_of, header = KINDS[kind]
    rows = list(rows_of(random.Random(1)))
    length = sum(map(len, rows)) / len(rows)
    suffix = ".csv" if header else ".jsonl"
    folder.mkdir()
    for number in range(FILES):
        with (folder / f"{number}{suffix}").open("wb") as file:
            size = file.write(header)
            # Each file begins elsewhere, so that a small input has as many keys as a large one can.
            start = number * len(rows) // FILES
            while size < size_bytes / FILES:
                count = int((size_bytes / FILES - size) / length) + 1
                size += file.write(b"".join(rows[start : start + count]))
                start = 0 if start + count >= len(rows) else start + count
