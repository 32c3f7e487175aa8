"""Imports what the dotted path of an app names in an author's own module."""

from __future__ import annotations

import importlib

from dagflow.errors import text_of
from dagflow.suggestions import did_you_mean


def imported(kind: str, path: str) -> object:
    """Import the object that a dotted path names.

    Args:
        kind: Its name in messages, such as "format".
        path: The module, a dot, and the name in it.

    Raises:
        ValueError: The path has no dot, its module cannot be imported, or has no such name.
    """
    module_name, _, name = path.rpartition(".")
    if not module_name or not all(map(str.isidentifier, path.split("."))):
        raise ValueError(
            f"{kind} '{path}' is not a dotted path: that is a module, a dot, and the name in it, such as "
            "my_module.name for name in my_module.py"
        )
    try:
        module = importlib.import_module(module_name)
        if hasattr(module, name):
            return getattr(module, name)
    # An author's module may do anything while it is imported, sys.exit included.
    except (Exception, SystemExit) as error:
        is_missing = isinstance(error, ModuleNotFoundError) and error.name == module_name.partition(".")[0]
        hint = "; a module of your own lies in the working directory, or beside the app" if is_missing else ""
        raise ValueError(
            f"{kind} '{path}': cannot import {module_name}: {type(error).__name__}: {text_of(error)}{hint}"
        ) from error
    raise ValueError(f"{kind} '{path}': module {module_name} has no '{name}'{did_you_mean(name, vars(module))}")
