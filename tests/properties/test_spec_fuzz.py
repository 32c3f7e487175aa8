"""Any change of an app gives a valid plan, or problems with line and column, never a traceback."""

from __future__ import annotations

import copy
import random
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from dagflow.errors import AppError, Problem
from dagflow.plan.load import load_app
from dagflow.plan.placement import place
from dagflow.plan.render.explain import explain
from tests.nightly import by_day, examples
from tests.spec.apps import SAMPLES, VALID, check

BUILT_IN = (Path("apps") / "block_reader.yaml").read_text()
APPS = (VALID, BUILT_IN)

GARBAGE: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    10**30,
    1.5,
    float("nan"),
    float("inf"),
    "",
    " ",
    "x",
    "\u202e\u0000\ufffe",
    "é" * 50,
    "a" * 100_000,
    "source.pieces",
    "reader.messages",
    "${HOME}",
    "${NOPE}",
    "${",
    "$${x}",
    "parallel",
    "64MiB",
    "1e400",
    "9" * 5000,
    "../..",
    "os.path",
    "sys.exit",
    "a" * 5000 + ".B",
    "nowhere.is.no.module",
    "tests.plan.sample_operators",
    f"{SAMPLES}.NotAnOperator",
    f"{SAMPLES}.Portless",
    f"{SAMPLES}.Follower",
    [],
    {},
    [[]],
    [None],
    {"x": {"x": {"x": []}}},
    ["reader.pieces", "reader.pieces", 5],
    {"from": "a", "to": "b"},
    {"type": "lines", "delimiter": []},
    {"prefix": None, "regex": "("},
)
"""Values that replace a key or a value."""


def paths_of(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return every path into a tree of dicts and lists."""
    found = [path]
    steps = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for step, value in steps:
        found += paths_of(value, (*path, step))
    return found


def mutated(tree: Any, choose: random.Random) -> Any:
    """Return the tree with one item dropped, renamed, retyped, repeated or copied from elsewhere."""
    ways = paths_of(tree)[1:]
    if not ways:
        return tree
    *above, step = choose.choice(ways)
    parent = tree
    for other in above:
        parent = parent[other]
    match choose.randrange(5):
        case 0:
            del parent[step]
        case 1 if isinstance(parent, dict):
            name = str(step)
            cut = choose.randrange(len(name) + 1)
            parent[name[:cut] + choose.choice(["", "x", " ", ".", "${", "\n"]) + name[cut + 1 :]] = parent.pop(step)
        case 2:
            other = tree
            for further in choose.choice(ways):
                other = other[further]
            parent[step] = copy.deepcopy(other)
        case 3 if isinstance(parent[step], str) and len(parent[step]) > 1:
            cut = choose.randrange(len(parent[step]))
            parent[step] = parent[step][:cut] + parent[step][cut + 1 :]
        case _:
            parent[step] = copy.deepcopy(choose.choice(GARBAGE))
    return tree


def outcome(file: Path, overrides: list[str] | None = None) -> list[Problem]:
    """Check and load an app; both must agree, and a valid plan can be placed and shown."""
    problems = check(file, overrides or [], environ={"HOME": "/root"})
    try:
        logical = load_app(file, overrides or [], environ={"HOME": "/root"})
    except AppError as error:
        assert list(error.problems) == problems and problems
        assert error.exit_code == 2
    else:
        assert problems == []
        assert explain(logical, place(logical)).startswith("app ")
    for problem in problems:
        assert problem.message and len(str(problem)) < 2000
        assert (problem.line > 0) == (problem.column > 0)
    return problems


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file for the apps of this module."""
    return tmp_path_factory.mktemp("fuzz") / "app.yaml"


@settings(max_examples=examples(300))
@given(app=st.sampled_from(APPS), seed=st.integers(0, 2**32), count=st.integers(1, 4))
def test_a_mutated_app_is_valid_or_explained(file: Path, app: str, seed: int, count: int) -> None:
    """Keys are dropped, renamed and retyped, streams rewired, scalars made huge."""
    choose = random.Random(seed)
    tree = yaml.safe_load(app)
    for _ in range(count):
        tree = mutated(tree, choose)
    file.write_text(yaml.safe_dump(tree, sort_keys=False, allow_unicode=True))
    outcome(file)


@settings(max_examples=examples(200))
@given(
    app=st.sampled_from(APPS),
    where=st.floats(0, 1),
    length=st.integers(0, 40),
    data=st.one_of(
        st.binary(max_size=12), st.text(alphabet="{}[]:,&*!|>'\"%@`#-? \n\t$~<x1", max_size=12).map(str.encode)
    ),
)
def test_bytes_thrown_into_an_app_are_explained(file: Path, app: str, where: float, length: int, data: bytes) -> None:
    """Any bytes may replace any others."""
    text = app.encode()
    start = int(where * len(text))
    file.write_bytes(text[:start] + data + text[start + length :])
    outcome(file)


@settings(max_examples=examples(100))
@given(data=st.binary(max_size=300))
def test_any_bytes_are_explained(file: Path, data: bytes) -> None:
    """A file of garbage is no app."""
    file.write_bytes(data)
    assert outcome(file)


@settings(max_examples=examples(100))
@given(
    override=st.one_of(
        st.text(max_size=30),
        st.builds(
            "{}={}".format,
            st.sampled_from(
                ["reader.limit", "source.size", "step.match.prefix", "sink.path", "step.ratios", "x.y", "."]
            ),
            st.text(max_size=20),
        ),
    )
)
def test_any_override_is_taken_or_explained(file: Path, override: str) -> None:
    """Any argument of --set is accepted or explained."""
    file.write_text(VALID)
    outcome(file, [override])


@pytest.mark.parametrize("depth", [10, 60, 70, 1000, 100_000])
@pytest.mark.parametrize(("begin", "end"), [("[", "]"), ("{a: ", "}")])
def test_nesting_of_any_depth_is_explained(file: Path, depth: int, begin: str, end: str) -> None:
    """Neither the recursion limit nor the stack is exceeded."""
    file.write_text(VALID.replace("[0.5, 1]", begin * depth + end * depth))
    assert outcome(file)


@pytest.mark.parametrize(
    "scalar", ["a" * 5_000_000, "9" * 5_000_000, "'" + "\u00e9" * 1_000_000 + "'", "-" * 100_000 + "x"]
)
@pytest.mark.parametrize("old", by_day(1, ["limit: 3", "size: 1MiB", "name: sample", "from: source.pieces"]))
def test_huge_scalars_are_explained_briefly(file: Path, scalar: str, old: str) -> None:
    """A message quotes only the beginning of a value."""
    key = old.partition(":")[0]
    file.write_text(VALID.replace(old, f"{key}: {scalar}"))
    assert outcome(file)
