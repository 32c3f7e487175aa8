"""Draws a plan as SVG, without any other program."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from dagflow.plan.render.drawing import Drawing, Frame
from dagflow.plan.render.layered_layout import Box, LayeredLayout, Route

_MARGIN = 26.0
_HEADER = 50.0
_FOOTER = 34.0
_LABEL_SIZE = 11.5

_STYLE = """
  text { font-family: system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; fill: #1f2933 }
  .app { font-size: 18px; font-weight: 600 } .caption { font-size: 13px; fill: #52606d }
  .title { font-size: 14px; font-weight: 600 } .subtitle { font-size: 12px; fill: #52606d }
  .driver { fill: #f3f4f6; stroke: #9aa5b1 } .stage { fill: #eaf4ff; stroke: #63a4e0 }
  .box { fill: #ffffff; stroke: #52606d; stroke-width: 1.2 }
  .name { font-size: 14px; font-weight: 600; text-anchor: middle }
  .class { font-size: 12px; fill: #52606d; text-anchor: middle }
  .label { font-size: 11.5px; fill: #323f4b } .halo { stroke: #ffffff; stroke-width: 3px; stroke-linejoin: round }
  .arrow { fill: none; stroke: #52606d; stroke-width: 1.5; marker-end: url(#head) }
  .assigned { stroke-dasharray: 6 4 } .report { stroke-dasharray: 2 4 } .shuffle { stroke-width: 3 }
"""


def svg(drawing: Drawing) -> str:
    """The plan as an SVG document."""
    return "\n".join(_lines(drawing)) + "\n"


def _lines(drawing: Drawing) -> Iterator[str]:
    layout = LayeredLayout(drawing, _LABEL_SIZE).compute()
    width, height = layout.width + 2 * _MARGIN, layout.height + _HEADER + _FOOTER + _MARGIN
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="{escape(f"plan of app {drawing.app}")}">'
    )
    yield f"<style>{_STYLE}</style>"
    yield (
        '<defs><marker id="head" viewBox="0 0 10 10" refX="9.5" refY="5" markerWidth="9" markerHeight="9" '
        'markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0 10 5 0 10z" fill="#52606d"/></marker></defs>'
    )
    yield '<rect width="100%" height="100%" fill="#ffffff"/>'
    yield f'<text class="app" x="{_MARGIN:.0f}" y="34">{escape(drawing.app)}</text>'
    yield f'<g transform="translate({_MARGIN:.0f} {_HEADER:.0f})">'
    for frame, box in zip(drawing.frames, layout.frames, strict=True):
        yield from _frame_lines(frame, box)
    for route in layout.routes:
        yield _path(route)
    for name, box in layout.boxes.items():
        yield from _box_lines(name, drawing.classes[name], box)
    for route in layout.routes:
        yield from _label_lines(route)
    yield "</g>"
    yield f'<text class="caption" x="{_MARGIN:.0f}" y="{height - 22:.0f}">{escape(drawing.caption)}</text>'
    yield "</svg>"


def _rectangle(kind: str, box: Box, radius: int) -> str:
    place = f'x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}"'
    return f'<rect class="{kind}" {place} rx="{radius}"/>'


def _frame_lines(frame: Frame, box: Box) -> Iterator[str]:
    yield _rectangle("driver" if frame.is_driver else "stage", box, 10)
    yield f'<text class="title" x="{box.x + 16:.1f}" y="{box.y + 21:.1f}">{escape(frame.title)}</text>'
    yield f'<text class="subtitle" x="{box.x + 16:.1f}" y="{box.y + 37:.1f}">{escape(frame.subtitle)}</text>'


def _box_lines(name: str, class_name: str, box: Box) -> Iterator[str]:
    middle = box.x + box.width / 2
    yield _rectangle("box", box, 6)
    yield f'<text class="name" x="{middle:.1f}" y="{box.y + 24:.1f}">{escape(name)}</text>'
    yield f'<text class="class" x="{middle:.1f}" y="{box.y + 41:.1f}">{escape(class_name)}</text>'


def _path(route: Route) -> str:
    (x, y), *others = route.points
    parts = [f"M{x:.1f} {y:.1f}"]
    for next_x, next_y in others:
        bend = (x + next_x) / 2
        parts.append(f"C{bend:.1f} {y:.1f} {bend:.1f} {next_y:.1f} {next_x:.1f} {next_y:.1f}")
        x, y = next_x, next_y
    return f'<path class="arrow {route.arrow.style}" d="{" ".join(parts)}"/>'


def _label_lines(route: Route) -> Iterator[str]:
    x, y = route.points[-2]
    # Twice, because not every program draws a text's outline below its face.
    for kind in ("label halo", "label"):
        yield f'<text class="{kind}" x="{x + 2:.1f}" y="{y - 5:.1f}">{escape(route.arrow.label)}</text>'
