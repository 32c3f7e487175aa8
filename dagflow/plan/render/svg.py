"""Draws a plan as SVG, without any other program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from dagflow.plan.render.drawing import Drawing, Frame
from dagflow.plan.render.layout import layout_of
from dagflow.plan.render.picture import Box, Route
from dagflow.plan.render.sizes import CLASS, FRAME_PAD, LABEL, LINE_HEIGHT, MAX_TEXT, NAME, TITLE_TOP
from dagflow.plan.render.svg_style import LEGEND_ROW, ROOT, legend_lines, legend_rows, style
from dagflow.plan.render.text_metrics import clipped, text_width, wrapped

MAX_WIDTH = 1200.0
"""Width in pixels: about what a page shows without a scroll bar."""
_MARGIN = 24.0
_HEADER = 52.0
_APP, _CAPTION = 18.0, 13.0
_CAPTION_ROW = 18.0
_GAP = 18.0
_LEAST_WIDTH = 420.0
"""Width that the legend needs at least."""


def svg(drawing: Drawing) -> str:
    """The plan as an SVG document, which is light or dark as its reader prefers."""
    return "\n".join(_lines(drawing)) + "\n"


def _lines(drawing: Drawing) -> Iterator[str]:
    room = MAX_WIDTH - 2 * _MARGIN
    layout = layout_of(drawing, room)
    title = clipped(drawing.app, _APP, room, is_bold=True)
    inside = max(layout.width, text_width(title, _APP, is_bold=True), _LEAST_WIDTH)
    caption = list(wrapped(drawing.caption, _CAPTION, inside))
    legend = legend_rows(drawing, inside)
    below = _HEADER + layout.height + _GAP
    width = inside + 2 * _MARGIN
    height = below + LEGEND_ROW * len(legend) + _CAPTION_ROW * len(caption) + (_GAP / 2 if caption else 0) + _GAP
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="{ROOT}" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" style="max-width: 100%; height: auto" role="img" '
        f'aria-label="{escape(f"plan of app {drawing.app}")}">'
    )
    yield f"<style>\n{style()}</style>"
    yield (
        '<defs><marker id="dagflow-head" viewBox="0 0 10 10" refX="9.5" refY="5" markerWidth="9" markerHeight="9" '
        'markerUnits="userSpaceOnUse" orient="auto"><path class="head" d="M0 0 10 5 0 10z"/></marker></defs>'
    )
    yield '<rect class="canvas" width="100%" height="100%"/>'
    yield f'<text class="app" x="{_MARGIN:.0f}" y="34">{escape(title)}</text>'
    yield f'<g transform="translate({_MARGIN + (inside - layout.width) / 2:.1f} {_HEADER:.0f})">'
    for frame, lines, box in zip(drawing.frames, layout.titles, layout.frames, strict=True):
        yield from _frame_lines(frame, lines, box)
    for route in layout.routes:
        yield _path(route, is_downward=layout.is_downward)
    for name, box in layout.boxes.items():
        yield from _box_lines(name, drawing.classes[name], box)
    for route in layout.routes:
        yield from _label_lines(route)
    yield "</g>"
    yield from legend_lines(legend, _MARGIN, below)
    below += LEGEND_ROW * len(legend) + _GAP / 2
    for number, line in enumerate(caption, 1):
        y = below + _CAPTION_ROW * number - 4
        yield f'<text class="caption" x="{_MARGIN:.0f}" y="{y:.0f}">{escape(line)}</text>'
    yield "</svg>"


def _rectangle(kind: str, box: Box, radius: int) -> str:
    place = f'x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}"'
    return f'<rect class="{kind}" {place} rx="{radius}"/>'


def _frame_lines(frame: Frame, lines: Sequence[str], box: Box) -> Iterator[str]:
    x, y = box.x + FRAME_PAD, box.y + TITLE_TOP
    yield f"<g>{_whole(frame.subtitle, ' '.join(lines[1:]))}"
    yield _rectangle("driver" if frame.is_driver else "stage", box, 10)
    yield f'<text class="title" x="{x:.1f}" y="{y:.1f}">{escape(lines[0])}</text>'
    for number, line in enumerate(lines[1:], 1):
        yield f'<text class="subtitle" x="{x:.1f}" y="{y + LINE_HEIGHT * number:.1f}">{escape(line)}</text>'
    yield "</g>"


def _box_lines(name: str, class_name: str, box: Box) -> Iterator[str]:
    middle = box.x + box.width / 2
    shown, shown_class = clipped(name, NAME, MAX_TEXT, is_bold=True), clipped(class_name, CLASS, MAX_TEXT)
    yield f"<g>{_whole(f'{name}: {class_name}', f'{shown}: {shown_class}')}"
    yield _rectangle("box", box, 6)
    yield f'<text class="name" x="{middle:.1f}" y="{box.y + 22:.1f}">{escape(shown)}</text>'
    yield f'<text class="class" x="{middle:.1f}" y="{box.y + 39:.1f}">{escape(shown_class)}</text></g>'


def _whole(text: str, shown: str) -> str:
    """A title with the full text, which a browser shows under the pointer; "" if nothing was clipped."""
    return f"<title>{escape(text)}</title>" if shown != text else ""


def _path(route: Route, *, is_downward: bool) -> str:
    (x, y), *others = route.points
    parts = [f"M{x:.1f} {y:.1f}"]
    for next_x, next_y in others:
        if x == next_x or y == next_y:
            parts.append(f"L{next_x:.1f} {next_y:.1f}")
        elif is_downward:
            bend = (y + next_y) / 2
            parts.append(f"C{x:.1f} {bend:.1f} {next_x:.1f} {bend:.1f} {next_x:.1f} {next_y:.1f}")
        else:
            bend = (x + next_x) / 2
            parts.append(f"C{bend:.1f} {y:.1f} {bend:.1f} {next_y:.1f} {next_x:.1f} {next_y:.1f}")
        x, y = next_x, next_y
    return f'<path class="arrow {route.arrow.style}" d="{" ".join(parts)}"/>'


def _label_lines(route: Route) -> Iterator[str]:
    box = route.label
    text = route.arrow.short_label
    shown = clipped(text, LABEL, MAX_TEXT)
    yield f"<g>{_whole(text, shown)}{_rectangle('tag', box, 5)}"
    middle = box.x + box.width / 2
    yield f'<text class="label" x="{middle:.1f}" y="{box.y + 14:.1f}">{escape(shown)}</text></g>'
