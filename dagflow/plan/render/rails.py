"""Draws a DAG with the characters of a terminal: operators one below the other, and a rail for each arrow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from dagflow.plan.render.drawing import Arrow, ArrowStyle

RAILS: Mapping[ArrowStyle, str] = {"call": "│", "assigned": "┆", "shuffle": "┃", "report": "┊"}
NODE = "●"


class Rails:
    """The rails that lead from drawn operators to those that are still to be drawn.

    Each result is the left part of a line; `passing` gives the line below it.
    """

    def __init__(self, arrows: Sequence[Arrow]) -> None:
        self._own = 0
        self._leaving: dict[str, list[Arrow]] = {}
        for arrow in arrows:
            self._leaving.setdefault(arrow.edge.source.operator, []).append(arrow)
        self._lanes: list[Arrow | None] = []

    def passing(self) -> str:
        """A line that all rails pass."""
        return _line(self._cells())

    def node(self, operator: str) -> Iterator[str]:
        """The lines in which the rails to an operator join; the operator is in the last one."""
        found = [lane for lane, arrow in enumerate(self._lanes) if arrow and arrow.edge.target.operator == operator]
        own = found[0] if found else self._free(0)
        for lane in reversed(found[1:]):
            yield _line(_joined(self._cells(), own, lane, "╯"))
            self._lanes[lane] = None
        self._lanes[own] = None
        self._own = own
        cells = self._cells()
        cells[own] = NODE
        yield _line(cells)

    def leaving(self, operator: str) -> Iterator[tuple[Arrow, str]]:
        """The lines in which the arrows of the operator that node() has drawn last begin: each arrow and its line."""
        arrows = self._leaving.get(operator, [])
        for arrow in arrows[:-1]:
            # The rail of the last arrow is the operator's own.
            self._lanes[self._own] = arrows[-1]
            lane = self._free(self._own + 1)
            line = _line(_joined(self._cells(), self._own, lane, "╮"))
            self._lanes[lane] = arrow
            yield arrow, line
        if arrows:
            self._lanes[self._own] = arrows[-1]
            yield arrows[-1], self.passing()

    def _free(self, first: int) -> int:
        for lane in range(first, len(self._lanes)):
            if self._lanes[lane] is None:
                return lane
        self._lanes.append(None)
        return len(self._lanes) - 1

    def _cells(self) -> list[str]:
        return [" " if arrow is None else RAILS[arrow.style] for arrow in self._lanes]


def _joined(cells: list[str], own: int, lane: int, end: str) -> list[str]:
    """The cells of a line with a connection between two rails, across those between them."""
    between = ["┼" if cell != " " else "─" for cell in cells[own + 1 : lane]]
    return [*cells[:own], "├", *between, end, *cells[lane + 1 :]]


def _line(cells: Sequence[str]) -> str:
    """The cells with a column between each two, which a connection crosses."""
    text = ""
    is_joined = False
    for cell in cells:
        text += ("─" if is_joined else " ") * bool(text) + cell
        is_joined = cell in ("├", "┼", "─")
    return text.rstrip()
