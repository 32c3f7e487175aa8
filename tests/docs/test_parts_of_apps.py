"""Apps, parts of apps and code on the pages of docs/ are what dagflow and Python take."""

from __future__ import annotations

import ast
import contextlib
import os
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.docs.reference import DOCS
from tests.spec.apps import check

BLOCK = re.compile(r'^```(yaml|python)(?: title="([^"]+)")?\n(.*?)^```$', re.DOTALL | re.MULTILINE)
FILE = re.compile(r"# ([\w.]+\.(?:py|yaml))\n")
PAGES = sorted(DOCS.rglob("*.md"))
READ = "- files: data/orders\n- read: {type: csv, columns: {qty: int64, price: int64, placed: date32}}\n"
NO_APP = {"cleaner", "apiVersion", "app", "description", "order"}
"""The first key of blocks that are no part of an app's steps or attributes."""


def app_of(block: str) -> str | None:
    """The app that a block is, or is a part of; None for other YAML."""
    value = yaml.safe_load(block)
    if isinstance(value, list):
        before = "" if "files" in value[0] else READ.partition("- read")[0] if "read" in value[0] else READ
        behind = "" if {"write", "table"} & value[-1].keys() else "- write: out\n"
        if "files" in value[0] and len(value) == 1:
            behind = "- read: csv\n- write: out\n"
        return "name: x\nsteps:\n" + textwrap.indent(before + block + behind, "  ")
    first = next(iter(value))
    if first in NO_APP:
        return None
    if first == "steps":
        return f"name: x\n{block}"
    steps = textwrap.indent(f"{READ}- write: out\n", "  ")
    if first in ("attributes", "operators"):
        return f"name: x\n{block}steps:\n{steps}"
    return block if {"steps", "operators"} & value.keys() else None


def require_imports(tree: ast.Module) -> None:
    """Fail where code imports from dagflow or its operators what they do not have."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in {"dagflow", "operators"}:
            exec(ast.unparse(node), {})


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A directory apart from those of other tests, which may have modules of the same names."""
    paths, places = list(sys.path), f"{tmp_path.parent}{os.sep}"
    apart = {
        name: each for name, each in sys.modules.items() if (getattr(each, "__file__", None) or "").startswith(places)
    }
    for name in apart:
        del sys.modules[name]
    sys.path[:] = [path for path in paths if not path.startswith(places)]
    yield tmp_path
    sys.path[:] = paths
    for name, each in list(sys.modules.items()):
        if (getattr(each, "__file__", None) or "").startswith(places):
            del sys.modules[name]
    sys.modules.update(apart)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_a_page_shows_is_valid(page: Path, folder: Path) -> None:
    """Each app, and each part of one in an app around it, has no mistake; Python finds what it imports."""
    blocks = BLOCK.findall(page.read_text("utf-8"))
    for _, title, text in blocks:
        if name := title or "".join(FILE.findall(text.partition("\n")[0] + "\n")):
            (folder / name).write_text(text)
    (folder / "data").symlink_to(DOCS.parent / "data")
    for language, _, text in blocks:
        if language == "python":
            require_imports(ast.parse(text))
        elif (app := app_of(text)) is not None:
            path = folder / "checked.yaml"
            path.write_text(re.sub(r"\$\{\w+\}", "https://host/value", app))
            with contextlib.chdir(folder):
                assert list(map(str, check(path))) == [], app
