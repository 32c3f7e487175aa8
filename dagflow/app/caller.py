"""Finds the line of the caller's code outside this package, which messages name as the place of a mistake in an app."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from dagflow.spec.problems import Place, place_in_code

_HERE = str(Path(__file__).parent) + os.sep


def place_of_caller() -> Place:
    """The line of the innermost code that does not belong to this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_HERE):
        frame = frame.f_back
    return place_in_code(frame.f_code.co_filename, frame.f_lineno)
