"""Finds classes by what they are for, where an app uses a name that no class has."""

from __future__ import annotations

import re
from collections.abc import Mapping

MOST = 3

_SAME = (
    {"sum", "total", "add", "aggregate", "average", "avg", "mean", "group", "tally", "count"},
    {"map", "transform", "project", "rename", "convert", "cast", "column", "select"},
    {"sort", "order", "rank", "limit", "head", "largest", "top"},
    {"unique", "distinct", "dedup", "dedupe", "duplicate", "duplicates", "once", "deduplicator"},
    {"sink", "output", "save", "dump", "export", "store", "write", "writes", "writer"},
    {"source", "input", "load", "scan", "list", "find", "finds", "splitter"},
    {"parse", "parser", "decode", "regex", "read", "reads", "reader"},
    {"where", "drop", "drops", "keep", "keeps", "match", "grep", "filter"},
    {"join", "lookup", "enrich", "enricher"},
    {"sql", "query", "computes"},
    {"check", "validate", "validator", "assert", "expect", "quality"},
    {"concat", "merge", "merges", "compact", "merger"},
    {"table", "delta", "iceberg", "lake"},
    {"delete", "remove", "archive", "clean", "cleaner"},
)
"""Words that stand for one purpose."""


def for_purpose(name: str, classes: Mapping[str, type]) -> dict[str, str]:
    """The classes that a name may mean, each with what it does; the nearest first, and none where no word fits.

    Args:
        name: A name such as SumBy.
        classes: The classes by name.
    """
    wanted = _purposes(name)
    does = {each: _first_line(cls) for each, cls in classes.items()}
    # The name of a class says more about it than one of the words that describe it.
    scores = {
        each: 2 * len(wanted & _purposes(each)) + len(wanted & _purposes(text.replace(" ", "_")))
        for each, text in does.items()
    }
    best = sorted((each for each, score in scores.items() if score > 1), key=lambda each: (-scores[each], each))
    return {each: does[each] for each in best[:MOST]}


def _purposes(name: str) -> set[str]:
    """The purposes that are named by the words of a name."""
    words = {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}
    return {min(same) for same in _SAME if words & same}


def _first_line(cls: type) -> str:
    return (cls.__doc__ or "").strip().split("\n")[0].rstrip(".")
