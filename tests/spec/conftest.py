"""What tests of apps share."""

from __future__ import annotations

import os
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
    # Compared as text, because every test looks at more than a thousand modules.
    own = f"{tmp_path}{os.sep}"
    for name, module in list(sys.modules.items()):
        if (getattr(module, "__file__", None) or "").startswith(own):
            del sys.modules[name]
