"""Apps as text, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from dagflow.errors import AppError, Problem
from dagflow.plan.load import load_app
from dagflow.spec.app_reader import Overrides
from dagflow.spec.app_spec import AppSpec

SAMPLES = "tests.plan.sample_operators"

VALID = f"""\
name: sample
operators:
  source:
    class: {SAMPLES}.PieceInput
    properties: {{files: [data], size: 1MiB}}
  reader:
    class: {SAMPLES}.Reader
    properties: {{limit: 3, format: {{prefix: x}}}}
  step:
    class: {SAMPLES}.Step
    properties:
      match: {{prefix: "."}}
      ratios: [0.5, 1]
    partition: parallel
  sink:
    class: {SAMPLES}.Sink
    properties: {{path: out}}
    partition: parallel
streams:
  pieces: {{from: source.pieces, to: reader.pieces}}
  records: {{from: reader.records, to: step.left}}
  kept: {{from: step.output, to: [sink.input]}}
"""


def check(file: str | Path, overrides: Overrides = (), *, environ: Mapping[str, str] | None = None) -> list[Problem]:
    """Every mistake of an app, of its form and of its wiring, in file order; empty for a valid app."""
    try:
        load_app(file, overrides, environ=environ)
    except AppError as error:
        return list(error.problems)
    return []


def problems_of(
    folder: Path, text: str | bytes, overrides: Sequence[str] = (), environ: Mapping[str, str] | None = None
) -> list[str]:
    """The problems of an app as 'line:column: message'; only the message where there is no line."""
    file = folder / "app.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    found = check(file, overrides, environ={} if environ is None else environ)
    return [f"{p.line}:{p.column}: {p.message}" if p.line else f"{p.file}: {p.message}" for p in found]


def spec_of(
    file: Path,
    overrides: Mapping[str, str] | Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
) -> AppSpec:
    """What a valid app says."""
    spec = load_app(file, overrides, environ=environ).spec
    assert spec is not None
    return spec


def changed(old: str, new: str) -> str:
    """The valid app with one part of its text replaced."""
    assert VALID.count(old) == 1, f"{old!r} occurs {VALID.count(old)} times"
    return VALID.replace(old, new)


def wired(operators: str, streams: str) -> str:
    """An app with a source and a reader, and more operators and streams, each on a line of its own."""
    return (
        "name: a\noperators:\n"
        f"  source: {{class: {SAMPLES}.PieceInput}}\n"
        f"  reader: {{class: {SAMPLES}.Reader}}\n"
        + "".join(f"  {line.replace('class: ', f'class: {SAMPLES}.')}\n" for line in operators.splitlines())
        + "streams:\n"
        + "  pieces: {from: source.pieces, to: reader.pieces}\n"
        + "".join(f"  {line}\n" for line in streams.splitlines())
    )
