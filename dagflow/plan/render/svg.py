"""Draws a plan as SVG, without any other program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape

from dagflow.plan.render.drawing import ArrowStyle, Drawing, Frame
from dagflow.plan.render.layout import Box, Group, Parts, Size, broken, layout_of

NAME, CLASS, TITLE, SUBTITLE = 14.0, 12.0, 14.0, 12.0
"""Font sizes."""
MAX_TEXT = 210.0
"""Width of a name or a label, at most; longer ones are clipped."""
_TITLE_TEXT = 112.0
"""Width of the lines of a frame's title, at most, and of an operator, at least: the title fits above a single one."""
_TITLE_LINES = 4
_FRAME_PAD = 20.0
_TITLE_TOP, _TITLE_PAD = 21.0, 10.0
"""Pixels above the first baseline of a frame's title, and below the last."""
_LINE_HEIGHT = 16.0
_BOX_HEIGHT, _BOX_PAD = 50.0, 14.0
_LABEL_HEIGHT, _LABEL_PAD = 20.0, 7.0
MAX_WIDTH = 1200.0
"""Width in pixels: about what a page shows without a scroll bar."""
_MARGIN = 24.0
_HEADER = 52.0
_APP, _CAPTION = 18.0, 13.0
_CAPTION_ROW = 18.0
_GAP = 18.0
_LEAST_WIDTH = 420.0
"""Width that the legend needs at least."""


def svg_lines(drawing: Drawing) -> Iterator[str]:
    """An SVG document, which is light or dark as its reader prefers."""
    room = MAX_WIDTH - 2 * _MARGIN
    layout = layout_of(lambda is_downward: parts_of(drawing, is_downward), room)
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
    for frame, box in zip(drawing.frames, layout.frames, strict=True):
        yield from _frame_lines(frame, box)
    for index, arrow in enumerate(drawing.arrows):
        yield f'<path class="arrow {arrow.style}" d="{layout.path(index)}"/>'
    for name, box in layout.boxes.items():
        yield from _box_lines(name, drawing.classes[name], box)
    for arrow, box in zip(drawing.arrows, layout.labels, strict=True):
        yield from _label_lines(arrow.short_label, box)
    yield "</g>"
    yield from legend_lines(legend, _MARGIN, below)
    below += LEGEND_ROW * len(legend) + _GAP / 2
    for number, line in enumerate(caption, 1):
        y = below + _CAPTION_ROW * number - 4
        yield f'<text class="caption" x="{_MARGIN:.0f}" y="{y:.0f}">{escape(line)}</text>'
    yield "</svg>"


def parts_of(drawing: Drawing, is_downward: bool) -> Parts:
    def flowing(width: float, height: float) -> Size:
        return (height, width) if is_downward else (width, height)

    def title_room(frame: Frame) -> float:
        lines = title_lines(frame)
        height = _TITLE_TOP + _LINE_HEIGHT * (len(lines) - 1) + _TITLE_PAD - _FRAME_PAD
        width = max(text_width(lines[0], TITLE, is_bold=True), *(text_width(line, SUBTITLE) for line in lines[1:]), 0)
        return _FRAME_PAD + width if is_downward else height

    return Parts(
        groups=[Group(frame.operators, frame.column, title_room(frame)) for frame in drawing.frames],
        arrows=[arrow.edge.arc for arrow in drawing.arrows],
        operators={name: flowing(_box_width(name, text), _BOX_HEIGHT) for name, text in drawing.classes.items()},
        labels=[
            flowing(min(text_width(arrow.short_label, LABEL), MAX_TEXT) + 2 * _LABEL_PAD, _LABEL_HEIGHT)
            for arrow in drawing.arrows
        ],
        pad=_FRAME_PAD,
        is_downward=is_downward,
    )


def title_lines(frame: Frame) -> list[str]:
    """The lines of a frame's title: above its content, or on the left, where no arrow crosses it."""
    lines = [frame.title, *wrapped(frame.subtitle, SUBTITLE, _TITLE_TEXT)]
    if len(lines) > _TITLE_LINES:
        lines[_TITLE_LINES - 1 :] = [" ".join(lines[_TITLE_LINES - 1 :])]
    return [lines[0], *(clipped(line, SUBTITLE, _TITLE_TEXT) for line in lines[1:])]


def _box_width(name: str, class_name: str) -> float:
    text = max(text_width(name, NAME, is_bold=True), text_width(class_name, CLASS))
    return max(min(text, MAX_TEXT) + 2 * _BOX_PAD, _TITLE_TEXT)


def _rectangle(kind: str, box: Box, radius: int) -> str:
    place = f'x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}"'
    return f'<rect class="{kind}" {place} rx="{radius}"/>'


