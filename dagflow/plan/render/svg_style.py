"""The colours of a picture, light and dark, and its legend."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape

from dagflow.plan.render.drawing import ArrowStyle, Drawing
from dagflow.plan.render.layout import broken
from dagflow.plan.render.text_metrics import text_width

LABEL = 11.5
"""The font size of labels."""
ROOT = "dagflow-plan"
"""The class of the picture's root, so that its styles touch nothing else on a page."""

_SHAPES = """
text { font-family: system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif }
.app { font-size: 18px; font-weight: 600 }
.caption { font-size: 13px }
.title { font-size: 14px; font-weight: 600 }
.subtitle { font-size: 12px }
.name { font-size: 14px; font-weight: 600; text-anchor: middle }
.class { font-size: 12px; text-anchor: middle }
.label { font-size: 11.5px; text-anchor: middle }
.legend { font-size: 11.5px }
.box { stroke-width: 1.2 }
.arrow { fill: none; stroke-width: 1.5; marker-end: url(#dagflow-head) }
.line { marker-end: none }
.assigned { stroke-dasharray: 6 4 }
.report { stroke-dasharray: 2 4 }
.shuffle { stroke-width: 3 }
"""

# Plain colours, given twice: programs without CSS variables would draw all of it black.
_COLOURS = """
.canvas {{ fill: {canvas} }}
text {{ fill: {text} }}
.caption, .subtitle, .class, .legend {{ fill: {soft} }}
.driver {{ fill: {driver}; stroke: {driver_line} }}
.stage {{ fill: {stage}; stroke: {stage_line} }}
.box {{ fill: {canvas}; stroke: {line} }}
.tag {{ fill: {canvas}; stroke: {tag_line} }}
.arrow {{ stroke: {line} }}
.head {{ fill: {line} }}
"""
_LIGHT = {
    "canvas": "#ffffff",
    "text": "#1f2933",
    "soft": "#52606d",
    "driver": "#f3f4f6",
    "driver_line": "#9aa5b1",
    "stage": "#eaf4ff",
    "stage_line": "#63a4e0",
    "line": "#52606d",
    "tag_line": "#d5dce3",
}
_DARK = {
    "canvas": "#0d1117",
    "text": "#e6edf3",
    "soft": "#9fb0c0",
    "driver": "#1b2129",
    "driver_line": "#5b6875",
    "stage": "#10243a",
    "stage_line": "#3f7fbd",
    "line": "#9fb0c0",
    "tag_line": "#33404d",
}

_STYLE_WORDS: Mapping[ArrowStyle, str] = {
    "call": "passed on within a task, or within the driver",
    "assigned": "assigned by the driver",
    "shuffle": "shuffled between tasks",
    "report": "reported to the driver",
}
_SWATCH = 26.0
_ITEM_GAP = 24.0
LEGEND_ROW = 20.0
"""The height of a row of the legend."""


def style() -> str:
    """The picture's style sheet."""
    dark = _rules(_COLOURS.format(**_DARK))
    return f"{_rules(_SHAPES)}{_rules(_COLOURS.format(**_LIGHT))}@media (prefers-color-scheme: dark) {{\n{dark}}}\n"


def _rules(rules: str) -> str:
    """The rules, limited to this picture."""
    lines = []
    for rule in rules.strip().splitlines():
        selectors, _, body = rule.partition(" {")
        own = ", ".join(f".{ROOT} {selector}" for selector in selectors.split(", "))
        lines.append(f"{own} {{{body}\n")
    return "".join(lines)


def legend_of(drawing: Drawing) -> list[tuple[str, str]]:
    """The kinds of frames and arrows that a drawing has: class of the swatch, and words."""
    kinds = [("driver", "driver"), ("stage", "stage: operators of one task")]
    found = [each for each in kinds if any(frame.is_driver == (each[0] == "driver") for frame in drawing.frames)]
    styles = {arrow.style for arrow in drawing.arrows}
    return found + [(kind, words) for kind, words in _STYLE_WORDS.items() if kind in styles]


def legend_rows(drawing: Drawing, width: float) -> list[list[tuple[str, str]]]:
    """The legend in rows of at most this many pixels."""
    return broken(legend_of(drawing), _entry_width, width + _ITEM_GAP)


def _entry_width(entry: tuple[str, str]) -> float:
    return _SWATCH + 8 + text_width(entry[1], LABEL) + _ITEM_GAP


def legend_lines(rows: list[list[tuple[str, str]]], left: float, top: float) -> Iterator[str]:
    """The legend as SVG."""
    for number, row in enumerate(rows):
        y, x = top + LEGEND_ROW * (number + 0.5), left
        for kind, words in row:
            if kind in _STYLE_WORDS:
                yield f'<path class="arrow line {kind}" d="M{x:.1f} {y:.1f}H{x + _SWATCH:.1f}"/>'
            else:
                yield f'<rect class="{kind}" x="{x:.1f}" y="{y - 7:.1f}" width="{_SWATCH}" height="14" rx="4"/>'
            yield f'<text class="legend" x="{x + _SWATCH + 8:.1f}" y="{y + 4:.1f}">{escape(words)}</text>'
            x += _entry_width((kind, words))
