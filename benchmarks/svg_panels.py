"""Draws measurements as SVG: small panels side by side, with logarithmic axes or a linear y axis from zero."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

Points = Sequence[tuple[float, float]]

_WIDTH, _HEIGHT, _LEFT, _TOP, _GAP = 190.0, 130.0, 52.0, 40.0, 78.0
_COLOURS = ("#1f6fb2", "#c0562b", "#3b8f4e", "#7a5195")
_STYLE = """
  text { font-family: system-ui, sans-serif; font-size: 11px; fill: #323f4b }
  .title { font-size: 13px; font-weight: 600 } .axis { stroke: #9aa5b1; fill: none } .grid { stroke: #e4e7eb }
"""


@dataclass(frozen=True, slots=True)
class Panel:
    """One diagram.

    Attributes:
        title: Heading.
        lines: Points by name; ascending.
        is_flat: Whether the y axis is linear from 0, to show values that do not grow; otherwise it is logarithmic.
    """

    title: str
    lines: Mapping[str, Points]
    is_flat: bool = False


def drawing(panels: Sequence[Panel], columns: int) -> str:
    """Return the panels, row by row, as an SVG document."""
    rows = math.ceil(len(panels) / columns)
    width, height = columns * (_WIDTH + _GAP), rows * (_HEIGHT + _GAP)
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" {size}>', f"<style>{_STYLE}</style>"]
    lines.append('<rect width="100%" height="100%" fill="#ffffff"/>')
    for number, panel in enumerate(panels):
        x, y = number % columns * (_WIDTH + _GAP) + _LEFT, number // columns * (_HEIGHT + _GAP) + _TOP
        lines.append(f'<g transform="translate({x:.0f} {y:.0f})">')
        lines += _panel_lines(panel)
        lines.append("</g>")
    return "\n".join([*lines, "</svg>"]) + "\n"


def _panel_lines(panel: Panel) -> Iterator[str]:
    points = [point for line in panel.lines.values() for point in line]
    lowest, highest = _decades([x for x, _ in points])
    bottom, top = (0.0, _round_up(max(y for _, y in points))) if panel.is_flat else _decades([y for _, y in points])

    def across(value: float) -> float:
        return (math.log10(value) - lowest) / (highest - lowest) * _WIDTH

    def upward(value: float) -> float:
        part = value if panel.is_flat else math.log10(value)
        return _HEIGHT - (part - bottom) / (top - bottom) * _HEIGHT

    yield f'<text class="title" x="0" y="-16">{escape(panel.title)}</text>'
    for value in [10.0**power for power in range(int(lowest), int(highest) + 1)]:
        yield f'<text x="{across(value):.0f}" y="{_HEIGHT + 16:.0f}" text-anchor="middle">{_text_of(value)}</text>'
    steps = [top / 2, top] if panel.is_flat else [10.0**power for power in range(int(bottom), int(top) + 1)]
    for value in steps:
        yield f'<path class="grid" d="M0 {upward(value):.1f}H{_WIDTH:.0f}"/>'
        yield f'<text x="-6" y="{upward(value) + 4:.0f}" text-anchor="end">{_text_of(value)}</text>'
    yield f'<path class="axis" d="M0 0V{_HEIGHT:.0f}H{_WIDTH:.0f}"/>'
    for number, (name, line) in enumerate(panel.lines.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        path = " ".join(f"{across(x):.1f},{upward(y):.1f}" for x, y in line)
        yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.6"/>'
        yield from (f'<circle cx="{across(x):.1f}" cy="{upward(y):.1f}" r="2.4" fill="{colour}"/>' for x, y in line)
        yield f'<text x="6" y="{12 + 14 * number}" style="fill:{colour}">{escape(name)}</text>'


def _decades(values: Sequence[float]) -> tuple[float, float]:
    lowest, highest = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return float(lowest), float(max(highest, lowest + 1))


def _round_up(value: float) -> float:
    unit = 10.0 ** math.floor(math.log10(value))
    return float(math.ceil(value / unit) * unit)


def _text_of(value: float) -> str:
    return f"{value:g}" if 0.01 <= value < 10_000 else f"1e{math.log10(value):.0f}"
