"""Reads an app: its YAML, the environment and the command line, checked against the operators' classes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from dagflow.errors import Problem, SpecError
from dagflow.spec.environment import Environment
from dagflow.spec.model import AppSpec, Attributes, Endpoint, OperatorSpec, Partition, StreamSpec
from dagflow.spec.problems import Problems
from dagflow.spec.reader import AppReader
from dagflow.spec.registry import search_path_of

__all__ = ["AppSpec", "Attributes", "Endpoint", "OperatorSpec", "Overrides", "Partition", "StreamSpec", "load", "read"]

Overrides = Mapping[str, str] | Sequence[str]
"""Properties to set: "op.property=VALUE" each, or VALUE by "op.property"; VALUE is YAML."""


def read(
    path: str | os.PathLike[str],
    *,
    overrides: Overrides = (),
    search_path: Sequence[str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> tuple[AppSpec | None, list[Problem]]:
    """Read an app as far as it can be read.

    Args:
        path: The app file.
        overrides: Properties to set on top of the file.
        search_path: Where modules of the app's author are looked up; by default the working directory
            and beside the app file.
        environ: The variables that the app may refer to; by default the process's.

    Returns:
        The app with all that was understood, None where too little was; and every mistake in file order.
    """
    problems = Problems()
    environment = Environment(os.environ if environ is None else environ)
    folders = search_path_of(os.fspath(path)) if search_path is None else tuple(search_path)
    spec = AppReader(folders, environment, problems, os.fspath(path)).read(overrides)
    return spec, problems.found


def load(
    path: str | os.PathLike[str],
    *,
    overrides: Overrides = (),
    search_path: Sequence[str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> AppSpec:
    """Read an app whole: its form, its classes, and their properties.

    Args:
        path: The app file.
        overrides: Properties to set on top of the file.
        search_path: Where modules of the app's author are looked up.
        environ: The variables that the app may refer to; by default the process's.

    Raises:
        SpecError: Every mistake in it.
    """
    spec, problems = read(path, overrides=overrides, search_path=search_path, environ=environ)
    if problems or spec is None:
        raise SpecError(problems)
    return spec
