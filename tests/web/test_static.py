"""What the pages are made of: small, complete, and from nowhere else."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import dagflow

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


def test_every_module_is_used() -> None:
    """Each module is imported by another one, or by the page."""
    text = "\n".join(path.read_text() for path in OWN)
    assert [
        path.name
        for path in OWN
        if path.suffix == ".js" and f'/{path.name}"' not in text and f'"{path.name}"' not in text
    ] == []


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
