"""Partitions over time, drawn with characters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dagflow.cli.figures import duration
from dagflow.engine.scaling_simulation import Moment

WIDTH = 64
"""Columns of the drawing; with its labels it fits a terminal of 80."""


def chart(moments: Sequence[Moment]) -> str:
    """The number of partitions over time, largest count on top; each column shows the most within its time."""
    start, end = moments[0].millis, moments[-1].millis
    columns = _columns(moments, start, max(end - start, 1))
    lines = [
        f"{level:>6} |{''.join('█' if count >= level else ' ' for count in columns).rstrip()}"
        for level in sorted(set(columns), reverse=True)
    ]
    length = duration((end - start) / 1000)
    return "\n".join([*lines, f"       +{'-' * WIDTH}", f"        0{length:>{WIDTH - 1}}"])


def _columns(moments: Sequence[Moment], start: int, length: int) -> list[int]:
    columns = [0] * WIDTH
    held = moments[0].partitions
    position = 0
    for moment in moments:
        column = min((moment.millis - start) * WIDTH // length, WIDTH - 1)
        for index in range(position, column + 1):
            columns[index] = max(columns[index], held)
        columns[column] = max(columns[column], moment.partitions)
        position, held = column + 1, moment.partitions
    columns[position:] = [max(count, held) for count in columns[position:]]
    return columns


def decisions(moments: Sequence[Moment]) -> Iterator[tuple[str, str]]:
    """Each change: when, and from what to what, with the backlog and the reason."""
    start = moments[0].millis
    for moment in moments:
        if moment.decision is not None:
            change = moment.decision
            yield (
                duration((moment.millis - start) / 1000),
                f"{change.before} -> {change.after}, backlog {change.backlog:,}: {change.reason}",
            )