def _frame_lines(frame: Frame, box: Box) -> Iterator[str]:
    x, y = box.x + _FRAME_PAD, box.y + _TITLE_TOP
    first, *others = title_lines(frame)
    yield f"<g>{_whole(frame.subtitle, ' '.join(others))}"
    yield _rectangle("driver" if frame.is_driver else "stage", box, 10)
    yield f'<text class="title" x="{x:.1f}" y="{y:.1f}">{escape(first)}</text>'
    for number, line in enumerate(others, 1):
        yield f'<text class="subtitle" x="{x:.1f}" y="{y + _LINE_HEIGHT * number:.1f}">{escape(line)}</text>'
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


def _label_lines(text: str, box: Box) -> Iterator[str]:
    shown = clipped(text, LABEL, MAX_TEXT)
    yield f"<g>{_whole(text, shown)}{_rectangle('tag', box, 5)}"
    middle = box.x + box.width / 2
    yield f'<text class="label" x="{middle:.1f}" y="{box.y + 14:.1f}">{escape(shown)}</text></g>'


LABEL = 11.5
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


def style() -> str:
    dark = _rules(_COLOURS.format(**_DARK))
    return f"{_rules(_SHAPES)}{_rules(_COLOURS.format(**_LIGHT))}@media (prefers-color-scheme: dark) {{\n{dark}}}\n"


def _rules(rules: str) -> str:
    lines = []
    for rule in rules.strip().splitlines():
        selectors, _, body = rule.partition(" {")
        own = ", ".join(f".{ROOT} {selector}" for selector in selectors.split(", "))
        lines.append(f"{own} {{{body}\n")
    return "".join(lines)


def legend_of(drawing: Drawing) -> list[tuple[str, str]]:
    kinds = [("driver", "driver"), ("stage", "stage: operators of one task")]
    found = [each for each in kinds if any(frame.is_driver == (each[0] == "driver") for frame in drawing.frames)]
    styles = {arrow.style for arrow in drawing.arrows}
    return found + [(kind, words) for kind, words in _STYLE_WORDS.items() if kind in styles]


def legend_rows(drawing: Drawing, width: float) -> list[list[tuple[str, str]]]:
    return broken(legend_of(drawing), _entry_width, width + _ITEM_GAP)


def _entry_width(entry: tuple[str, str]) -> float:
    return _SWATCH + 8 + text_width(entry[1], LABEL) + _ITEM_GAP


def legend_lines(rows: list[list[tuple[str, str]]], left: float, top: float) -> Iterator[str]:
    for number, row in enumerate(rows):
        y, x = top + LEGEND_ROW * (number + 0.5), left
        for kind, words in row:
            if kind in _STYLE_WORDS:
                yield f'<path class="arrow line {kind}" d="M{x:.1f} {y:.1f}H{x + _SWATCH:.1f}"/>'
            else:
                yield f'<rect class="{kind}" x="{x:.1f}" y="{y - 7:.1f}" width="{_SWATCH}" height="14" rx="4"/>'
            yield f'<text class="legend" x="{x + _SWATCH + 8:.1f}" y="{y + 4:.1f}">{escape(words)}</text>'
            x += _entry_width((kind, words))


# Widths of DejaVu Sans, as parts of the font size: it is wider than the other fonts that a picture names.
_NARROW, _SLIM, _USUAL, _CAPITAL, _BROAD, _FULL = 0.33, 0.42, 0.64, 0.7, 1.0, 1.8
_NARROW_CHARS = frozenset("iljI.,:;|!' ")
_SLIM_CHARS = frozenset('frt()[]{}-/\\"')
_BROAD_CHARS = frozenset("mwMW@%…")
_OTHER_SCRIPTS = "\u1100"
"""From this character on, letters are about square."""
_BOLD = 1.1


def text_width(text: str, size: float, *, is_bold: bool = False) -> float:
    """About how many pixels wide a text is in a sans-serif font; rather too many than too few."""
    return sum(map(_char_width, text)) * size * (_BOLD if is_bold else 1)


def _char_width(char: str) -> float:
    if char >= _OTHER_SCRIPTS and char != "…":
        return _FULL
    if char in _BROAD_CHARS:
        return _BROAD
    if char in _NARROW_CHARS:
        return _NARROW
    return _SLIM if char in _SLIM_CHARS else _CAPITAL if char.isupper() else _USUAL


def clipped(text: str, size: float, width: float, *, is_bold: bool = False) -> str:
    """The text, with its middle left out where it is wider than this many pixels: names differ at both ends."""
    kept = len(text)
    shown = text
    while text_width(shown, size, is_bold=is_bold) > width and kept > 1:
        kept -= 1
        shown = f"{text[: (kept + 1) // 2]}…{text[len(text) - kept // 2 :]}"
    return shown


def wrapped(text: str, size: float, width: float) -> Iterator[str]:
    """The text in lines of at most this many pixels, broken between words."""
    line = ""
    for word in text.split():
        longer = f"{line} {word}".strip()
        if line and text_width(longer, size) > width:
            yield line
            longer = word
        line = longer
    if line:
        yield line
