"""What the pages are made of: small, complete, and from nowhere else."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import dagflow
from dagflow.web.api import served_page

STATIC = Path(dagflow.__file__).parent / "web" / "static"
FILES = sorted(path for path in STATIC.rglob("*") if path.is_file())
OWN = [path for path in FILES if path.suffix in {".js", ".css", ".html"} and "vendor" not in path.parts]
MAX_BYTES = 300_000


def test_all_pages_together_are_small() -> None:
    """Everything that a browser loads, uncompressed, fits into the budget."""
    sizes = {path.name: path.stat().st_size for path in FILES if path.suffix in {".js", ".css", ".html", ".svg"}}
    assert sum(sizes.values()) < MAX_BYTES, sizes


def test_modules_of_others_are_those_that_the_readme_names() -> None:
    """Each file from npm is listed with its checksum, and has its licence beside it."""
    vendor = STATIC / "vendor"
    listed = dict(re.findall(r"^\| `([^`]+)` .*`([0-9a-f]{64})` \|$", (vendor / "README.md").read_text(), re.MULTILINE))
    found = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in vendor.iterdir()
        if path.suffix in {".js", ".css"}
    }
    assert listed == found
    assert {path.stem for path in vendor.glob("*.LICENSE")} == {
        name.partition(".")[0].partition("_")[0] for name in found
    }


def test_every_import_names_a_file_that_is_there() -> None:
    """Modules import each other by relative paths only."""
    broken = []
    for path in FILES:
        if path.suffix == ".js":
            for name in re.findall(r"""(?:\bfrom|\bimport\s*\()\s*["']([^"']+)["']""", path.read_text()):
                if not name.startswith(".") or not (path.parent / name).is_file():
                    broken.append((path.name, name))
    assert broken == []


def test_the_page_asks_at_once_for_each_module_that_it_needs() -> None:
    """A module that is found when another one has come makes the first content later; none is there in vain."""
    found = [STATIC / "app.js"]
    for path in found:
        for name in re.findall(r"""^(?:import|export)\b[^;]*?["'](\.[^"']+)["'];""", path.read_text(), re.MULTILINE):
            if (imported := (path.parent / name).resolve()) not in found:
                found.append(imported)
    asked = re.findall(r'<link rel="modulepreload" href="([^"]+)" />', served_page())
    assert {path for path in FILES if path.suffix == ".js"} - {*found} == {STATIC / "vendor" / "uplot.js"}
    assert sorted(asked) == sorted(str(path.relative_to(STATIC)) for path in found)


def test_the_page_loads_each_style_sheet_once() -> None:
    """A style sheet that no page loads is there in vain; one that is loaded is there."""
    loaded = re.findall(r'<link rel="stylesheet" href="([^"]+)" />', (STATIC / "index.html").read_text())
    assert sorted(loaded) == sorted(str(path.relative_to(STATIC)) for path in FILES if path.suffix == ".css")


def test_pages_load_nothing_from_elsewhere() -> None:
    """No source names another host; the namespace of SVG is only a name."""
    found = [
        (path.name, url)
        for path in OWN
        for url in re.findall(r"(?:https?:)?//[a-z0-9.-]+\.[a-z]{2,}[^\s\"'`]*", path.read_text())
    ]
    assert [each for each in found if "www.w3.org" not in each[1]] == []


def test_no_module_makes_markup_of_text() -> None:
    """Names and records reach the page as text; nothing parses them."""
    words = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|dangerouslySetInnerHTML"
    )
    assert [path.name for path in OWN if words.search(path.read_text())] == []
