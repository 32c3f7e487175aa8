"""What tests of apps share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_imports(tmp_path: Path) -> Iterator[None]:
    """Forget the modules that a test wrote, and where they were."""
    paths = list(sys.path)
    yield
    sys.path[:] = paths
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file and tmp_path in Path(file).parents:
            del sys.modules[name]
